"""Evaluates a model on a split: loss, generated summaries and their scores.

`metric_table.METRICS` lists the metrics. Summaries are generated with
config.decode, and only if a metric needs them. `baselines.py` gives the numbers
to compare with.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
from jax.experimental import multihost_utils
import numpy as np

from locost_jax.config import decode_settings
from locost_jax.config import schema
from locost_jax.config.progress import Progress
from locost_jax.devices import collective
from locost_jax.devices import compiling
from locost_jax.devices import sharding
from locost_jax.devices import watchdog
from locost_jax.evaluation import content
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import metric as metric_lib
from locost_jax.evaluation.metrics import protocols
from locost_jax.generation import generate


def check(config):
  """Raises an InputError for invalid settings of an evaluation."""
  for section in 'eval', 'decode':
    schema.check_section(section, config[section])
  metric_table.check(config.eval.metrics, config.checkpoint.metric)
  protocols.find(config.eval.protocol, 'config.eval.protocol')
  decode_settings.of_run(config)


def _writes_sentinels(config):
  """Whether the targets have sentinels: with span corruption."""
  return config.get('span_corruption') is not None


class Evaluated(NamedTuple):
  """A model without its parameters, and how it is evaluated.

  Attributes:
    config: the whole config; uses eval.metrics, eval.protocol and decode.
    common: the `content.Common` of the training targets; None: recall and
      content_loss are not measured.
  """

  model: Any
  vocabulary: Any
  config: Any
  mesh: Any
  common: Any = None


def evaluate(what, params, batches, task_name, split, predictions_path=None):
  """Measures a model on a split.

  Args:
    what: an Evaluated.
    params: its parameters, on the mesh.
    batches: iterator of (batch, info), this host's rows; info has the lists id
      and reference of the real rows, which precede the padding rows. A
      reference is a str, or a list of str that are all correct.
    predictions_path: of `predictions.try_write`; None: no file.

  Returns:
    {'eval/TASK/loss': nats per token, 'eval/TASK/accuracy': 0 to 1,
    'eval/TASK/rouge1': F1 x 100, ...}; 'eval/TASK-SPLIT/...' for other splits.
  """
  metrics, rows = measure(what, params, batches)
  if predictions_path is not None and rows and jax.process_index() == 0:
    predictions.try_write(
        predictions_path, rows, predictions.metadata(what.config, len(rows))
    )
  if split != 'validation':
    task_name = f'{task_name}-{split}'
  return {f'eval/{task_name}/{name}': metrics[name] for name in metrics}


def measure(what, params, batches, metrics=None, generated=None):
  """Measures a model, like `evaluate`, but without metric prefixes and files.

  Args:
    metrics: replaces config.eval.metrics.
    generated: a `generated_batches.GeneratedBatches`, for an evaluation that
      can be stopped and continued.

  Returns:
    ({'loss': ..., 'rouge1': ..., ...}, [{id, prediction, reference,
    tokens_kept}, ...]), the rows of all hosts; no rows if no metric needs
    summaries. tokens_kept is the number of input tokens that the model read.
  """
  model, vocabulary, config, mesh, common = what
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
        real = len(info['id'])
        write = functools.partial(
            _generate, model, params, batch, real, vocabulary, config, mesh
        )
        with compiling.describe(shape):
          tokens = generated.get(i, write) if generated else write()
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


def group_by_length(rows):
  """Groups rows of predictions by the number of tokens that the model read.

  Returns:
    List of (low, high, rows with low <= tokens_kept <= high), shortest first;
    low is a power of two plus 1, high the next power; no group is empty.
  """
  groups = {}
  for row in rows:
    groups.setdefault((row['tokens_kept'] - 1).bit_length(), []).append(row)
  return [((1 << k >> 1) + 1, 1 << k, groups[k]) for k in sorted(groups)]


def score_by_length(rows, names, protocol=protocols.AUTO):
  """Scores the groups of `group_by_length` by the metrics of texts.

  Returns:
    List of (low, high, documents, {'rouge1': ..., ...}).
  """
  metrics = metric_table.select(names, metric_lib.TEXT, protocol=protocol)
  return [
      (
          low,
          high,
          len(found),
          score(
              metrics,
              [row['prediction'] for row in found],
              [row['reference'] for row in found],
          ),
      )
      for low, high, found in group_by_length(rows)
  ]


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
  settings = decode_settings.with_ids(
      decode_settings.of_run(config), vocabulary
  )
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
