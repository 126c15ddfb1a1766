"""Attention in pieces of queries, and to nearby keys alone.

A sliding window in blocks: tokens are split into blocks of W, and the queries
of a block attend to its own keys and those of its two neighbours, where the
distance is at most a radius of W or less. Scores are L x 3 W, of which a piece
exists at a time. Further keys, the same ones for all queries of a document, can
be added: LongT5's side tokens (Guo et al. 2022), Longformer's global tokens
(Beltagy et al. 2020).

Axes: B batch, L length, H heads, K head width, n blocks of a piece, W tokens of
a block, S keys, G further keys.
"""

import functools
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.ops import long_attention


def attend(queries, keys, values, mask, bias, rate=0.0, key=None):
  """`long_attention.plain` with dropout drawn from a key, if rate is not 0."""
  drop = lambda w: w * long_attention.dropout(rate, key, 0, w)
  return long_attention.plain(queries, keys, values, mask, bias, drop=drop)


def over_queries(function, queries, size, key=None):
  """The context of all queries [B, L, H, K], computed piece by piece.

  Args:
    function: (queries [B, size, H, K], start, key) -> context, likewise. It is
      recomputed in the backward pass if there are several pieces. The last
      piece is padded with zeros.
    size: of a piece.
    key: a random key, or None; each piece gets its own.
  """
  B, L, H, K = queries.shape
  if size >= L:
    padded = jnp.pad(queries, ((0, 0), (0, size - L), (0, 0), (0, 0)))
    return function(padded, 0, key)[:, :L]
  count = -(-L // size)
  queries = jnp.pad(queries, ((0, 0), (0, count * size - L), (0, 0), (0, 0)))
  queries = queries.reshape(B, count, size, H, K).swapaxes(0, 1)

  @functools.partial(jax.checkpoint, prevent_cse=False)
  def run(piece):
    index, part = piece
    own = None if key is None else jax.random.fold_in(key, index)
    return function(part, index * size, own)

  context = jax.lax.map(run, (jnp.arange(count), queries))
  return context.swapaxes(0, 1).reshape(B, -1, H, K)[:, :L]


class Read(NamedTuple):
  """The S keys that the queries of n blocks of each document attend to."""

  keys: Any  # [B n, S, H, K]
  values: Any  # [B n, S, H, K]
  mask: Any  # bool, broadcast to [B n, H, W, S]
  bias: Any  # [B n, H, W, S], or None

  def with_keys(self, keys, values, exists, bias=None):
    """Adds keys and values [B, G, H, K] where exists, bool [B, G].

    bias: [B n, H, W, G], where the others have one.
    """
    n, W = self.keys.shape[0] // keys.shape[0], self.mask.shape[2]
    repeated = lambda x: jnp.repeat(x, n, 0)
    exists = repeated(exists)[:, None, None]
    exists = jnp.broadcast_to(exists, (*exists.shape[:2], W, keys.shape[1]))
    return Read(
        jnp.concatenate([self.keys, repeated(keys)], 1),
        jnp.concatenate([self.values, repeated(values)], 1),
        jnp.concatenate([self.mask, exists], -1),
        None if bias is None else jnp.concatenate([self.bias, bias], -1),
    )


class Window(NamedTuple):
  """Which keys the queries of a block attend to.

  Attributes:
    block: W.
    radius: largest distance of a key, at most W; may be traced.
    seen: keys per query, further ones included.
    bias: [H, W, 3 W], or None.
    further: (`Read` of a piece, position of its first query) -> `Read` with
      further keys.
    sides: blocks on each side of a block whose keys it reads: 1, or 0 where
      attention stays in blocks (then bias is [H, W, W]).
  """

  block: int
  radius: Any
  seen: int
  bias: Any
  further: Callable
  sides: int = 1


def in_blocks(queries, keys, values, mask, window, rate=0.0, key=None):
  """Sliding-window attention, with the scores of one piece at a time.

  Args:
    queries, keys, values: [B, L, H, K], like the result.
    mask: bool [B, L], true at keys that may be attended to.
    rate: dropout of the weights; drawn from key.
  """
  (B, L, H, _), W = queries.shape, window.block
  scores = 4 * B * H * W * window.seen
  n = min(-(-L // W), max(1, long_attention.PIECE_BYTES // scores))
  sides, own = window.sides, jnp.arange(W)
  parts = [pad_blocks(x, L, W, n, sides) for x in (keys, values, mask)]
  there = jnp.arange((1 + 2 * sides) * W) - sides * W
  distance = there[None, :] - own[:, None]
  is_near = abs(distance) <= window.radius

  def of_piece(queries, start, key):
    k, v, valid = (neighbours(x, start, W, n, sides) for x in parts)
    bias = window.bias
    if bias is not None:
      bias = jnp.broadcast_to(bias, (B * n, *bias.shape))
    near = Read(k, v, valid[:, None, None] & is_near, bias)
    read = window.further(near, start)
    queries = queries.reshape(B * n, W, *queries.shape[2:])
    context = attend(
        queries, read.keys, read.values, read.mask, read.bias, rate, key
    )
    return context.reshape(B, n * W, *context.shape[2:])

  return over_queries(of_piece, queries, n * W, key)


def pad_blocks(x, L, W, n, sides):
  """Pads [B, L, ...] to whole pieces, with `sides` more blocks at each end."""
  before, piece = sides * W, n * W
  behind = -(-L // piece) * piece + before - L
  return jnp.pad(x, ((0, 0), (before, behind), *[(0, 0)] * (x.ndim - 2)))


def neighbours(x, start, W, n, sides):
  """Each of n blocks of W tokens with S on both sides: [B n, (1 + 2 S) W, ...].

  x is of `pad_blocks`, `start` the position of the first block, traced.
  """
  B = x.shape[0]
  count = 1 + 2 * sides
  part = jax.lax.dynamic_slice_in_dim(x, start, (n + count - 1) * W, 1)
  part = part.reshape(B, n + count - 1, W, *x.shape[2:])
  read = [part[:, i : i + n] for i in range(count)]
  return jnp.concatenate(read, 2).reshape(B * n, count * W, *x.shape[2:])
