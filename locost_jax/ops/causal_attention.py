"""Causal self-attention over long targets, in pieces of both axes.

Query i attends to keys j <= i, so pairs of pieces above the diagonal are
skipped. The running softmax is `long_attention`'s; the backward pass recomputes
the weights from its maximum and sum.

The bias depends on the distance alone. A pair of pieces needs 2 * size - 1 of
its values, as a Toeplitz matrix M[q, k] = line[q - k + columns - 1]: copies of
the line are read with a row length that is one too large. The gradient sums
the diagonals.

Scores are q . k without 1/sqrt(K), float32 at least.

Axes: B batch, T targets, H heads, K head width.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np

from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces


def is_long(T):
  """Whether T targets use `in_pieces` instead of the plain form."""
  return T * T >= long_attention.LONG


def piece_length(B, H):
  """Queries (and keys) in a piece: a power of two from 128 to 1024."""
  size = 1024
  while size > 128 and 4 * B * H * size**2 > long_attention.PIECE_BYTES:
    size //= 2
  return size


def in_pieces(
    queries, keys, values, bias, dropout_rate=0.0, key=None, size=None
):
  """Causal attention with scores of one pair of pieces at a time.

  The backward pass keeps the arguments, the result, m and l.

  Args:
    queries, keys, values: [B, T, H, K], like the result.
    bias: [H, T], added to scores, by the distance back to the key.
    dropout_rate: of the weights. Pair n of the lower triangle, counted row by
      row, draws its factors from fold_in(key, n).
    size: of a piece; None: `piece_length`.
  """

  def of_part(queries, keys, values, bias, key):
    B, T, H, _ = queries.shape
    length = min(T, size or piece_length(B, H))
    # The padding comes after all tokens, so no token attends to it.
    padding = -T % length
    queries, keys, values = (
        jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0)))
        for x in (queries, keys, values)
    )
    # In front: the distances to later keys, in pieces on the diagonal.
    bias = jnp.pad(bias, ((0, 0), (length - 1, padding)))
    own = mesh_lib.own_key(key, *mesh_lib.ROWS, mesh_lib.TENSOR)
    out: Any = _in_pieces(
        length, float(dropout_rate), queries, keys, values, bias, own
    )
    return out[:, :T]

  heads = P(mesh_lib.ROWS, None, mesh_lib.TENSOR)
  return mesh_lib.on_mesh(
      of_part,
      (heads, heads, heads, P(mesh_lib.TENSOR), P()),
      heads,
      queries,
      keys,
      values,
      bias,
      key if dropout_rate else None,
  )


def diagonals(line, rows):
  """line [H, rows + columns - 1] -> Toeplitz matrix M [H, rows, columns]."""
  H, W = line.shape
  copies = jnp.broadcast_to(line[:, None], (H, rows + 1, W)).reshape(H, -1)
  shifted = copies[:, : rows * (W + 1)].reshape(H, rows, W + 1)
  return shifted[:, :, W - rows :: -1]


def _pair(size, row, column, bias):
  """Both pieces, the bias line [H, 2 size - 1], the mask [size, size]."""

  def piece(index):
    return pieces.Piece(index, index * size, jnp.ones(size, bool))

  distance = (row - column) * size
  line = jax.lax.dynamic_slice_in_dim(bias, distance, 2 * size - 1, 1)
  places = jnp.arange(size)
  counts = places[None, :] <= places[:, None] + distance
  return piece(row), piece(column), line, counts


def _scores(q, k, line, counts):
  """Scores of a pair, [B, H, size, size]; -inf at later keys."""
  bias = diagonals(line, counts.shape[0])
  return jnp.where(counts, long_attention.scores(q, k, bias=bias), -jnp.inf)


def _over_pairs(length, size, update, carry):
  """carry <- update(number, row, column, carry) over the lower triangle."""
  rows, columns = np.tril_indices(length // size)

  def step(carry, pair):
    return update(*pair, carry), None

  carry = mesh_lib.match_type(lambda carry: update(0, 0, 0, carry), carry)
  return jax.lax.scan(step, carry, (np.arange(rows.size), rows, columns))[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_pieces(size, dropout_rate, queries, keys, values, bias, key):
  return _forward(size, dropout_rate, queries, keys, values, bias, key)[0]


def _forward(size, dropout_rate, queries, keys, values, bias, key):
  """Returns the result and what the backward pass needs."""
  B, T, H, K = queries.shape
  precise = jnp.promote_types(queries.dtype, jnp.float32)

  def update(number, row, column, softmax):
    to, of, line, counts = pieces.tie(_pair(size, row, column, bias), softmax.m)
    scores = _scores(to.take(queries, 1), of.take(keys, 1), line, counts)
    factor = long_attention.dropout(dropout_rate, key, number, scores)
    part = long_attention.Softmax(*(to.take(x, 2) for x in softmax))
    part = part.add(scores, of.take(values, 1), factor)
    return long_attention.Softmax(
        *(to.put(x, new, 2) for x, new in zip(softmax, part))
    )

  softmax = _over_pairs(
      T, size, update, long_attention.Softmax.of_nothing(B, H, T, K, precise)
  )
  out = softmax.context(queries.dtype)
  return out, (queries, keys, values, bias, key, out, softmax.m, softmax.l)


def _backward(size, dropout_rate, kept, d_out):
  """Gradients: d_scores = weights (d_weights - sum(d_out out))."""
  queries, keys, values, bias, key, out, m, l = kept
  dtype, precise = queries.dtype, m.dtype
  product = functools.partial(jnp.einsum, preferred_element_type=precise)
  d_out = d_out.astype(dtype)
  mean = product('bthk,bthk->bht', d_out, out)

  def update(number, row, column, carry):
    d_queries, d_keys, d_values, d_bias = carry
    to, of, line, counts = _pair(size, row, column, bias)
    q, d = to.take(queries, 1), to.take(d_out, 1)
    k, v = of.take(keys, 1), of.take(values, 1)
    top, total, middle = (to.take(x, 2)[..., None] for x in (m, l, mean))
    scores = _scores(q, k, line, counts)
    weights = jnp.exp(scores - top) / total
    factor = long_attention.dropout(dropout_rate, key, number, weights)
    d_weights = product('bthk,bshk->bhts', d, v) * factor
    d_scores = weights * (d_weights - middle)
    _, sum_diagonals = jax.vjp(lambda line: diagonals(line, size), line)
    (d_line,) = sum_diagonals(d_scores.sum(0).astype(line.dtype))
    d_scores = d_scores.astype(dtype)
    weights = (weights * factor).astype(dtype)

    def add(piece, x, part, axis=1):
      return piece.put(x, piece.take(x, axis) + part.astype(x.dtype), axis)

    start = (row - column) * size
    old = jax.lax.dynamic_slice_in_dim(d_bias, start, d_line.shape[1], 1)
    d_bias = jax.lax.dynamic_update_slice_in_dim(d_bias, old + d_line, start, 1)
    return (
        add(to, d_queries, product('bhts,bshk->bhtk', d_scores, k), 2),
        add(of, d_keys, product('bhts,bthk->bshk', d_scores, q)),
        add(of, d_values, product('bhts,bthk->bshk', weights, d)),
        d_bias,
    )

  # d_queries in the scores' layout, [B, H, T, K]; any other is copied.
  d_queries, d_keys, d_values, d_bias = _over_pairs(
      queries.shape[1],
      size,
      update,
      (
          jnp.zeros_like(queries, precise).swapaxes(1, 2),
          jnp.zeros_like(keys, precise),
          jnp.zeros_like(values, precise),
          jnp.zeros_like(bias),
      ),
  )
  return (
      d_queries.swapaxes(1, 2).astype(dtype),
      d_keys.astype(dtype),
      d_values.astype(dtype),
      d_bias,
      None,
  )


_in_pieces.defvjp(_forward, _backward)
