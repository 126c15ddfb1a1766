"""Attention over the input, summed by token: the distribution that is copied.

With the input's tokens x[s], queries q[t] and keys k[s]:

  a[t, s] = softmax over s of q[t] . k[s]
  c[t](v) = sum over s with x[s] = v of a[t, s]

A loss needs only c[t](target): `at_targets` computes it with the scores of one
piece of the input at a time and makes nothing as large as the vocabulary. A
decoding step needs c of all tokens: `of_all` scatters the weights once. `places` says
where in the input the target was found.

Scores as in `long_attention`: without 1/sqrt(C), float32 at least, the lowest
finite one where the mask is false. On a mesh each device has its part of the
batch and of the input, and the sums of the parts are put together.

Axes: B batch, T targets, S input tokens, C width of queries and keys, V
vocabulary.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces

_WRITTEN = P(mesh_lib.ROWS)
_READ = P(mesh_lib.ROWS, mesh_lib.SEQUENCE)
# Below this part of the largest weight the input does not have the target: its
# inverse must be a finite number.
_LEAST = 1e-30


def at_targets(queries, keys, mask, tokens, targets, piece=None):
  """Returns log c[t](target) and the largest weight. Differentiable.

  Kept for the backward pass: the arguments, and three numbers per target.

  Args:
    queries: [B, T, C].
    keys: [B, S, C].
    mask: bool [B, S], true at tokens that may be copied.
    tokens: int [B, S], the input.
    targets: int [B, T].
    piece: input tokens at a time; None: what long_attention.PIECE_BYTES allow.

  Returns:
    log c [B, T], the lowest finite number where the input does not have the
    target; and the largest log a[t, s] of each t, [B, T], without a gradient.
  """

  def of_part(queries, keys, mask, tokens, targets):
    size = min(keys.shape[1], piece or _piece_length(queries))
    return _at_targets(
        size, mesh_lib.length_axis(), queries, keys, mask, tokens, targets
    )

  log_mass, log_largest = mesh_lib.on_mesh(
      of_part,
      (_WRITTEN, _READ, _READ, _READ, _WRITTEN),
      (_WRITTEN, _WRITTEN),
      queries,
      keys,
      mask,
      tokens,
      targets,
  )
  return log_mass, jax.lax.stop_gradient(log_largest)


def of_all(queries, keys, mask, tokens, vocab_size, piece=None):
  """Returns c of every token. Not made to be differentiated.

  Args:
    queries, keys, mask, tokens, piece: see `at_targets`.
    vocab_size: V.

  Returns:
    [B, T, V], float32 at least; rows sum to 1.
  """

  def of_part(queries, keys, mask, tokens):
    B, T, _ = queries.shape
    S = keys.shape[1]
    size = min(S, piece or _piece_length(queries))
    precise = jnp.promote_types(queries.dtype, jnp.float32)

    def add(part, carry):
      return _Sums.add(carry, _scores(part, queries, keys, mask))

    def scatter(part, c):
      scores = _scores(part, queries, keys, mask)
      weights = jnp.exp(scores - sums.m[..., None]) / sums.total[..., None]
      weights = weights.swapaxes(1, 2)
      return c.at[jnp.arange(B)[:, None], part.take(tokens, 1)].add(weights)

    sums = pieces.over(S, size, add, _Sums.of_nothing(B, T, precise))
    sums = sums.joined(mesh_lib.length_axis())
    c = pieces.over(S, size, scatter, jnp.zeros((B, vocab_size, T), precise))
    c = _sum_over(mesh_lib.length_axis(), c)
    return c.swapaxes(1, 2)

  return mesh_lib.on_mesh(
      of_part,
      (_WRITTEN, _READ, _READ, _READ),
      _WRITTEN,
      queries,
      keys,
      mask,
      tokens,
  )


def places(queries, keys, mask, tokens, targets):
  """Returns where in the input the targets stand, and how much they weigh.

  One target at a time, so that no weights [T, S] are made.

  Args:
    queries, keys, mask, tokens, targets: see `at_targets`.

  Returns:
    int [B, T]: of the s where x[s] is the target, that with the largest
    a[t, s], the first of equals; and that a[t, s], [B, T], 0 where the input
    does not have the target.
  """

  precise = jnp.promote_types(queries.dtype, jnp.float32)

  def of_one(written):
    query, target = written
    scores = jnp.einsum(
        'bc,bsc->bs', query, keys, preferred_element_type=precise
    )
    weights = jax.nn.softmax(scores, where=mask)
    is_target = mask & (tokens == target[:, None])
    found = jnp.where(is_target, weights, 0)
    # A target whose weights are all 0 still stands somewhere.
    place = jnp.argmax(jnp.where(is_target, found, -1), axis=-1)
    return place, found.max(-1)

  found = jax.lax.map(of_one, (queries.swapaxes(0, 1), targets.T))
  return jax.tree.map(jnp.transpose, found)


class _Sums(NamedTuple):
  """Sums over the input so far, [B, T] each.

  m: the highest score.
  total: of exp(score - m).
  equal: the part of the total where the token is the target.
  """

  m: jax.Array
  total: jax.Array
  equal: jax.Array

  @classmethod
  def of_nothing(cls, B, T, dtype):
    zeros = jnp.zeros((B, T), dtype)
    return cls(jnp.full((B, T), jnp.finfo(dtype).min, dtype), zeros, zeros)

  def add(self, scores, is_target=False):
    """scores [B, T, S] of further tokens, is_target bool [B, T, S]."""
    m = jnp.maximum(self.m, scores.max(-1))
    weights, old = jnp.exp(scores - m[..., None]), jnp.exp(self.m - m)
    equal = jnp.where(is_target, weights, 0)
    return _Sums(
        m, self.total * old + weights.sum(-1), self.equal * old + equal.sum(-1)
    )

  def joined(self, along):
    """The sums over the tokens of all devices along a mesh axis, or None."""
    if along is None or not mesh_lib.is_on_mesh():
      return self
    m = jax.lax.pmax(self.m, along)
    own = jnp.exp(self.m - m)
    return _Sums(
        m,
        _sum_over(along, self.total * own),
        _sum_over(along, self.equal * own),
    )


def _sum_over(along, x):
  """The sum over the devices along a mesh axis, or None."""
  if along is None or not mesh_lib.is_on_mesh():
    return x
  return jax.lax.psum(x, along)


def _piece_length(queries):
  B, T, _ = queries.shape
  return max(128, long_attention.PIECE_BYTES // (4 * B * T) // 128 * 128)


def _scores(piece, queries, keys, mask):
  """[B, T, size]: of one piece, as `long_attention.masked_scores`."""
  own, fresh = pieces.tie((piece.take(mask, 1), piece.fresh), queries)
  return long_attention.masked_scores(
      queries[:, :, None], piece.take(keys, 1)[:, :, None], own, fresh
  )[:, 0]


def _is_target(piece, tokens, targets):
  """bool [B, T, size]."""
  return piece.take(tokens, 1)[:, None] == targets[..., None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _at_targets(size, along, queries, keys, mask, tokens, targets):
  return _forward(size, along, queries, keys, mask, tokens, targets)[0]


def _forward(size, along, queries, keys, mask, tokens, targets):
  """Returns the result and what the backward pass needs."""
  (B, T, _), S = queries.shape, keys.shape[1]
  precise = jnp.promote_types(queries.dtype, jnp.float32)

  def add(piece, sums):
    return sums.add(
        _scores(piece, queries, keys, mask), _is_target(piece, tokens, targets)
    )

  sums = pieces.over(S, size, add, _Sums.of_nothing(B, T, precise))
  sums = sums.joined(along)
  log_total = jnp.log(sums.total)
  log_mass = jnp.where(
      sums.equal > _LEAST,
      jnp.log(jnp.maximum(sums.equal, _LEAST)) - log_total,
      jnp.finfo(precise).min,
  )
  kept = queries, keys, mask, tokens, targets, sums
  return (log_mass, -log_total), kept


def _backward(size, along, kept, gradients):
  """d_score = d (a [x = target] / c - a), where the input has the target."""
  del along  # the sums are those of all tokens
  queries, keys, mask, tokens, targets, sums = kept
  d = jnp.where(sums.equal > _LEAST, gradients[0], 0)[..., None]
  total = sums.total[..., None]
  equal = jnp.maximum(sums.equal, _LEAST)[..., None]
  precise, dtype = total.dtype, queries.dtype
  product = functools.partial(jnp.einsum, preferred_element_type=precise)

  def add(piece, carry):
    d_queries, d_keys = carry
    scores = _scores(piece, queries, keys, mask)
    weights = jnp.exp(scores - sums.m[..., None])
    is_target = _is_target(piece, tokens, targets)
    d_scores = d * weights * (jnp.where(is_target, 1 / equal, 0) - 1 / total)
    # A masked score is a constant.
    d_scores = jnp.where(piece.take(mask, 1)[:, None], d_scores, 0)
    d_scores = d_scores.astype(dtype)
    part = product('bts,btc->bsc', d_scores, queries)
    return (
        d_queries + product('bts,bsc->btc', d_scores, piece.take(keys, 1)),
        piece.put(d_keys, piece.take(d_keys, 1) + part.astype(dtype), 1),
    )

  zeros = jnp.zeros_like(queries, precise), jnp.zeros_like(keys)
  d_queries, d_keys = pieces.over(keys.shape[1], size, add, zeros)
  return d_queries.astype(dtype), d_keys, None, None, None


_at_targets.defvjp(_forward, _backward)
