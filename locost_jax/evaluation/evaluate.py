"""Evaluates a model on a split: loss, generated summaries and their scores.

`metric_table.METRICS` lists the metrics. Summaries are generated with
config.decode, and only if a metric needs them. `measure_baselines.py` gives the
numbers to compare with.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
import sys

import jax
from jax.experimental import multihost_utils
import numpy as np

from locost_jax import files
from locost_jax.command_line.progress import Progress
from locost_jax.devices import compiling
from locost_jax.devices import sharding
from locost_jax.errors import disk_error
from locost_jax.evaluation import content
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric as metric_lib
from locost_jax.evaluation.metrics import protocols
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hosts import collective
from locost_jax.hosts import watchdog
from locost_jax.values import ranges

# Keys of config.data that determine what the model reads of a document.
_READING = (
    'max_input_length',
    'input_field',
    'query_field',
    'query_in',
    'pages',
    'num_pages',
    'page_length',
    'empty_page',
    'document_length',
)


def check(config):
  """Raises an InputError for invalid settings of an evaluation."""
  for section in 'eval', 'decode':
    ranges.check_section(section, config[section])
  metric_table.check(config.eval.metrics, config.checkpoint.metric)
  protocols.find(config.eval.protocol, 'config.eval.protocol')
  settings_of(config)


def settings_of(config):
  """Returns the checked `decode_settings.Settings` of a run's config."""
  return decode_settings.of_run(config)


def _writes_sentinels(config):
  """Whether the targets have sentinels: with span corruption."""
  return config.get('span_corruption') is not None


def selection_of(model_config):
  """Describes how the decoder's input is selected; '' without a selector."""
  if model_config.get('select') != 'ppo':
    return ''
  how = {'sample': 'sampling'}.get(model_config.selection)
  return f'selected by {how or model_config.selection}'


def evaluate(
    model,
    params,
    batches,
    vocabulary,
    config,
    mesh,
    task_name,
    split,
    predictions_path=None,
    common=None,
):
  """Measures a model on a split.

  Args:
    params: its parameters, on the mesh.
    batches: iterator of (batch, info), this host's rows; info has the lists id
      and reference of the real rows, which precede the padding rows. A
      reference is a str, or a list of str that are all correct.
    config: the whole config; uses eval.metrics, eval.protocol and decode.
    task_name: part of the metrics' names.
    split: also part of the names, unless it is 'validation'.
    predictions_path: file for the predictions, see `write_predictions`; a write
      error is reported on stderr. None: no file.
    common: the `content.Common` of the training targets; None: recall and
      content_loss are not measured.

  Returns:
    {'eval/TASK/loss': nats per token, 'eval/TASK/accuracy': 0 to 1,
    'eval/TASK/rouge1': F1 x 100, ...}; 'eval/TASK-SPLIT/...' for other splits.
  """
  metrics, rows = measure(
      model, params, batches, vocabulary, config, mesh, common=common
  )
  if predictions_path is not None and rows and jax.process_index() == 0:
    try_write_predictions(
        predictions_path, rows, prediction_metadata(config, len(rows))
    )
  if split != 'validation':
    task_name = f'{task_name}-{split}'
  return {f'eval/{task_name}/{name}': metrics[name] for name in metrics}


def measure(
    model,
    params,
    batches,
    vocabulary,
    config,
    mesh,
    metrics=None,
    common=None,
    generated=None,
):
  """Measures a model, like `evaluate`, but without metric prefixes and files.

  Args:
    model, params, batches, vocabulary, config, mesh, common: see `evaluate`.
    metrics: replaces config.eval.metrics.
    generated: a `generated_batches.GeneratedBatches`, for an evaluation that
      can be stopped and continued.

  Returns:
    ({'loss': ..., 'rouge1': ..., ...}, [{id, prediction, reference,
    tokens_kept}, ...]), the rows of all hosts; no rows if no metric needs
    summaries. tokens_kept is the number of input tokens that the model read.
  """
  names = config.eval.metrics if metrics is None else metrics
  of_model = metric_table.select(names, metric_lib.MODEL)
  of_text = metric_table.of_summaries(names, config.eval.protocol)
  parts, rows = [], []
  with jax.set_mesh(mesh):
    for i, (batch, info) in enumerate(content.with_weights(batches, common)):
      watchdog.heartbeat()
      shape = compiling.shape_of(batch['encoder_input_tokens'])
      if of_model:
        placed = sharding.global_batch(batch, mesh, vocabulary.pad_id)
        with compiling.describe(shape):
          parts += [entry.sums(model, params, placed) for entry in of_model]
      if of_text:
        tokens = generated.get(i) if generated else None
        if tokens is None:
          with compiling.describe(shape):
            tokens = _generate(
                model, params, batch, len(info['id']), vocabulary, config, mesh
            )
          if generated:
            generated.add(tokens)
        keep = _writes_sentinels(config)
        rows += _rows(batch, info, tokens, vocabulary, common, keep)
  measured = metric_lib.means(parts)
  for entry in of_model:
    if entry.derive is not None:
      measured |= entry.derive(measured)
  if of_text:
    rows = collective.gather_rows(
        rows if sharding.host_part(mesh).leads else []
    )
    measured |= score(
        of_text,
        [row['prediction'] for row in rows],
        [row['reference'] for row in rows],
        None if common is None else [row.pop('contents') for row in rows],
    )
  return measured, rows


