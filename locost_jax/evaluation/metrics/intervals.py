"""Confidence intervals, and the test whether two systems differ.

Intervals are by the bootstrap (Efron 1979), that of a difference too: the
documents are resampled, the same for both systems.

The test is approximate randomisation: under the null hypothesis the two scores
of a document can be exchanged. Each draw exchanges them with probability 1/2,
independently for each document (Noreen 1989; Riezler & Maxwell 2005, figure 1).
It is two-sided, and exact for any number of documents. The observed difference d
counts as one more draw, so that p is never 0 (Phipson & Smyth 2010):

  p = (number of draws with |draw| >= |d| + 1) / (number of draws + 1)
"""

import math

import numpy as np
from scipy import special

RESAMPLES = 1000
LEVEL = 95  # percent
SEED = 0
EXCHANGES = 10_000
_ROUNDING = 1e-9  # error of a sum; differences of F1 x 100 are much larger


def bootstrap(scores):
  """Scores [n, k] -> their means over documents drawn with replacement [r, k]."""
  scores = np.asarray(scores, np.float64)
  n = len(scores)
  draw = np.random.default_rng(SEED)
  return np.stack(
      [scores[draw.integers(n, size=n)].mean(axis=0) for _ in range(RESAMPLES)]
  )


def interval(means, documents):
  """Returns (low, high), the central interval of LEVEL percent of means.

  Args:
    documents: n; percentiles further out are taken, because those of the means
      of small samples are too narrow: the expanded percentile interval
      (Hesterberg 2015, "What teachers should know about the bootstrap",
      section 5.3).
  """
  tail = (100 - LEVEL) / 2
  if documents > 1:
    t = special.stdtrit(documents - 1, tail / 100)
    tail = 100 * special.ndtr(t * math.sqrt(documents / (documents - 1)))
  low, high = np.percentile(means, [tail, 100 - tail])
  return float(low), float(high)


def exchange(ours, theirs, statistic):
  """Returns the differences [r, m] after exchanging scores at random."""
  ours, theirs = (np.asarray(x, np.float64) for x in (ours, theirs))
  draw, n = np.random.default_rng(SEED), len(ours)
  moved = np.stack(
      [draw.integers(2, size=n) @ (ours - theirs) for _ in range(EXCHANGES)]
  )
  return statistic(ours.mean(axis=0) - moved / n) - statistic(
      theirs.mean(axis=0) + moved / n
  )


def p_value(observed, draws):
  """Returns the p-value of a difference by draws [r] without one."""
  extreme = np.abs(draws) >= abs(observed) - _ROUNDING
  return float((extreme.sum() + 1) / (len(draws) + 1))


def compare(ours, theirs, statistic=np.array):
  """Compares two systems.

  Args:
    ours, theirs: float [n, k], scores of the same documents.
    statistic: function of means [..., k] -> numbers to compare [..., m].

  Returns:
    List of m dicts: difference (ours - theirs), interval ([low, high] of the
    bootstrap's differences), p_randomisation.
  """
  means = [np.mean(scores, axis=0) for scores in (ours, theirs)]
  observed = statistic(means[0]) - statistic(means[1])
  drawn = bootstrap(np.concatenate([ours, theirs], axis=1))
  drawn = np.subtract(*map(statistic, np.split(drawn, 2, axis=1)))
  exchanged = exchange(ours, theirs, statistic)
  return [
      dict(
          difference=float(d),
          interval=list(interval(drawn[:, i], documents=len(ours))),
          p_randomisation=p_value(d, exchanged[:, i]),
      )
      for i, d in enumerate(observed)
  ]
