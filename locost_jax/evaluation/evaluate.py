"""Evaluates a model on a split: its loss, its summaries, their scores.

`metric_table.METRICS` says what can be measured. Summaries are generated as
config.decode says, and only where a metric needs them. `measure_baselines.py`
has the numbers to compare them with.
"""

import dataclasses
import json
import sys

import jax
from jax.experimental import multihost_utils
import numpy as np

from locost_jax import files
from locost_jax.devices import sharding
from locost_jax.errors import disk_error
from locost_jax.evaluation import content
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric as metric_lib
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hosts import collective
from locost_jax.hosts import watchdog
from locost_jax.values import ranges


def check(config):
  """Raises an InputError for settings no evaluation can have.

  Args:
    config: the whole config.
  """
  for section in 'eval', 'decode':
    ranges.check_section(section, config[section])
  metric_table.check(config.eval.metrics, config.checkpoint.metric)
  settings_of(config)


def settings_of(config):
  """A run's config -> a checked `decode_settings.Settings`."""
  return decode_settings.of_run(config)


def selection_of(model_config):
  """How what the decoder reads is selected, in words; '' without a selector.

  Args:
    model_config: the model's config.
  """
  if getattr(model_config, 'select', '') != 'ppo':
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
    model: of `models.build`.
    params: its parameters, on the mesh.
    batches: iterator of (batch, info), this host's rows; info has the lists id
      and reference of the real rows, which come first. A reference may be a
      list of strings that all count as right.
    vocabulary: text <-> ids.
    config: the whole config; read are eval.metrics and decode.
    mesh: of `sharding.make_mesh`.
    task_name: part of the metrics' names.
    split: likewise, unless it is 'validation'.
    predictions_path: where rows go, see `write_predictions`; a line on stderr
      says if there was no room. None: nowhere.
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
  """Measures a model: `evaluate` without names and files.

  Args:
    model, params, batches, vocabulary, config, mesh, common: see `evaluate`.
    metrics: instead of config.eval.metrics.
    generated: a `generated_batches.GeneratedBatches`, for an evaluation that
      may be stopped and given again.

  Returns:
    ({'loss': ..., 'rouge1': ..., ...}, [{id, prediction, reference,
    tokens_kept}, ...]), the rows of all hosts; no rows where no metric needs
    summaries. tokens_kept is the length of the input as the model read it.
  """
  names = config.eval.metrics if metrics is None else metrics
  of_model = metric_table.select(names, metric_lib.MODEL)
  of_text = metric_table.of_summaries(names)
  parts, rows = [], []
  with jax.set_mesh(mesh):
    for i, (batch, info) in enumerate(content.with_weights(batches, common)):
      watchdog.alive()
      if of_model:
        placed = sharding.global_batch(batch, mesh, vocabulary.pad_id)
        parts += [entry.sums(model, params, placed) for entry in of_model]
      if of_text:
        tokens = generated.get(i) if generated else None
        if tokens is None:
          tokens = _generate(
              model, params, batch, len(info['id']), vocabulary, config, mesh
          )
          if generated:
            generated.add(tokens)
        rows += _rows(batch, info, tokens, vocabulary, common)
  measured = metric_lib.means(parts)
  for entry in of_model:
    if entry.derive is not None:
      measured |= entry.derive(measured)
  if of_text:
    rows = collective.gather_rows(
        rows if sharding.host_part(mesh).leads else []
    )
    measured |= metric_lib.score(
        of_text,
        [row['prediction'] for row in rows],
        [row['reference'] for row in rows],
        None if common is None else [row.pop('contents') for row in rows],
    )
  return measured, rows


def _rows(batch, info, tokens, vocabulary, common):
  """A row of `measure` for each document, and its contents."""
  rows = []
  for i, (name, reference) in enumerate(zip(info['id'], info['reference'])):
    kept = batch['encoder_input_tokens'][i] != vocabulary.pad_id
    row = dict(
        id=name,
        prediction=vocabulary.decode(tokens[i]),
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
  """Returns this host's rows of tokens as lists, padding rows included."""
  inputs = np.array(batch['encoder_input_tokens'])
  # Rows of padding would be decoded to the maximum: they repeat the first row.
  inputs[real:] = inputs[:1]
  settings = decode_settings.with_ids(settings_of(config), vocabulary)
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
  """Returns what every row of predictions holds besides its summary.

  Args:
    config: the whole config.
    documents: how many rows there are.
    checkpoint: {step, sha256} of what wrote them; None: it is not on disk yet.

  Returns:
    dict of signature (of ROUGE, if it is measured), settings (as `summarize`
    writes them) and checkpoint.
  """
  settings = settings_of(config)
  found = dict(
      settings=dict(
          dataclasses.asdict(settings),
          method=decode_settings.method_of(settings),
          seed=config.decode.seed,
          max_input_length=config.data.max_input_length,
      )
  )
  signatures = metric_table.signatures(config.eval.metrics, documents)
  if 'rouge' in signatures:
    found['signature'] = signatures['rouge']
  return found | ({'checkpoint': checkpoint} if checkpoint else {})


def write_predictions(path, rows, metadata=()):
  """Writes rows as JSONL, whole or not at all.

  Args:
    path: of the file.
    rows: dicts of `measure`; of several references `references` is made.
    metadata: what every row holds besides, see `prediction_metadata`.
  """
  lines = []
  for row in rows:
    row = dict(row, **dict(metadata))
    if not isinstance(row['reference'], str):
      row['references'] = row.pop('reference')
    lines.append(json.dumps(row, ensure_ascii=False) + '\n')
  files.write(path, ''.join(lines))


def try_write_predictions(path, rows, metadata=()):
  """The same; if they cannot be written, a line on stderr says why."""
  try:
    write_predictions(path, rows, metadata)
  except OSError as error:
    print(
        f'{path} could not be written: {disk_error(error)}',
        file=sys.stderr,
        flush=True,
    )