def score(metrics, predictions, references, contents=None):
  """Like `metrics.metric.score`, with progress on stderr."""
  progress = Progress()
  try:
    return metric_lib.score(
        metrics, predictions, references, contents, show_progress(progress)
    )
  finally:
    progress.wipe()


def show_progress(progress):
  """Returns a function (done, total) that shows it and calls the watchdog."""

  def show(done, total):
    watchdog.heartbeat()
    if collective.is_first_host():
      progress.show('scoring', done, total)

  return show


def _rows(batch, info, tokens, vocabulary, common, keep_sentinels):
  """Returns a row for each document, see `measure`, with its contents."""
  rows = []
  for i, (name, reference) in enumerate(zip(info['id'], info['reference'])):
    kept = batch['encoder_input_tokens'][i] != vocabulary.pad_id
    row = dict(
        id=name,
        prediction=vocabulary.decode(tokens[i], keep_sentinels),
        reference=reference,
        tokens_kept=int(kept.sum()),
    )
    if common is not None:
      row['contents'] = content.of_document(
          batch['encoder_input_tokens'][i], reference, vocabulary, common
      )
    rows.append(row)
  return rows


def _generate(model, params, batch, real, vocabulary, config, mesh):
  """Generates this host's rows of tokens, padding rows included."""
  inputs = np.array(batch['encoder_input_tokens'])
  # Padding rows would be decoded to max_length, so they copy the first row.
  inputs[real:] = inputs[:1]
  settings = decode_settings.with_ids(settings_of(config), vocabulary)
  if _writes_sentinels(config):
    settings = dataclasses.replace(settings, banned_ids=())
  rows = {'encoder_input_tokens': inputs}
  if decode_settings.method_of(settings) == 'sample':
    rows['seeds'] = generate.document_seeds(
        inputs, inputs != settings.pad_id, config.decode.seed
    )
  rows = sharding.global_batch(rows, mesh, settings.pad_id)
  tokens, _ = generate.generate(
      model,
      params,
      rows['encoder_input_tokens'],
      None,
      settings,
      rows.get('seeds'),
  )
  if jax.process_count() == 1:
    return np.asarray(tokens).tolist()
  tokens = np.asarray(multihost_utils.process_allgather(tokens, tiled=True))
  part = sharding.host_part(mesh)
  rows = len(tokens) // part.count
  start = rows * part.index
  return tokens[start : start + rows].tolist()


def prediction_metadata(config, documents, checkpoint=None):
  """Returns the fields that all rows of a predictions file share.

  Args:
    documents: number of rows.
    checkpoint: {step, sha256} of the model; None: it is not on disk yet.

  Returns:
    dict of signature (of ROUGE, if measured), settings (of decoding, as
    `summarize` writes them, and of reading) and checkpoint.
  """
  settings = settings_of(config)
  found = dict(
      settings=dict(
          decode_settings.as_dict(settings),
          method=decode_settings.method_of(settings),
          seed=config.decode.seed,
          selection=selection_of(config.model),
          **{key: config.data.get(key) for key in _READING},
      )
  )
  signatures = metric_table.signatures(
      config.eval.metrics, documents, config.eval.protocol
  )
  if 'rouge' in signatures:
    found['signature'] = signatures['rouge']
  return found | ({'checkpoint': checkpoint} if checkpoint else {})


def write_predictions(path, rows, metadata=()):
  """Writes rows as JSONL, atomically.

  A file of other settings or documents is kept: `NAME.settings-HASH.jsonl` is
  written instead of `NAME.jsonl`. find_predictions.py finds both.

  Args:
    rows: dicts from `measure`; a list of references is written as `references`.
    metadata: fields added to every row, see `prediction_metadata`.
  """
  lines = []
  for row in rows:
    row = dict(row, **dict(metadata))
    if not isinstance(row['reference'], str):
      row['references'] = row.pop('reference')
    lines.append(json.dumps(row, ensure_ascii=False) + '\n')
  made_of = _made_of(lines)
  if os.path.exists(path) and made_of != _made_of(
      Path(path).read_bytes().splitlines()
  ):
    kept, path = path, Path(path).with_suffix(f'.settings-{made_of}.jsonl')
    print(
        f'{kept} has other settings or documents; wrote {path}',
        file=sys.stderr,
        flush=True,
    )
  files.write(path, ''.join(lines))


def _made_of(lines):
  """Returns a hash of the settings and references of rows in JSON, or None."""
  digest = hashlib.sha256()
  for line in lines:
    try:
      row = json.loads(line)
      for name in ('prediction', 'tokens_kept', 'signature', 'checkpoint'):
        row.pop(name, None)
    except (ValueError, AttributeError):  # a damaged file
      return None
    digest.update(json.dumps(row, sort_keys=True).encode() + b'\n')
  return digest.hexdigest()[:8]


def try_write_predictions(path, rows, metadata=()):
  """Like `write_predictions`, but reports a write error on stderr."""
  try:
    write_predictions(path, rows, metadata)
  except OSError as error:
    print(
        f'{path} could not be written: {disk_error(error)}',
        file=sys.stderr,
        flush=True,
    )
