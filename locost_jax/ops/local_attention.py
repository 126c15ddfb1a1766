"""Attention in pieces of queries, and to nearby keys alone.

A sliding window in blocks: tokens are split into blocks of W, and the queries
of a block attend to its own keys and those of its neighbours, where the
distance is at most a radius. The scores of one piece exist at a time. Further
keys, the same ones for all queries of a document, can be added: LongT5's side
tokens (Guo et al. 2022), Longformer's global tokens (Beltagy et al. 2020).

Axes: B batch, L length, H heads, K head width, n blocks of a piece, W tokens of
a block, S keys, G further keys.
"""

import functools
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib


def over_queries(function, queries, size, key=None):
  """The context of all queries [B, L, H, K], computed piece by piece.

  Args:
    function: (queries [B, H, size, K], start, key) -> context, likewise; a CPU
      gathers float32 faster than bfloat16. It is recomputed in the backward
      pass if there are several pieces. The last piece is padded with zeros.
    size: of a piece.
    key: a random key, or None; each piece gets its own.
  """
  B, L, H, K = queries.shape
  count = -(-L // size)
  by_head = jnp.pad(
      queries.swapaxes(1, 2), ((0, 0), (0, 0), (0, count * size - L), (0, 0))
  )

  @functools.partial(jax.checkpoint, prevent_cse=False)
  def run(piece):
    index, part = piece
    own = None if key is None else jax.random.fold_in(key, index)
    return function(part, index * size, own)

  if count == 1:
    context = function(by_head, 0, key)
  else:
    parts = jnp.moveaxis(by_head.reshape(B, H, count, size, K), 2, 0)
    context = jax.lax.map(run, (jnp.arange(count), parts))
    context = jnp.moveaxis(context, 0, 2).reshape(B, H, -1, K)
  return context[:, :, :L].swapaxes(1, 2).astype(queries.dtype)


class Further(NamedTuple):
  """G keys that all queries of a document attend to."""

  keys: Any  # [B, G, H, K]
  values: Any  # [B, G, H, K]
  exists: Any  # bool [B, G]
  # (position of the first query, size) -> broadcast to [B, H, size, G], or None
  bias: Callable = lambda start, size: None


class Window(NamedTuple):
  """Which keys the queries of a block attend to.

  Attributes:
    block: W.
    radius: largest distance of a key, at most sides W; may be traced.
    seen: keys per query, further ones included.
    bias: [H, W, (1 + 2 sides) W], or None.
    further: `Further` keys, or None.
    sides: blocks on each side of a block whose keys it reads; 0 where attention
      stays in blocks.
  """

  block: int
  radius: Any
  seen: int
  bias: Any = None
  further: Further | None = None
  sides: int = 1


def in_blocks(queries, keys, values, mask, window, rate=0.0, key=None):
  """Sliding-window attention, with the scores of one piece at a time.

  Args:
    queries, keys, values: [B, L, H, K], like the result.
    mask: bool [B, L], true at keys that may be attended to.
    rate: dropout of the weights; drawn from key.
  """
  (B, L, H, K), W, sides = queries.shape, window.block, window.sides
  n = min(-(-L // W), max(1, piece_bytes() // (4 * B * H * W * window.seen)))
  precise = jnp.promote_types(queries.dtype, jnp.float32)
  by_head = lambda x: x.swapaxes(1, 2)
  keys, values = (
      pad_blocks(by_head(x), L, W, n, sides) for x in (keys, values)
  )
  mask = pad_blocks(mask[:, None], L, W, n, sides)
  there = jnp.arange((1 + 2 * sides) * W) - sides * W
  is_near = abs(there - jnp.arange(W)[:, None]) <= window.radius
  further = window.further
  if further is not None:
    more = by_head(further.keys), by_head(further.values)

  def of_piece(queries, start, key):
    k, v, valid = (
        neighbours(x, start, W, n, sides) for x in (keys, values, mask)
    )
    scores = long_attention.scores(
        queries.reshape(B, H * n, W, K), k, form='h'
    ).reshape(B, H, n, W, -1)
    if window.bias is not None:
      scores += window.bias[:, None]
    sees = (valid[:, :, None] & is_near)[:, None]
    scores = jnp.where(sees, scores, jnp.finfo(precise).min)
    scores = scores.reshape(B, H * n, W, -1)
    drop = functools.partial(long_attention.dropout, rate, key)
    softmax = long_attention.Softmax.of_nothing(B, H * n, W, K, precise)
    softmax = softmax.add(scores, v, drop(0, scores), 'h')
    softmax = long_attention.Softmax(
        *(x.reshape(B, H, n * W, *x.shape[3:]) for x in softmax)
    )
    if further is not None and further.exists.size:
      scores = long_attention.scores(
          queries,
          more[0],
          further.exists[:, None, None],
          further.bias(start, n * W),
          form='h',
      )
      softmax = softmax.add(scores, more[1], drop(1, scores), 'h')
    return softmax.mean()

  return over_queries(of_piece, queries, n * W, key)


def piece_bytes():
  """Bytes of the scores of a piece; on a CPU they stay near its caches."""
  parts = 8 if mesh_lib.platform() == 'cpu' else 1
  return long_attention.PIECE_BYTES // parts


def pad_blocks(x, L, W, n, sides):
  """Pads [B, R, L, ...] to whole pieces, and by `sides` blocks at each end."""
  before, piece = sides * W, n * W
  behind = -(-L // piece) * piece + before - L
  more = [(0, 0)] * (x.ndim - 3)
  return jnp.pad(x, ((0, 0), (0, 0), (before, behind), *more))


def neighbours(x, start, W, n, sides):
  """Each of n blocks of W tokens with S blocks on both sides.

  x [B, R, L, ...] of `pad_blocks` -> [B, R n, (1 + 2 S) W, ...]; `start` is the
  position of the first block, traced.
  """
  (B, R), count = x.shape[:2], 1 + 2 * sides
  part = jax.lax.dynamic_slice_in_dim(x, start, (n + count - 1) * W, 2)
  if n == 1:
    return part
  part = part.reshape(B, R, n + count - 1, W, *x.shape[3:])
  read = [part[:, :, i : i + n] for i in range(count)]
  return jnp.concatenate(read, 3).reshape(B, R * n, count * W, *x.shape[3:])
