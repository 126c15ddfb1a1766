"""ops/copy_attention.py matches its equation in numpy, token by token."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.ops import copy_attention
from tests import mesh_program
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes

B, T, S, C, N, V = 3, 5, 300, 4, 3, 20


@functools.cache
def arguments():
  """Returns Queries and Source; the third document has no token."""
  rng = np.random.default_rng(0)
  mask = np.arange(S) < np.array([[S], [170], [0]])
  tokens = rng.integers(1, V - 2, (B, S))  # never the last two
  # Few different tokens, so that n-grams match; -1: no token before.
  queries = copy_attention.Queries(
      rng.normal(size=(B, T, C)).astype(np.float32),
      rng.normal(size=(B, T, N)).astype(np.float32),
      rng.integers(-1, 3, (B, T, N)),
  )
  source = copy_attention.Source(
      rng.normal(size=(B, S, C)).astype(np.float32),
      mask,
      np.where(mask, tokens, 0),
      rng.integers(-1, 3, (B, S, N)),
  )
  return queries, source


@functools.cache
def targets():
  """Returns targets; the last one of document 0 is not in the input."""
  drawn = np.random.default_rng(1).integers(1, V - 2, (B, T))
  drawn[0, -1] = V - 1
  return drawn


def equation(queries, source):
  """Returns c [B, T, V] and a [B, T, S], looping over documents and targets."""
  c, a = np.zeros((B, T, V)), np.zeros((B, T, S))
  (vectors, weights, written), (keys, mask, tokens, read_before) = (
      queries,
      source,
  )
  for b in range(B):
    for t in range(T):
      scores = keys[b].astype(float) @ vectors[b, t].astype(float)
      for s in range(S):
        for n in range(N):
          if written[b, t, n] < 0 or written[b, t, n] != read_before[b, s, n]:
            break
          scores[s] += weights[b, t, n]
      read = mask[b] if mask[b].any() else np.ones(S, bool)
      # A document without tokens gets equal weights, as in all attention here.
      scores = np.where(mask[b].any(), scores, 0)[read]
      a[b, t, read] = np.exp(scores) / np.exp(scores).sum()
      for s in range(S):
        c[b, t, tokens[b, s]] += a[b, t, s]
  return c, a


@pytest.mark.parametrize('piece', [None, S, 128, 37])
def test_all_tokens_and_targets(piece):
  c, a = equation(*arguments())
  found = jax.jit(
      functools.partial(copy_attention.of_all, vocab_size=V, piece=piece)
  )(*arguments())
  longest = np.cumprod(
      arguments()[0].before[:, :, None] == arguments()[1].before[:, None], -1
  ).all(-1)
  assert longest.any((1, 2)).all()
  np.testing.assert_allclose(found, c, 0, 1e-6)
  found, largest = copy_attention.at_targets(*arguments(), targets(), piece)
  expected = np.take_along_axis(c, targets()[..., None], 2)[..., 0]
  np.testing.assert_allclose(np.exp(found), expected, 1e-5, 1e-9)
  assert found[0, -1] == np.finfo(np.float32).min  # and no nan
  np.testing.assert_allclose(np.exp(largest), a.max(-1), 1e-5)


def test_positions_of_targets():
  """Finds the largest weight's position; one target is not in the input."""
  _, (_, mask, tokens, _) = arguments()
  own = np.array(targets())
  own[0, 0] = tokens.max() + 1
  place, weight = jax.jit(copy_attention.places)(*arguments(), own)
  _, a = equation(*arguments())
  a = np.where(
      mask[:, None] & (np.asarray(tokens)[:, None] == own[..., None]), a, 0
  )
  np.testing.assert_allclose(weight, a.max(-1), 0, 1e-6)
  is_somewhere = a.max(-1) > 0
  assert not is_somewhere[0, 0] and is_somewhere.mean() > 0.5
  np.testing.assert_array_equal(
      np.asarray(place)[is_somewhere], a.argmax(-1)[is_somewhere]
  )


def test_the_position_of_a_target_without_weight():
  """Its own position is found, not that of an equal token that is masked."""
  keys = np.array([[[0.0], [1e4], [0.0]]], np.float32)
  none = np.zeros((1, 1, 0)), np.zeros((1, 1, 0), int)
  place, weight = copy_attention.places(
      copy_attention.Queries(np.ones((1, 1, 1), np.float32), *none),
      copy_attention.Source(
          keys,
          np.array([[False, True, True]]),
          np.array([[7, 8, 7]]),
          np.zeros((1, 3, 0), int),
      ),
      np.array([[7]]),
  )
  assert (place.item(), weight.item()) == (2, 0)


@pytest.mark.parametrize('piece', [S, 128, 37])
def test_gradients(piece):
  """Against jax.grad of the equation; none of a target not in the input."""
  queries, source = arguments()
  factor = np.random.default_rng(2).normal(size=(B, T))
  is_target = source.tokens[:, None] == targets()[..., None]
  is_equal = queries.before[:, :, None] == source.before[:, None]
  is_equal &= source.before[:, None] >= 0
  matches = np.cumprod(is_equal, axis=-1)

  def plainly(vectors, weights, keys):
    scores = jnp.einsum('btc,bsc->bts', vectors, keys)
    scores += jnp.einsum('btn,btsn->bts', weights, matches)
    is_read = source.mask[:, None]
    scores = jnp.where(is_read, scores, jnp.finfo(scores.dtype).min)
    mass = jnp.where(is_target, jax.nn.softmax(scores), 0).sum(-1)
    return (factor * jnp.log(jnp.where(mass > 0, mass, 1))).sum()

  def in_pieces(vectors, weights, keys):
    log_mass, _ = copy_attention.at_targets(
        queries._replace(vectors=vectors, weights=weights),
        source._replace(keys=keys),
        targets(),
        piece,
    )
    return (factor * log_mass).sum()

  floats = queries.vectors, queries.weights, source.keys
  found, exact = (
      jax.jit(jax.grad(function, (0, 1, 2)))(*floats)
      for function in (in_pieces, plainly)
  )
  for one, other in zip(found, exact):
    assert abs(other).max() > 0.1
    np.testing.assert_allclose(one, other, 0, 2e-6)


def test_memory_of_a_long_input():
  """The loss of 128 targets over 256K tokens; all scores take 128 MiB."""
  T, S = 128, 1 << 18
  ids = functools.partial(shape, dtype=int)
  source = shape(1, S, dtype=bool), ids(1, S), ids(1, S, N)

  def temporary(piece):
    def loss(vectors, weights, keys, before, source, wanted):
      queries = copy_attention.Queries(vectors, weights, before)
      source = copy_attention.Source(keys, *source)
      return copy_attention.at_targets(queries, source, wanted, piece)[0].sum()

    floats = shape(1, T, 64), shape(1, T, N), shape(1, S, 64)
    return temporary_bytes(
        jax.grad(loss, (0, 1, 2)), *floats, ids(1, T, N), source, ids(1, T)
    )

  # Gradients are outputs (64 MiB, like the keys) and not counted here.
  assert temporary(1 << 18) > 4 << 26  # negative control: in one piece
  assert temporary(None) < 3 << 26


@pytest.mark.mesh
def test_eight_devices():
  for sizes, result in mesh_program.run(
      'copied', [(1, 1, 1, 1), (1, 1, 1, 8), (2, 2, 1, 2), (8, 1, 1, 1)]
  ):
    assert result['gathered'] == 0, sizes
    for name in 'all', 'targets', 'gradients':
      assert result[name] < 1e-6, (sizes, result)
