"""The metrics of config.eval.metrics by name, in the order of the tables."""

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import answers
from locost_jax.evaluation.metrics import lengths
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import ngrams
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import recall
from locost_jax.evaluation.metrics import rouge
from locost_jax.evaluation.model_metrics import loss

METRICS = {
    entry.name: entry
    for entry in (
        loss.LOSS,
        rouge.of_protocol('locost'),
        recall.of_protocol('locost'),
        answers.ANSWERS,
        lengths.LENGTH,
        ngrams.REPETITION,
    )
}
# Metrics whose words are those of config.eval.protocol.
_OF_PROTOCOL = {'rouge': rouge.of_protocol, 'recall': recall.of_protocol}
COLUMNS = tuple(
    column for entry in METRICS.values() for column in entry.columns
)
LOWER_IS_BETTER = frozenset(
    key for entry in METRICS.values() for key in entry.lower_is_better
)


# config.checkpoint.metric: the loss with fewer than FEW_DOCUMENTS documents,
# because ROUGE is then mostly noise; else the mean of ROUGE.
AUTO = 'auto'
FEW_DOCUMENTS = 500


def choose_best_by(names, documents):
  """Returns the key of the number that chooses the best checkpoint.

  Args:
    documents: number of documents of an evaluation.

  Raises:
    InputError: see `check`.
  """
  check(names, AUTO)
  preferred = ['loss', 'rouge_mean']
  if documents >= FEW_DOCUMENTS:
    preferred.reverse()
  keys = _keys(names)
  return next(key for key in preferred + keys if key in keys)


def select(names, *needs, protocol=protocols.AUTO):
  """Returns the metrics of these names.

  Args:
    *needs: some of metric.TEXT, metric.CONTENT and metric.MODEL: only metrics
      that need one of them; no argument: all.

  Raises:
    InputError: unknown metric.
  """
  for name in names:
    if name not in METRICS:
      raise InputError(
          f'config.eval.metrics: {name!r} is none of '
          f'{", ".join(map(repr, METRICS))}'
      )
  words = protocols.find(protocol, 'config.eval.protocol').name
  chosen = [
      _OF_PROTOCOL[name](words) if name in _OF_PROTOCOL else METRICS[name]
      for name in names
  ]
  return [entry for entry in chosen if not needs or entry.needs in needs]


def of_summaries(names, protocol=protocols.AUTO):
  """Returns the metrics of these names that need generated summaries."""
  return select(names, metric.TEXT, metric.CONTENT, protocol=protocol)


def signatures(names, documents, protocol=protocols.AUTO):
  """Returns {metric: signature} of the metrics that have a signature."""
  return {
      entry.name: entry.signature(documents)
      for entry in select(names, protocol=protocol)
      if entry.signature
  }


def check(names, best_by):
  """Raises an InputError for unknown metrics, or if none computes `best_by`.

  Args:
    best_by: config.checkpoint.metric.
  """
  measured = _keys(names)
  if best_by == AUTO and measured:
    return
  if best_by.rsplit('/', 1)[-1] not in measured:
    raise InputError(
        f'config.checkpoint.metric={best_by!r} is not measured: '
        f'config.eval.metrics={tuple(names)} gives '
        f'{", ".join(measured) or "nothing"}'
    )


def _keys(names):
  """Returns the keys of the numbers of these metrics."""
  return [key for entry in select(names) for key in entry.keys]
