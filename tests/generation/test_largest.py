"""The largest numbers of long rows match jax.lax.top_k, also with ties."""

import re

import jax
import numpy as np
import pytest

from locost_jax.config import decode_settings
from locost_jax.generation import decode_limits
from tests.generation import test_decode


@pytest.mark.parametrize(
    'B, N, k',
    [(3, 1000, 5), (2, 16_000, 8), (1, 129, 1), (4, 300, 3), (4, 6, 6)],
)
@pytest.mark.parametrize('different', [2, 7, 10**6])
def test_top_k_matches_jax(B, N, k, different):
  """Also with repeated numbers, and with rows of -inf alone, or almost."""
  generator = np.random.default_rng(N)
  x = generator.integers(0, different, (B, N)).astype(np.float32)
  x[0, : N - k - 1] = x[1:2] = -np.inf
  numbers, places = jax.jit(decode_limits.top_k, static_argnums=1)(x, k)
  order = np.argsort(-x, axis=1, kind='stable')[:, :k]
  np.testing.assert_array_equal(places, order)
  np.testing.assert_array_equal(numbers, np.take_along_axis(x, order, 1))


def test_equal_numbers_in_different_blocks():
  """The largest number is in the last block, after equal smaller ones."""
  x = np.zeros((1, 10 * decode_limits.BLOCK), np.float32)
  x[0, [5, 900, 1200]] = 1, 1, 2
  x[0, 1201] = 1
  _, places = decode_limits.top_k(x, 4)
  assert places.tolist() == [[1200, 5, 900, 1201]]


def test_a_beam_search_sorts_no_whole_row():
  V, K = 4000, 4
  settings = decode_settings.Settings(max_length=6, num_beams=K)
  table = jax.ShapeDtypeStruct((2, 6, test_decode.MEMORIES, V), np.float32)
  program = test_decode.run.lower(settings, table).compile().as_text()
  rows = [
      int(size) for size in re.findall(r' = \(\w+\[2,(\d+)\].* sort\(', program)
  ]
  assert rows and max(rows) <= 2 * K * decode_limits.BLOCK < K * V
