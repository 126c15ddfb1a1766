"""Groups of documents between powers of two, and their scores."""

import pytest

from locost_jax.evaluation import by_length
from tests.evaluation.test_rouge import rouge


def row(tokens, prediction='a b'):
  return dict(prediction=prediction, reference='a b', tokens_kept=tokens)


def test_groups_end_at_powers_of_two():
  rows = [row(n) for n in (1, 2, 3, 4, 5, 8, 9, 1024, 1025)]
  found = [
      (low, high, [row['tokens_kept'] for row in group])
      for low, high, group in by_length.group(rows)
  ]
  assert found == [
      (1, 1, [1]),
      (2, 2, [2]),
      (3, 4, [3, 4]),
      (5, 8, [5, 8]),
      (9, 16, [9]),
      (513, 1024, [1024]),
      (1025, 2048, [1025]),
  ]
  for low, high, lengths in found:  # the definition
    assert all(low <= n <= high for n in lengths)


def test_scores_equal_those_of_single_groups():
  rows = [row(10), row(12, 'a'), row(100, 'c'), row(16, 'b a')]
  short, long = by_length.score(rows, ('loss', 'rouge'))
  assert short[:3] == (9, 16, 3) and long[:3] == (65, 128, 1)
  expected = rouge(['a b', 'a', 'b a'], ['a b'] * 3)
  assert short[3] == pytest.approx(expected)
  assert long[3]['rouge1'] == 0 < short[3]['rouge1'] < 100
