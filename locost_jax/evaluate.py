"""What a model is worth on a split: loss, ROUGE, and what costs nothing.

Loss is the mean cross entropy in nats over all target tokens of the split;
ROUGE is of summaries written as config.decode says (F1 x 100). Beside them, to
tell what the numbers mean:

- the loss with the inputs exchanged between documents: a model that reads its
  input is worse then;
- the loss of a unigram model of the training targets;
- the ROUGE of the first sentences of the input (lead), and of the one training
  target that suits the validation targets best.

Every number is a sum and a weight until the end, so that a last, partial batch
counts for what it holds.
"""

import functools
import json
import sys

import jax
from jax.experimental import multihost_utils
import numpy as np

from locost_jax import baselines
from locost_jax import decode
from locost_jax import generate
from locost_jax import sharding
from locost_jax import train
from locost_jax import watchdog
from locost_jax.data import text as text_lib
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.metrics import rouge
from locost_jax.workdir import write

METRICS = {
    'loss': ('loss', 'accuracy'),
    'rouge': ('rouge1', 'rouge2', 'rougeL', 'rougeLsum', 'rouge_mean'),
}
# Training targets that the baselines look at: enough for the frequencies of
# tokens, few enough to read within seconds.
_TRAIN_TARGETS = 20_000

_eval_step = functools.partial(jax.jit, static_argnames='model')(
    train.eval_step)


def check(config):
  """Raises an InputError for settings no evaluation can have.

  Args:
    config: the whole config.
  """
  for name in config.eval.metrics:
    if name not in METRICS:
      raise InputError(f'config.eval.metrics: {name!r} is none of '
                       f'{", ".join(map(repr, METRICS))}')
  if config.eval.examples < 0:
    raise InputError(f'config.eval.examples={config.eval.examples}: expected 0 '
                     '(all) or more')
  measured = [key for name in config.eval.metrics for key in METRICS[name]]
  metric = config.checkpoint.metric
  if metric.rsplit('/', 1)[-1] not in measured:
    raise InputError(
        f'config.checkpoint.metric={metric!r} is not measured: '
        f'config.eval.metrics={tuple(config.eval.metrics)} gives '
        f'{", ".join(measured) or "nothing"}')
  decode_settings(config.decode)


def decode_settings(decode_config):
  """config.decode -> a checked `decode.Settings`."""
  if decode_config.seed < 0:
    raise InputError(f'config.decode.seed={decode_config.seed}: expected 0 or '
                     'more')
  return decode.from_config(decode_config)


def evaluate(model, params, batches, vocabulary, config, mesh, task_name,
             split, predictions_path=None):
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
    predictions_path: where {id, prediction, reference} rows go (references,
      where there are several), one JSON object a line, written whole or not at
      all (a line on stderr tells if there was no room); None: nowhere.

  Returns:
    {'eval/TASK/loss': nats per token, 'eval/TASK/accuracy': 0 to 1,
    'eval/TASK/rouge1': F1 x 100, ...}; 'eval/TASK-SPLIT/...' for other splits.
  """
  metrics, rows = measure(model, params, batches, vocabulary, config, mesh)
  if predictions_path is not None and rows and jax.process_index() == 0:
    keep_predictions(predictions_path, rows)
  if split != 'validation':
    task_name = f'{task_name}-{split}'
  return {f'eval/{task_name}/{name}': metrics[name] for name in metrics}


def measure(model, params, batches, vocabulary, config, mesh, metrics=None):
  """The same without names and files.

  Args:
    model, params, batches, vocabulary, config, mesh: as in `evaluate`.
    metrics: instead of config.eval.metrics.

  Returns:
    ({'loss': ..., 'rouge1': ..., ...}, [{id, prediction, reference}, ...]), the
    rows of all hosts; no rows where ROUGE is not measured.
  """
  metrics = config.eval.metrics if metrics is None else metrics
  sums, rows = [], []
  with jax.set_mesh(mesh):
    for batch, info in batches:
      watchdog.alive()
      if 'loss' in metrics:
        sums.append(_eval_step(
            params, sharding.global_batch(batch, mesh, vocabulary.pad_id),
            model=model))
      if 'rouge' in metrics:
        tokens = _generate(model, params, batch, len(info['id']), vocabulary,
                           config, mesh)
        rows += [
            dict(id=name, prediction=vocabulary.decode(ids),
                 reference=reference)
            for name, reference, ids in zip(
                info['id'], info['reference'], tokens)]
  measured = {}
  if sums:
    totals = {key: sum(float(s[key]) for s in sums) for key in sums[0]}
    weight = totals.pop('weight')
    if weight:  # none: exchange_inputs of a single document
      measured.update({key: totals[key] / weight for key in totals})
  if 'rouge' in metrics:
    rows = _from_all_hosts(rows if sharding.host_part(mesh).leads else [])
    measured.update(rouge.rouge([row['prediction'] for row in rows],
                                [row['reference'] for row in rows]))
  return measured, rows


def _generate(model, params, batch, real, vocabulary, config, mesh):
  """Returns this host's rows of tokens as lists, padding rows included."""
  inputs = np.array(batch['encoder_input_tokens'])
  # Rows of padding would be decoded to the maximum: they repeat the first row.
  inputs[real:] = inputs[:1]
  settings = decode.with_ids(decode_settings(config.decode), vocabulary)
  rows = {'encoder_input_tokens': inputs}
  if decode.method_of(settings) == 'sample':
    rows['seeds'] = generate.document_seeds(
        inputs, inputs != settings.pad_id, config.decode.seed)
  rows = sharding.global_batch(rows, mesh, settings.pad_id)
  tokens, _ = generate.generate(
      model, params, rows['encoder_input_tokens'], None, settings,
      rows.get('seeds'))
  if jax.process_count() == 1:
    return np.asarray(tokens).tolist()
  tokens = np.asarray(multihost_utils.process_allgather(tokens, tiled=True))
  part = sharding.host_part(mesh)
  rows = len(tokens) // part.count
  start = rows * part.index
  return tokens[start:start + rows].tolist()


