"""The metrics by name: one row each, in the order of tables."""

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import rouge
from locost_jax.evaluation.model_metrics import loss

METRICS = {
    entry.name: entry
    for entry in (
        loss.LOSS,
        rouge.ROUGE,
    )
}
COLUMNS = tuple(
    column for entry in METRICS.values() for column in entry.columns
)
LOWER_IS_BETTER = frozenset(
    key for entry in METRICS.values() for key in entry.lower_is_better
)


def select(names, needs=None):
  """Returns the metrics of these names.

  Args:
    names: of config.eval.metrics.
    needs: metric.TEXT or metric.MODEL: only these.

  Raises:
    InputError: there is no such metric.
  """
  for name in names:
    if name not in METRICS:
      raise InputError(
          f'config.eval.metrics: {name!r} is none of '
          f'{", ".join(map(repr, METRICS))}'
      )
  chosen = [METRICS[name] for name in names]
  return [entry for entry in chosen if needs in (None, entry.needs)]


def needs_text(names):
  """Whether summaries are generated for any of these metrics."""
  return bool(select(names, metric.TEXT))


def check(names, best_by):
  """Raises an InputError for unknown metrics, or if none gives `best_by`.

  Args:
    names: config.eval.metrics.
    best_by: config.checkpoint.metric.
  """
  measured = [key for entry in select(names) for key in entry.keys]
  if best_by.rsplit('/', 1)[-1] not in measured:
    raise InputError(
        f'config.checkpoint.metric={best_by!r} is not measured: '
        f'config.eval.metrics={tuple(names)} gives '
        f'{", ".join(measured) or "nothing"}'
    )
