"""The copy distribution: attention over the input, summed by token.

With the input's tokens x[s], the targets y[t], queries q[t] and keys k[s]:

  m[t, s] = sum over n = 1..N of w[t, n] [x[s-n..s-1] = y[t-n..t-1]]
  a[t, s] = softmax over s of q[t] . k[s] + m[t, s]
  c[t](v) = sum over s with x[s] = v of a[t, s]

m is added at positions that continue the target: the n tokens before them are
the last n of the target, as in the n-gram heads of Akyurek et al. 2024. With
N = 0, m is 0.

A loss needs only c[t](target): `at_targets` computes it one piece of the input
at a time, without arrays as large as the vocabulary. A decoding step needs c of
all tokens: `of_all` scatters the weights once. `places` finds the targets in
the input.

Scores as in `long_attention`: without 1/sqrt(C), float32 at least, the lowest
finite one where the mask is false. On a mesh each device has its part of the
batch and of the input, and the sums of the parts are combined.

Axes: B batch, T targets, S input tokens, C width of queries and keys, N longest
n-gram, V vocabulary.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces

_WRITTEN = P(mesh_lib.ROWS)
_READ = P(mesh_lib.ROWS, mesh_lib.SEQUENCE)
# A target below this fraction of the largest weight counts as missing from the
# input, so that 1 / weight is finite.
_LEAST = 1e-30


class Queries(NamedTuple):
  """The targets' side of the attention; None in a cotangent."""

  vectors: jax.Array  # q [B, T, C]
  weights: jax.Array  # w [B, T, N]
  before: jax.Array | None  # int [B, T, N], y[t-1], y[t-2], ...; -1: no token


class Source(NamedTuple):
  """The input's side of the attention; None in a cotangent."""

  keys: jax.Array  # k [B, S, C]
  mask: jax.Array | None  # bool [B, S], true at tokens that may be copied
  tokens: jax.Array | None  # int [B, S], the input
  before: jax.Array | None  # int [B, S, N], x[s-1], x[s-2], ...; -1: no token


def at_targets(queries, source, targets, piece=None):
  """Returns log c[t](target) and the largest weight. Differentiable.

  The backward pass keeps the arguments and three numbers per target.

  Args:
    targets: int [B, T].
    piece: input tokens at a time; None: up to long_attention.PIECE_BYTES.

  Returns:
    log c [B, T], the lowest finite number if the target is not in the input;
    and the largest log a[t, s] of each t, [B, T], without a gradient.
  """

  def of_part(queries, source, targets) -> Any:
    size = min(source.keys.shape[1], piece or _piece_length(targets))
    return _at_targets(size, mesh_lib.length_axis(), queries, source, targets)

  log_mass, log_largest = mesh_lib.on_mesh(
      of_part,
      (_WRITTEN, _READ, _WRITTEN),
      (_WRITTEN, _WRITTEN),
      queries,
      source,
      targets,
  )
  return log_mass, jax.lax.stop_gradient(log_largest)


def of_all(queries, source, vocab_size, piece=None):
  """Returns c of every token. Not meant to be differentiated.

  [B, T, V], float32 at least, whose rows sum to 1; V is vocab_size.
  """

  def of_part(queries, source):
    B, T, _ = queries.vectors.shape
    S = source.keys.shape[1]
    size = min(S, piece or _piece_length(queries.vectors))
    precise = jnp.promote_types(queries.vectors.dtype, jnp.float32)

    def add(part, carry):
      return _Sums.add(carry, _scores(part, queries, source))

    def scatter(part, c):
      scores = _scores(part, queries, source)
      weights = jnp.exp(scores - sums.m[..., None]) / sums.total[..., None]
      weights = weights.swapaxes(1, 2)
      tokens = part.take(source.tokens, 1)
      return c.at[jnp.arange(B)[:, None], tokens].add(weights)

    sums = pieces.over(S, size, add, _Sums.of_nothing(B, T, precise))
    along = mesh_lib.length_axis()
    sums = sums.joined(along)
    c = pieces.over(S, size, scatter, jnp.zeros((B, vocab_size, T), precise))
    if along is not None and mesh_lib.is_on_mesh():
      c = jax.lax.psum(c, along)
    return c.swapaxes(1, 2)

  return mesh_lib.on_mesh(of_part, (_WRITTEN, _READ), _WRITTEN, queries, source)


def places(queries, source, targets):
  """Returns where the targets are in the input, and their attention.

  One target at a time, so that the weights [T, S] never exist.

  Returns:
    int [B, T], the s with the largest a[t, s] among those where x[s] is the
    target (the first of equals); and that a[t, s], [B, T], 0 if the target is
    not in the input.
  """
  precise = jnp.promote_types(queries.vectors.dtype, jnp.float32)

  def of_one(written):
    query, target = written
    scores = jnp.einsum(
        'bc,bsc->bs', query.vectors, source.keys, preferred_element_type=precise
    )
    one = jax.tree.map(lambda x: x[:, None], query)
    scores += _of_matches(one.weights, one.before, source.before)[:, 0]
    weights = jax.nn.softmax(scores, where=source.mask)
    is_target = source.mask & (source.tokens == target[:, None])
    found = jnp.where(is_target, weights, 0)
    # A target whose weights are all 0 still has a place.
    place = jnp.argmax(jnp.where(is_target, found, -1), axis=-1)
    return place, found.max(-1)

  by_target = jax.tree.map(lambda x: x.swapaxes(0, 1), (queries, targets))
  return jax.tree.map(jnp.transpose, jax.lax.map(of_one, by_target))


