"""Whether two systems differ by more than chance, on the same documents.

Both tests are two-sided, and count the observed difference d as one draw more,
so that p is never 0 (Phipson & Smyth 2010):

  p = (draws at least as far from 0 as d + 1) / (draws + 1)

- Paired bootstrap: n of the n documents are drawn with replacement, the same
  for both systems. The differences of the draws, less d, show how far chance
  moves a difference (Riezler & Maxwell 2005, figure 2).
- Approximate randomisation: if the systems were equal, it would not matter
  which of them wrote which summary. For each document the two scores are
  exchanged or not, by the toss of a coin (Noreen 1989; the same, figure 1).
"""

import numpy as np

from locost_jax.evaluation.metrics import intervals

EXCHANGES = 10_000
_ROUNDING = 1e-9  # of a sum of scores, far below any difference of F1 x 100


def bootstrap(ours, theirs, statistic=np.array, resamples=intervals.RESAMPLES):
  """Returns differences of resampled documents.

  Args:
    ours: float [n, k], the scores of one system, a row for each document.
    theirs: float [n, k], those of the other on the same documents.
    statistic: [..., k] means -> [..., m] numbers that are compared.
    resamples: how many times n documents are drawn.

  Returns:
    float [resamples, m].
  """
  both = np.concatenate([ours, theirs], axis=1)
  ours, theirs = np.split(intervals.bootstrap(both, resamples), 2, axis=1)
  return statistic(ours) - statistic(theirs)


def exchange(
    ours, theirs, statistic=np.array, exchanges=EXCHANGES, seed=intervals.SEED
):
  """Returns differences after exchanging scores at random.

  Args:
    ours, theirs, statistic: as in `bootstrap`.
    exchanges: how many times all coins are tossed.
    seed: of the coins.

  Returns:
    float [exchanges, m].
  """
  ours, theirs = (np.asarray(x, np.float64) for x in (ours, theirs))
  draw, n = np.random.default_rng(seed), len(ours)
  moved = np.stack(
      [draw.integers(2, size=n) @ (ours - theirs) for _ in range(exchanges)]
  )
  return statistic(ours.mean(axis=0) - moved / n) - statistic(
      theirs.mean(axis=0) + moved / n
  )


def p_value(observed, draws):
  """Returns the share of draws that are at least as far from 0.

  Args:
    observed: the difference.
    draws: float [r], differences if there were none but by chance.
  """
  extreme = np.abs(draws) >= abs(observed) - _ROUNDING
  return float((extreme.sum() + 1) / (len(draws) + 1))


def compare(ours, theirs, statistic=np.array):
  """Compares two systems by both tests.

  Args:
    ours, theirs, statistic: as in `bootstrap`.

  Returns:
    List of m dicts: difference (ours - theirs), interval ([low, high] of the
    bootstrap's differences), p_bootstrap, p_randomisation.
  """
  means = [np.mean(scores, axis=0) for scores in (ours, theirs)]
  observed = statistic(means[0]) - statistic(means[1])
  drawn = bootstrap(ours, theirs, statistic)
  exchanged = exchange(ours, theirs, statistic)
  return [
      dict(
          difference=float(d),
          interval=list(intervals.interval(drawn[:, i])),
          p_bootstrap=p_value(d, drawn[:, i] - d),
          p_randomisation=p_value(d, exchanged[:, i]),
      )
      for i, d in enumerate(observed)
  ]
