"""Evaluates a phase while it trains: metric, protocol, signatures, predictions.

The first argument of each function is an `assemble.Setup`.
"""

import contextlib
import itertools

from locost_jax.devices import collective
from locost_jax.evaluation import baselines
from locost_jax.evaluation import content
from locost_jax.evaluation import evaluate as evaluate_lib
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.workdir import phases as phases_lib

_REFERENCES = 1000  # read to choose a protocol


def choose_metric(setup):
  """Sets config.checkpoint.metric if it is 'auto'; a run keeps its metric.

  Returns (the metric, the number of validation documents in an evaluation).
  """
  settings = setup.config.checkpoint
  documents = sum(
      map(setup.documents, setup.eval_caches('validation').values())
  )
  if settings.metric == metric_table.AUTO:
    stored = phases_lib.read_config(setup.directory) or {}
    before = stored.get('checkpoint', {})
    settings.metric = before.get('metric', metric_table.AUTO)
  if settings.metric == metric_table.AUTO:
    settings.metric = metric_table.choose_best_by(
        setup.config.eval.metrics, documents
    )
  return settings.metric, documents


def _caches(setup):
  """Returns the records of all evaluation splits that are open."""
  both = setup.eval_caches('validation'), setup.eval_caches('test')
  return [cache for found in both for cache in found.values()]


def choose_protocol(setup):
  """Sets config.eval.protocol if it is 'auto' and there are references.

  Where one task of a mixture needs 'unicode', all tasks are scored by it.
  """
  settings, found = setup.config.eval, set()
  for cache in _caches(setup):
    records = (cache[i] for i in range(min(len(cache), _REFERENCES)))
    texts = [metric.as_list(record['reference']) for record in records]
    found.add(protocols.choose(itertools.chain.from_iterable(texts)))
  is_chosen = settings.protocol == protocols.AUTO
  if is_chosen and found:
    settings.protocol = 'unicode' if 'unicode' in found else 'locost'
  if 'unicode' in found and is_chosen | (settings.protocol != 'unicode'):
    collective.log(
        f'config.eval.protocol: {settings.protocol}; the words of locost (a-z '
        f"and 0-9) cover less than half of the references' letters "
        f'({setup.task})'
    )


def test_set(setup, cache):
  """Returns `predictions.test_set` of the documents that are measured."""
  records = (cache[i] for i in range(setup.documents(cache)))
  return predictions.test_set(
      (row['id'], row.get('references') or row['reference']) for row in records
  )


def labels(setup):
  """Returns the signatures of evaluations, and which documents they measure."""
  settings, found = setup.config.eval, {}
  for task, cache in setup.eval_caches('validation').items():
    found[f'eval/{task}/test_set'] = test_set(setup, cache)
    for name, text in metric_table.signatures(
        settings.metrics, setup.documents(cache), settings.protocol
    ).items():
      found[f'eval/{task}/signature/{name}'] = text
  return found


def evaluate(setup, params, step):
  """Evaluates on validation, keeps predictions: {'eval/TASK/NAME': number}."""
  metrics = {}
  for task, cache in setup.eval_caches('validation').items():
    batches = setup.eval_batches(cache)
    measured, rows = evaluate_lib.measure(setup, params, batches)
    write_predictions(setup, f'{task}-validation-{step}', rows)
    metrics |= {f'eval/{task}/{name}': x for name, x in measured.items()}
  return metrics


def write_predictions(setup, name, rows, checkpoint=None):
  """Writes rows of `evaluate.measure`, if there are any, on the first host.

  Returns the path of the file, predictions/NAME.jsonl, or ''.
  checkpoint is {step, sha256} of the model, or None: it is not on disk yet.
  """
  if not rows or not collective.is_first_host():
    return ''
  return predictions.try_write(
      setup.directory / 'predictions' / f'{name}.jsonl',
      rows,
      predictions.metadata(setup.config, len(rows), checkpoint),
  )


def common(setup):
  """The most common words and tokens of the training targets.

  Read from the phase's directory, where training writes them; otherwise
  counted in the training records or, if these are not open, in the evaluation
  splits.
  """
  protocol = protocols.find(setup.config.eval.protocol).name
  with contextlib.suppress(FileNotFoundError):
    found = content.load(setup.directory / content.FILE)
    if found.protocol == protocol:
      return found
  train = setup.caches.get('train')
  caches = _caches(setup) if train is None else [train]
  return content.most_common(
      itertools.chain.from_iterable(map(baselines.first_records, caches)),
      protocol=protocol,
  )
