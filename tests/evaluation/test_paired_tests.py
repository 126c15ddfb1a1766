"""Significance tests and intervals match loops, enumeration, the normal."""

import itertools
import math

import numpy as np
import pytest

from locost_jax.evaluation.metrics import intervals

OURS = [[3.0, 10.0], [5.0, 0.0], [4.0, 30.0], [9.0, 20.0], [2.0, 0.0]]
THEIRS = [[1.0, 12.0], [6.0, 0.0], [1.0, 35.0], [5.0, 21.0], [2.0, 1.0]]


def column(rows, k):
  return [row[k] for row in rows]


def test_bootstrap_equals_a_plain_loop(monkeypatch):
  draw, expected = np.random.default_rng(0), []
  for _ in range(40):
    drawn = draw.integers(5, size=5)
    expected.append(
        [sum(OURS[i][k] - THEIRS[i][k] for i in drawn) / 5 for k in range(2)]
    )
  monkeypatch.setattr(intervals, 'RESAMPLES', 40)
  found = intervals.bootstrap(np.hstack([OURS, THEIRS]))
  np.testing.assert_allclose(found[:, :2] - found[:, 2:], expected, atol=1e-12)
  for k, compared in enumerate(intervals.compare(OURS, THEIRS)):
    low, high = intervals.interval(column(np.array(expected), k), 5)
    assert compared['interval'] == pytest.approx([low, high])


def test_exchange_equals_a_plain_loop(monkeypatch):
  draw, expected = np.random.default_rng(4), []
  for _ in range(40):
    coins, row = draw.integers(2, size=5), []
    for k in range(2):
      one, other = column(OURS, k), column(THEIRS, k)
      for i, coin in enumerate(coins):
        if coin:
          one[i], other[i] = other[i], one[i]
      row.append(sum(one) / 5 - sum(other) / 5)
    expected.append(row)
  monkeypatch.setattr(intervals, 'EXCHANGES', 40)
  monkeypatch.setattr(intervals, 'SEED', 4)
  found = intervals.exchange(OURS, THEIRS, np.array)
  np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize('k', [0, 1])
def test_p_equals_an_enumeration(k):
  """Enumerates all 2^5 exchanges."""
  by = [a - b for a, b in zip(column(OURS, k), column(THEIRS, k))]
  d = sum(by) / 5
  signed = [
      sum(s * x for s, x in zip(signs, by)) / 5
      for signs in itertools.product((1, -1), repeat=5)
  ]
  found = intervals.compare(OURS, THEIRS)[k]
  assert found['difference'] == pytest.approx(d)
  p = sum(abs(x) >= abs(d) - 1e-9 for x in signed) / len(signed)
  error = 4 * math.sqrt(p * (1 - p) / 10_000) + 2 / 10_000
  assert found['p_randomisation'] == pytest.approx(p, abs=error)


def test_p_counts_the_observed_difference_too():
  assert intervals.p_value(2, np.array([-2.0, 1, 3, 0])) == 3 / 5
  assert intervals.p_value(0, np.array([-2.0, 0])) == 1


def test_the_statistic_is_applied_to_means():
  """It is not a mean of statistics; both systems share each resample."""
  root = lambda means: np.sqrt(means[..., :1] * means[..., 1:])
  (found,) = intervals.compare(OURS, THEIRS, root)
  mean = lambda rows: math.sqrt(
      sum(column(rows, 0)) / 5 * (sum(column(rows, 1)) / 5)
  )
  assert found['difference'] == pytest.approx(mean(OURS) - mean(THEIRS))
  low, high = found['interval']
  assert low < found['difference'] < high
  (same,) = intervals.compare(OURS, OURS, root)
  assert same['interval'] == [0, 0]


# --- Confidence intervals --------------------------------------------------------


def test_intervals_of_few_documents_cover_the_mean():
  """Plain percentiles cover it 89.4% of the time, these 93.5%."""
  scores = np.random.default_rng(0).beta(2, 4, size=(10, 1000))
  covered = np.zeros(2)
  for means in intervals.bootstrap(scores).T:
    for i, documents in enumerate((1, 10)):
      low, high = intervals.interval(means, documents)
      covered[i] += low <= 1 / 3 <= high
  assert covered[0] < 910 < 925 < covered[1] < 970


def test_percentiles():
  assert intervals.interval(np.arange(1001.0), 1) == (25.0, 975.0)
