"""BigBird-PEGASUS: its attention; test_transformers.py compares its results."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.models import bigbird_pegasus
from locost_jax.summarizing import reading
from tests.models import small

SMALL = small.FAMILIES['bigbird_pegasus']
documents = functools.partial(small.documents, length=29, pad=0)


def counts(L, W, r):
  """How often token s counts for token t, [L, L], loop by loop."""
  n = -(-L // W)
  found = np.zeros((n * W, n * W))
  for i in range(n):
    rows = slice(i * W, i * W + W)
    if i in (0, n - 1):
      found[rows] = 1
      continue
    for j in {0, i - 1, i, i + 1, n - 1}:
      found[rows, j * W : j * W + W] = 1
    for _ in range(r):
      found[rows, :W] += 1
  return found[:L, :L]


@pytest.mark.parametrize(
    'length, changes',
    [
        (29, {}),
        (28, dict(num_random_blocks=3, use_bias=True)),
        (15, {}),
        (27, dict(block_size=3, num_random_blocks=0)),
        (14, {}),  # full: too short
        (29, dict(attention='original_full')),
    ],
)
def test_attention(length, changes):
  """Next to a softmax over all pairs of tokens."""
  c = models.make_config(SMALL | changes)
  layer = bigbird_pegasus.EncoderLayer(c, jnp.float32)
  rng = np.random.default_rng(0)
  h = rng.normal(size=(2, length, 32)).astype(np.float32)
  mask = np.arange(length) < [[length], [length - 4]]
  init = functools.partial(layer.init, deterministic=True)
  shapes = jax.eval_shape(init, jax.random.key(0), h, mask)
  params = small.drawn(shapes, 0.2, is_like_new=True)
  attend = functools.partial(layer.apply, method='attend')
  got = jax.jit(attend, static_argnums=3)(params, h, mask, True)
  own = params['params']['self_attention']
  assert ('bias' in own['query']) == c.use_bias

  def project(name, x):
    return x @ own[name]['kernel'] + own[name].get('bias', 0)

  q, k, v = (
      project(name, h).reshape(2, length, 4, 8)
      for name in ('query', 'key', 'value')
  )
  is_full = c.attention == 'original_full' or length == 14
  times = counts(length, c.block_size, c.num_random_blocks)
  times = np.ones_like(times) if is_full else times
  scores = np.einsum('bthk,bshk->bhts', q, k) / math.sqrt(8)
  weights = np.exp(scores) * times * mask[:, None, None]
  weights /= weights.sum(-1, keepdims=True)
  want = np.einsum('bhts,bshk->bthk', weights, v).reshape(h.shape)
  want = project('output', want)
  np.testing.assert_allclose(got[mask], want[mask], 0, 2e-6)


def test_padding_changes_nothing_up_to_a_whole_block():
  """Further padding does, so summaries are made without it."""
  run = small.Runner(SMALL, 0.1, True)
  inputs, targets = documents(), small.tokens(7, 2, 5)
  want = run(inputs, targets)
  padded = lambda more: np.pad(inputs, ((0, 0), (0, more)))
  np.testing.assert_allclose(run(padded(1), targets), want, 0, 1e-5)
  assert np.abs(run(padded(2), targets) - want).max() > 1e-3
  lengths = lambda config: [
      reading.padded_length(config, length) for length in (5, 29, 30, 31, 40)
  ]
  config = models.make_config(SMALL)
  assert lengths(config) == [6, 30, 30, 32, 40]
  full = models.make_config(SMALL | dict(attention='original_full'))
  assert lengths(full) == [16, 32, 32, 32, 40]
