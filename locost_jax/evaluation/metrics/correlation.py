"""Pearson's correlation between metrics over documents (SimCAS, table 2)."""

import numpy as np


def pearson(columns):
  """Correlates columns of numbers pairwise.

  Args:
    columns: float [n, k], a row for each document; NaN: missing.

  Returns:
    float [k, k]: for each pair of columns, over the documents that have both
    numbers. NaN with fewer than two such documents, or if a column is constant.
  """
  columns = np.asarray(columns, np.float64)
  k = columns.shape[1]
  found = np.full([k, k], np.nan)
  for i in range(k):
    for j in range(k):
      both = columns[:, [i, j]][~np.isnan(columns[:, [i, j]]).any(1)]
      if len(both) < 2:
        continue
      centred = both - both.mean(0)
      scale = np.sqrt((centred**2).sum(0))
      if (scale > 1e-12 * np.abs(both).max(0)).all() and scale.all():
        found[i, j] = (centred[:, 0] * centred[:, 1]).sum() / scale.prod()
  return found
