"""Scores by the length of the document: groups between powers of two."""

from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric as metric_lib


def group(rows):
  """Groups rows of predictions by the tokens that the model read.

  Args:
    rows: dicts with tokens_kept, n above 0; of `evaluate.measure`.

  Returns:
    List of (low, high, rows with low <= n <= high), shortest first, low being
    a power of two and 1, high the next power; groups without rows are left out.
  """
  groups = {}
  for row in rows:
    groups.setdefault((row['tokens_kept'] - 1).bit_length(), []).append(row)
  return [((1 << k >> 1) + 1, 1 << k, groups[k]) for k in sorted(groups)]


def score(rows, names):
  """Returns the groups of `group` with their scores instead of their rows.

  Args:
    rows: dicts with prediction, reference and tokens_kept.
    names: config.eval.metrics; those of texts are computed.

  Returns:
    List of (low, high, documents, {'rouge1': ..., ...}).
  """
  metrics = metric_table.select(names, metric_lib.TEXT)
  return [
      (
          low,
          high,
          len(found),
          metric_lib.score(
              metrics,
              [row['prediction'] for row in found],
              [row['reference'] for row in found],
          ),
      )
      for low, high, found in group(rows)
  ]
