"""Confidence intervals by the bootstrap over documents (Efron 1979)."""

import math

import numpy as np
from scipy import special

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


def interval(means, level=LEVEL, documents=None):
  """Returns (low, high), the central interval of `level` percent of means.

  Args:
    means: of resamples.
    level: in percent.
    documents: n; percentiles further out are taken, because those of the means
      of small samples are too narrow: the expanded percentile interval
      (Hesterberg 2015, "What teachers should know about the bootstrap",
      section 5.3). None: the percentiles themselves.
  """
  tail = (100 - level) / 2
  if documents is not None and documents > 1:
    t = special.stdtrit(documents - 1, tail / 100)
    tail = 100 * special.ndtr(t * math.sqrt(documents / (documents - 1)))
  low, high = np.percentile(means, [tail, 100 - tail])
  return float(low), float(high)
