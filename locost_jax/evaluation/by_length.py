"""Scores by document length: groups between powers of two."""

from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric as metric_lib
from locost_jax.evaluation.metrics import protocols


def group(rows):
  """Groups rows of predictions by the number of tokens that the model read.

  Args:
    rows: dicts from `evaluate.measure`, with tokens_kept > 0.

  Returns:
    List of (low, high, rows with low <= tokens_kept <= high), shortest first;
    low is a power of two plus 1, high the next power. Groups without rows
    are left out.
  """
  groups = {}
  for row in rows:
    groups.setdefault((row['tokens_kept'] - 1).bit_length(), []).append(row)
  return [((1 << k >> 1) + 1, 1 << k, groups[k]) for k in sorted(groups)]


def score(rows, names, protocol=protocols.AUTO):
  """Scores the groups of `group`.

  Args:
    rows: dicts with prediction, reference and tokens_kept.
    names: config.eval.metrics; only metrics of texts are computed.

  Returns:
    List of (low, high, documents, {'rouge1': ..., ...}).
  """
  metrics = metric_table.select(names, metric_lib.TEXT, protocol=protocol)
  return [
      (
          low,
          high,
          len(found),
          evaluate.score(
              metrics,
              [row['prediction'] for row in found],
              [row['reference'] for row in found],
          ),
      )
      for low, high, found in group(rows)
  ]