def _from_all_hosts(rows):
  """A list of JSON rows from each host -> the same long list on all."""
  if jax.process_count() == 1:
    return rows
  data = np.frombuffer(json.dumps(rows).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.array(len(data)))
  padded = np.zeros(int(sizes.max()), np.uint8)
  padded[:len(data)] = data
  gathered = multihost_utils.process_allgather(padded)
  return [row for size, data in zip(sizes, gathered)
          for row in json.loads(data[:int(size)].tobytes())]


def exchange_inputs(batches, vocabulary):
  """The same batches with the inputs exchanged between documents.

  Within a batch, whose documents are of about the same length, document i gets
  the input of document i + n // 2: neighbours in length may be copies. A single
  document in its batch gets an input of the batch before; if there is none, it
  is left out.

  Args:
    batches, vocabulary: as in `evaluate`.

  Yields:
    (batch, info), shapes unchanged.
  """
  spare = None
  for batch, info in batches:
    n = len(info['id'])
    batch = dict(batch)
    inputs = np.array(batch['encoder_input_tokens'])
    last = inputs[n - 1].copy() if n else None
    if n > 1:
      inputs[:n] = np.roll(inputs[:n], -(n // 2), axis=0)
    elif n == 1 and spare is not None:
      width = min(len(spare), inputs.shape[1])
      inputs[0] = vocabulary.pad_id
      inputs[0, :width] = spare[:width]
    elif n == 1:
      batch['decoder_loss_weights'] = np.zeros_like(
          batch['decoder_loss_weights'])
    spare = last if n else spare
    batch['encoder_input_tokens'] = inputs
    yield batch, info


def measure_baselines(batches, train_records, vocabulary, metrics):
  """What can be had without a model.

  Args:
    batches: as in `evaluate`.
    train_records: iterable of dicts with targets (ids) and reference (str).
    vocabulary: text <-> ids.
    metrics: as config.eval.metrics; without 'rouge' only the first of:

  Returns:
    dict of
      unigram: {'loss'}, of the frequencies of tokens in the training targets.
      lead: {'rouge1', ...}, and 'sentences', how many: as many as a training
        target has on average.
      constant: {'rouge1', ...}, and 'text', the training target that has the
        highest mean ROUGE on this split.
  """
  train_records = list(train_records)
  train_references = [record['reference'] for record in train_records]
  sentences = _mean_sentences(train_references)
  rows = []
  for batch, info in batches:
    n = len(info['id'])
    lengths = batch['decoder_loss_weights'].astype(bool).sum(axis=1)
    for i in range(n):
      source = vocabulary.decode(batch['encoder_input_tokens'][i].tolist())
      rows.append(dict(
          lead=baselines.lead(source, sentences),
          reference=info['reference'][i],
          targets=batch['decoder_target_tokens'][i, :lengths[i]].tolist()))
  rows = _from_all_hosts(rows)
  measured = {'unigram': {'loss': float(baselines.unigram_loss(
      [record['targets'] for record in train_records],
      [np.asarray(row['targets'], np.int32) for row in rows],
      vocabulary.size))}}
  if 'rouge' in metrics:
    references = [row['reference'] for row in rows]
    constant = baselines.best_constant(
        train_references, list(map(first_reference, references)))
    measured['lead'] = dict(
        rouge.rouge([row['lead'] for row in rows], references),
        sentences=sentences)
    measured['constant'] = dict(
        rouge.rouge([constant] * len(rows), references), text=constant)
  return measured


def _mean_sentences(texts):
  counts = [len(text_lib.split_sentences(text)) for text in texts[:1000]]
  return max(1, round(sum(counts) / max(len(counts), 1)))


def first_reference(reference):
  """The text, or the first of several that count as right."""
  return reference if isinstance(reference, str) else reference[0]


def first_records(cache, most=_TRAIN_TARGETS):
  """Yields the first records of a training cache, of each part as many."""
  parts = cache.window(0, 0)
  for part in parts:
    for i in range(min(most // len(parts), len(part))):
      yield part[i]


def find_inputs(batches, vocabulary, ids):
  """Returns {id: text} of the inputs of some documents, of this host's rows."""
  texts = {}
  for batch, info in batches:
    for i, name in enumerate(info['id']):
      if name in ids:
        texts[name] = vocabulary.decode(
            batch['encoder_input_tokens'][i].tolist())
  return texts


def write_predictions(path, rows):
  """Writes {id, prediction, reference} rows as JSONL, all or nothing."""
  lines = []
  for row in rows:
    row = dict(row)
    if not isinstance(row['reference'], str):
      row['references'] = row.pop('reference')
    lines.append(json.dumps(row, ensure_ascii=False) + '\n')
  write(path, ''.join(lines))


def keep_predictions(path, rows):
  """The same; if they cannot be written, a line on stderr tells why."""
  try:
    write_predictions(path, rows)
  except OSError as error:
    print(f'{path} could not be written: {disk_error(error)}', file=sys.stderr,
          flush=True)
