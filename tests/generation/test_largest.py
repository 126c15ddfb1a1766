"""The largest numbers of long rows: as jax.lax.top_k, also of equal ones."""

import jax
import numpy as np
import pytest

from locost_jax.generation import largest


@pytest.mark.parametrize('B, N, k', [(3, 1000, 5), (2, 16_000, 8), (1, 129, 1)])
@pytest.mark.parametrize('different', [2, 7, 10**6])
def test_as_sorted(B, N, k, different):
  """With numbers that come again and again, and rows of nearly all -inf."""
  generator = np.random.default_rng(N)
  x = generator.integers(0, different, (B, N)).astype(np.float32)
  x[0, : N - k - 1] = -np.inf
  numbers, places = jax.jit(largest.top_k, static_argnums=1)(x, k)
  order = np.argsort(-x, axis=1, kind='stable')[:, :k]
  np.testing.assert_array_equal(places, order)
  np.testing.assert_array_equal(numbers, np.take_along_axis(x, order, 1))


def test_rows_of_nothing():
  x = np.full((2, 700), -np.inf, np.float32)
  numbers, places = largest.top_k(x, 4)
  assert np.isneginf(numbers).all()
  assert places.tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize('N, k', [(6, 6), (300, 3), (128, 1)])
def test_few_numbers(N, k):
  x = np.random.default_rng(0).standard_normal((4, N)).astype(np.float32)
  for found, expected in zip(largest.top_k(x, k), jax.lax.top_k(x, k)):
    np.testing.assert_array_equal(found, expected)


def test_what_a_loop_computes_is_small():
  """Its program sorts a few blocks and never a row."""
  x = np.zeros((50, 16_000), np.float32)

  def loop(x):
    body = lambda i, y: y + largest.top_k(x + i, 8)[0]
    return jax.lax.fori_loop(0, 3, body, x[:, :8])

  text = jax.jit(loop).lower(x).compile().as_text()
  assert 'sort' in text or 'TopK' in text or 'topk' in text
  for line in text.split('\n'):
    if ' sort(' in line:
      assert '[50,16000]' not in line
