"""The sliding window in blocks matches scores of all pairs with a mask."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.ops import local_attention
from locost_jax.ops import long_attention
from tests.ops.compiled import assert_same
from tests.ops.compiled import gradients_and_value

G = 2


def example(L, B=3, H=2, K=4):
  """Returns queries, keys, values, further keys and values, and a mask."""
  rng = np.random.default_rng(L)
  arrays = (rng.normal(size=(B, n, H, K)) for n in (L, L, L, G, G))
  kept = rng.random((B, L)) < 0.8
  kept[:, 0] = True
  return *map(jnp.asarray, arrays), jnp.asarray(kept)


def exists(B):
  """The further keys of each document: none, one, two."""
  return jnp.arange(G) < jnp.arange(B)[:, None]


def in_blocks(queries, keys, values, more_keys, more_values, mask, W, radius):
  """radius None: a query reads its own block alone."""
  own = more_keys, more_values, exists(queries.shape[0])
  sides = 0 if radius is None else -(-radius // W)
  radius = jnp.asarray(W if radius is None else radius)
  further = local_attention.Further(*own)
  window = local_attention.Window(W, radius, 3 * W + G, None, further, sides)
  return local_attention.in_blocks(queries, keys, values, mask, window)


def all_pairs(queries, keys, values, more_keys, more_values, mask, W, radius):
  B, L = mask.shape
  place = np.arange(L) // W if radius is None else np.arange(L)
  near = mask[:, None] & (abs(place - place[:, None]) <= (radius or 0))
  more = jnp.broadcast_to(exists(B)[:, None], (B, L, G))
  seen = jnp.concatenate([near, more], 2)[:, None]
  keys = jnp.concatenate([keys, more_keys], 1)
  scores = jnp.einsum('bthk,bshk->bhts', queries, keys)
  weights = jax.nn.softmax(jnp.where(seen, scores, -1e30))
  values = jnp.concatenate([values, more_values], 1)
  context = jnp.einsum('bhts,bshk->bthk', weights, values)
  # What a query without any key reads is not defined.
  return jnp.where(seen.any(-1)[:, 0, :, None, None], context, 0)


@pytest.mark.parametrize('piece_bytes', (1, 16000, 1 << 20))
@pytest.mark.parametrize(
    'L,W,radius',
    (
        *((1, 4, 4), (3, 4, 3), (13, 3, 3), (24, 4, 2), (29, 2, 5)),
        *((3, 4, None), (13, 3, None), (24, 4, None)),
    ),
)
def test_blocks_match_all_pairs(L, W, radius, piece_bytes, monkeypatch):
  """Values and gradients; the radius of a layer may be traced."""
  monkeypatch.setattr(long_attention, 'PIECE_BYTES', piece_bytes)
  gradients = functools.partial(gradients_and_value, argnums=tuple(range(5)))
  with jax.enable_x64(True):
    *arrays, mask = example(L)
    sees = all_pairs(*jax.tree.map(jnp.ones_like, arrays), mask, W, radius) != 0

    def blocks(*given):
      return jnp.where(sees, in_blocks(*given, W, radius), 0)

    want = gradients(lambda *given: all_pairs(*given, W, radius), *arrays, mask)
    assert_same(gradients(blocks, *arrays, mask), want, 1e-12)
