"""Confidence intervals by the bootstrap over documents (Efron 1979)."""

import numpy as np

RESAMPLES = 1000
LEVEL = 95  # percent
SEED = 0


def bootstrap(scores, resamples=RESAMPLES, seed=SEED):
  """Returns the means of scores over documents drawn with replacement.

  Args:
    scores: float [n, k], a row for each document.
    resamples: number of resamples of n documents.
    seed: of the resamples.

  Returns:
    float [resamples, k].
  """
  scores = np.asarray(scores, np.float64)
  n = len(scores)
  draw = np.random.default_rng(seed)
  return np.stack(
      [scores[draw.integers(n, size=n)].mean(axis=0) for _ in range(resamples)]
  )


def interval(means, level=LEVEL):
  """Returns (low, high), the central interval of `level` percent of means."""
  tail = (100 - level) / 2
  low, high = np.percentile(means, [tail, 100 - tail])
  return float(low), float(high)