class _Sums(NamedTuple):
  """Sums over the input so far, [B, T] each."""

  m: jax.Array  # the highest score
  total: jax.Array  # of exp(score - m)
  equal: jax.Array  # the part of the total where the token is the target

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
    """The sums over all devices along a mesh axis; None: this device's."""
    return _Sums(*long_attention.join(along, *self))


def _piece_length(written):
  B, T = written.shape[:2]
  return max(128, long_attention.PIECE_BYTES // (4 * B * T) // 128 * 128)


def _scores(piece, queries, source):
  """Scores of one piece plus m, [B, T, size]."""
  own = piece.take(source.mask, 1), piece.is_new
  mask, is_new = pieces.tie(own, queries.vectors)
  scores = long_attention.masked_scores(
      queries.vectors[:, :, None],
      piece.take(source.keys, 1)[:, :, None],
      mask,
      is_new,
  )[:, 0]
  before = piece.take(source.before, 1)
  matches = _of_matches(queries.weights, queries.before, before)
  return scores + jnp.where(mask[:, None], matches, 0)


def _of_matches(weights, written, read):
  """m [B, T, S] from w [B, T, N] and `before` [B, T, N] and [B, S, N]."""
  B, T, _ = written.shape
  precise = jnp.promote_types(weights.dtype, jnp.float32)
  m = jnp.zeros((B, T, read.shape[1]), precise)
  for n, is_equal in enumerate(_matches(written, read)):
    m += jnp.where(is_equal, weights[:, :, None, n], 0)
  return m


def _matches(written, read):
  """Yields bool [B, T, S] for n = 1..N: whether the n tokens before are equal."""
  is_equal = True
  for n in range(written.shape[-1]):
    one, other = written[:, :, None, n], read[:, None, :, n]
    is_equal &= (one == other) & (one >= 0)
    yield is_equal


def _is_target(piece, tokens, targets):
  """bool [B, T, size]."""
  return piece.take(tokens, 1)[:, None] == targets[..., None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _at_targets(size, along, queries, source, targets):
  return _forward(size, along, queries, source, targets)[0]


def _forward(size, along, queries, source, targets):
  """Returns the result and what the backward pass needs."""
  (B, T), S = targets.shape, source.keys.shape[1]
  precise = jnp.promote_types(queries.vectors.dtype, jnp.float32)

  def add(piece, sums):
    return sums.add(
        _scores(piece, queries, source),
        _is_target(piece, source.tokens, targets),
    )

  sums = pieces.over(S, size, add, _Sums.of_nothing(B, T, precise))
  sums = sums.joined(along)
  log_total = jnp.log(sums.total)
  log_mass = jnp.where(
      sums.equal > _LEAST,
      jnp.log(jnp.maximum(sums.equal, _LEAST)) - log_total,
      jnp.finfo(precise).min,
  )
  return (log_mass, -log_total), (queries, source, targets, sums)


def _backward(size, along, kept, gradients):
  """d_score = d (a [x = target] / c - a), where the input has the target."""
  del along  # the sums are those of all tokens
  queries, source, targets, sums = kept
  d = jnp.where(sums.equal > _LEAST, gradients[0], 0)[..., None]
  total = sums.total[..., None]
  equal = jnp.maximum(sums.equal, _LEAST)[..., None]
  precise, dtype = total.dtype, queries.vectors.dtype
  product = functools.partial(jnp.einsum, preferred_element_type=precise)

  def add(piece, carry):
    d_queries, d_weights, d_keys = carry
    scores = _scores(piece, queries, source)
    weights = jnp.exp(scores - sums.m[..., None])
    is_target = _is_target(piece, source.tokens, targets)
    d_scores = d * weights * (jnp.where(is_target, 1 / equal, 0) - 1 / total)
    # A masked score is a constant.
    d_scores = jnp.where(piece.take(source.mask, 1)[:, None], d_scores, 0)
    before = piece.take(source.before, 1)
    for n, is_equal in enumerate(_matches(queries.before, before)):
      of_n = jnp.where(is_equal, d_scores, 0).sum(-1)
      d_weights = d_weights.at[..., n].add(of_n)
    d_scores = d_scores.astype(dtype)
    part = product('bts,btc->bsc', d_scores, queries.vectors)
    keys = piece.take(source.keys, 1)
    return (
        d_queries + product('bts,bsc->btc', d_scores, keys),
        d_weights,
        piece.put(d_keys, piece.take(d_keys, 1) + part.astype(dtype), 1),
    )

  zeros = (
      jnp.zeros_like(queries.vectors, precise),
      jnp.zeros_like(queries.weights, precise),
      jnp.zeros_like(source.keys),
  )
  d_queries, d_weights, d_keys = pieces.over(
      source.keys.shape[1], size, add, zeros
  )
  return (
      Queries(
          d_queries.astype(dtype), d_weights.astype(queries.weights.dtype), None
      ),
      Source(d_keys, None, None, None),
      None,
  )


_at_targets.defvjp(_forward, _backward)
