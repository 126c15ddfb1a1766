"""ops/copy_attention.py against its equation in numpy, token by token."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.ops import copy_attention
from tests import mesh_program

B, T, S, C, V = 3, 5, 300, 4, 20


@functools.cache
def arguments():
  """queries, keys, mask, tokens; the third document has no token."""
  rng = np.random.default_rng(0)
  queries = rng.normal(size=(B, T, C)).astype(np.float32)
  keys = rng.normal(size=(B, S, C)).astype(np.float32)
  mask = np.arange(S) < np.array([[S], [170], [0]])
  tokens = rng.integers(1, V - 2, (B, S))  # never the last two
  return queries, keys, mask, np.where(mask, tokens, 0)


@functools.cache
def targets():
  """Tokens of the vocabulary, the first document's last not in the input."""
  drawn = np.random.default_rng(1).integers(1, V - 2, (B, T))
  drawn[0, -1] = V - 1
  return drawn


def equation(queries, keys, mask, tokens):
  """c [B, T, V] and a [B, T, S], a loop over documents and targets."""
  c, a = np.zeros((B, T, V)), np.zeros((B, T, S))
  for b in range(B):
    for t in range(T):
      scores = keys[b].astype(float) @ queries[b, t].astype(float)
      read = mask[b] if mask[b].any() else np.ones(S, bool)
      # A document without tokens has equal weights, as in all attention here.
      scores = np.where(mask[b].any(), scores, 0)[read]
      a[b, t, read] = np.exp(scores) / np.exp(scores).sum()
      for s in range(S):
        c[b, t, tokens[b, s]] += a[b, t, s]
  return c, a


@pytest.mark.parametrize('piece', [None, S, 128, 37])
def test_all_tokens(piece):
  c, _ = equation(*arguments())
  found = copy_attention.of_all(*arguments(), V, piece)
  np.testing.assert_allclose(found, c, 0, 1e-6)


@pytest.mark.parametrize('piece', [None, S, 128, 37])
def test_targets(piece):
  c, a = equation(*arguments())
  found, largest = copy_attention.at_targets(*arguments(), targets(), piece)
  expected = np.take_along_axis(c, targets()[..., None], 2)[..., 0]
  np.testing.assert_allclose(np.exp(found), expected, 1e-5, 1e-9)
  assert found[0, -1] == np.finfo(np.float32).min  # and no nan
  np.testing.assert_allclose(np.exp(largest), a.max(-1), 1e-5)


def test_places():
  """The largest weight of each target's; one target is nowhere."""
  queries, keys, mask, tokens = arguments()
  own = np.array(targets())
  own[0, 0] = tokens.max() + 1
  place, weight = jax.jit(copy_attention.places)(*arguments(), own)
  scores = np.einsum(
      'btc,bsc->bts', *(np.asarray(x, float) for x in (queries, keys))
  )
  scores = np.where(mask[:, None], scores, np.finfo(float).min)
  a = np.exp(scores - scores.max(-1, keepdims=True))
  a /= a.sum(-1, keepdims=True)
  a = np.where(
      mask[:, None] & (np.asarray(tokens)[:, None] == own[..., None]), a, 0
  )
  np.testing.assert_allclose(weight, a.max(-1), 0, 1e-6)
  is_somewhere = a.max(-1) > 0
  assert not is_somewhere[0, 0] and is_somewhere.mean() > 0.5
  np.testing.assert_array_equal(
      np.asarray(place)[is_somewhere], a.argmax(-1)[is_somewhere]
  )


def test_the_place_of_a_target_without_weight():
  """Where it stands, not where a token like it is masked."""
  keys = np.array([[[0.0], [1e4], [0.0]]], np.float32)
  place, weight = copy_attention.places(
      np.ones((1, 1, 1), np.float32),
      keys,
      np.array([[False, True, True]]),
      np.array([[7, 8, 7]]),
      np.array([[7]]),
  )
  assert (place.item(), weight.item()) == (2, 0)


@pytest.mark.parametrize('piece', [S, 128, 37])
def test_gradients(piece):
  """Those of the equation, by jax.grad."""
  queries, keys, mask, tokens = arguments()
  factor = np.random.default_rng(2).normal(size=(B, T))
  factor[0, -1] = 0  # log 0
  is_target = tokens[:, None] == targets()[..., None]

  def plainly(queries, keys):
    scores = jnp.einsum('btc,bsc->bts', queries, keys)
    scores = jnp.where(mask[:, None], scores, jnp.finfo(scores.dtype).min)
    mass = jnp.where(is_target, jax.nn.softmax(scores), 0).sum(-1)
    return (factor * jnp.log(jnp.where(mass > 0, mass, 1))).sum()

  def in_pieces(queries, keys):
    log_mass, _ = copy_attention.at_targets(
        queries, keys, mask, tokens, targets(), piece
    )
    return (factor * jnp.where(log_mass > -1e9, log_mass, 0)).sum()

  found = jax.grad(in_pieces, (0, 1))(queries, keys)
  exact = jax.grad(plainly, (0, 1))(queries, keys)
  for one, other in zip(found, exact):
    assert abs(other).max() > 0.1
    np.testing.assert_allclose(one, other, 0, 2e-6)


def test_a_target_that_is_nowhere_has_no_gradient():
  queries, keys, mask, tokens = arguments()
  gradients = jax.grad(
      lambda *x: copy_attention.at_targets(
          *x, mask, tokens, np.full((B, T), V - 1)
      )[0].sum(),
      (0, 1),
  )(queries, keys)
  assert all((x == 0).all() for x in gradients)


def test_memory_of_a_long_input():
  """The loss of 128 targets over 256K tokens: scores of all are 128 MiB."""
  shapes = (1, 128, 64), (1, 1 << 18, 64)
  queries, keys = (jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
  mask = jax.ShapeDtypeStruct(shapes[1][:2], bool)
  tokens = jax.ShapeDtypeStruct(shapes[1][:2], jnp.int32)
  wanted = jax.ShapeDtypeStruct(shapes[0][:2], jnp.int32)

  def temporary(piece):
    def loss(queries, keys, *others):
      return copy_attention.at_targets(queries, keys, *others, piece)[0].sum()

    compiled = (
        jax.jit(jax.grad(loss, (0, 1)))
        .lower(queries, keys, mask, tokens, wanted)
        .compile()
    )
    return compiled.memory_analysis().temp_size_in_bytes

  # Besides the gradients, which are as large as the keys: 64 MiB.
  assert temporary(1 << 18) > 4 << 26  # the control: in one piece
  assert temporary(None) < 3 << 26


def test_eight_devices():
  for sizes, result in mesh_program.run(
      'copied', [(1, 1, 1, 1), (1, 1, 1, 8), (2, 2, 1, 2), (8, 1, 1, 1)]
  ):
    assert result['gathered'] == 0, sizes
    for name in 'all', 'targets', 'gradients':
      assert result[name] < 1e-6, (sizes, result)
