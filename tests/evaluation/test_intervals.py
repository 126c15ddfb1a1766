"""Confidence intervals match a plain loop and the normal distribution."""

import math

import numpy as np
import pytest

from locost_jax.evaluation.metrics import intervals


def test_bootstrap_equals_a_plain_loop():
  scores = [[1.0, 10.0], [2.0, 0.0], [6.0, 5.0], [7.0, 5.0]]
  draw, means = np.random.default_rng(3), []
  for _ in range(50):
    drawn = [scores[i] for i in draw.integers(4, size=4)]
    means.append([sum(column) / 4 for column in zip(*drawn)])
  found = intervals.bootstrap(scores, 50, seed=3)
  np.testing.assert_allclose(found, means, rtol=1e-12)


def test_width_matches_the_normal_distribution():
  """The mean of n independent scores varies by their spread / sqrt(n)."""
  scores = np.random.default_rng(0).normal(30, 5, size=(400, 1))
  low, high = intervals.interval(intervals.bootstrap(scores)[:, 0])
  expected = 2 * 1.96 * scores.std() / math.sqrt(400)
  assert high - low == pytest.approx(expected, rel=0.1)
  assert low < scores.mean() < high


def test_bootstrap_is_deterministic_and_constant_scores_have_no_width():
  scores = np.arange(12.0).reshape(6, 2)
  first, second = intervals.bootstrap(scores), intervals.bootstrap(scores)
  assert (first == second).all() and first.shape == (1000, 2)
  assert intervals.interval(intervals.bootstrap([[4.0]])[:, 0]) == (4.0, 4.0)


def test_intervals_of_few_documents_cover_the_mean():
  """Plain percentiles cover it 89.4% of the time, these 93.5%."""
  scores = np.random.default_rng(0).beta(2, 4, size=(10, 1000))
  covered = np.zeros(2)
  for means in intervals.bootstrap(scores).T:
    for i, documents in enumerate((None, 10)):
      low, high = intervals.interval(means, documents=documents)
      covered[i] += low <= 1 / 3 <= high
  assert covered[0] < 910 < 925 < covered[1] < 970


def test_percentiles():
  assert intervals.interval(np.arange(1001.0)) == (25.0, 975.0)
  assert intervals.interval(np.arange(1001.0), 90) == (50.0, 950.0)
