"""The token mixers of LongT5 (Guo et al. 2022, section 3).

local             a token attends to those at most `local_radius` away
transient-global  also to one side token per block of `global_block_size`, made
                  anew in every layer: the normed sum of the block's states

Tokens are cut in blocks of local_radius + 1, and a block looks at itself and
its neighbours. Of n valid tokens there are G = n // global_block_size side
tokens; those at the end that fill no block count to the last full one. Side
tokens take the keys' and values' projections and have a position bias of their
own, by the distance in blocks. Valid tokens come before padding.

Axes: B batch, L length, D width, H heads, K head width, W local_radius + 1, G
side tokens.
"""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import causal_attention
from locost_jax.models import long_attention
from locost_jax.models import self_attention
from locost_jax.models import shell

LOCAL, GLOBAL = 'local', 'transient-global'


@dataclasses.dataclass(frozen=True)
class LongT5Config(shell.ShellConfig):
  """The shell's keys and those of the encoder's attention."""
  attention: str
  local_radius: int
  global_block_size: int

  def __post_init__(self):
    if self.attention not in (LOCAL, GLOBAL):
      raise InputError(f'model.attention={self.attention!r} must be one of '
                       f'{LOCAL!r}, {GLOBAL!r}')

  def keys_seen(self, length):
    """Keys that a query of the encoder is multiplied with."""
    near = 3 * (self.local_radius + 1)
    if self.attention == LOCAL:
      return near
    return near + length // self.global_block_size


def block_sums(x, mask, size):
  """The sums of the blocks' tokens, the rest added to the last full block.

  Args:
    x: [B, L, D].
    mask: bool [B, L]; valid tokens come first.
    size: tokens of a block.

  Returns:
    sums [B, L // size, D], zero where a document has no such block, and how
    many it has, int [B].
  """
  B, L, D = x.shape
  most = L // size
  full = mask.sum(1) // size
  precise = jnp.promote_types(x.dtype, jnp.float32)
  x = jnp.where(mask[..., None], x, 0).astype(precise)
  x = jnp.pad(x, ((0, 0), (0, (most + 1) * size - L), (0, 0)))
  sums = x.reshape(B, most + 1, size, D).sum(2)
  rest = jnp.take_along_axis(sums, full[:, None, None], 1)
  places = jnp.arange(most)[:, None]
  last, full_ones = (full - 1)[:, None, None], full[:, None, None]
  sums = sums[:, :most] + jnp.where(places == last, rest, 0)
  return jnp.where(places < full_ones, sums, 0), full


class SharedBiases(nn.Module):
  """What layers share: mask [B, L] -> the biases near and of side tokens.

  near: [H, W, 3 W], of a block's queries and the keys of three blocks.
  side: [H, 2 L / global_block_size + 2], a line by distance in blocks, or None.
  """
  config: LongT5Config

  def setup(self):
    self.relative_bias = self_attention.relative_bias(self.config)
    if self.config.attention == GLOBAL:
      self.global_relative_bias = self_attention.relative_bias(self.config)

  def __call__(self, mask):
    W = self.config.local_radius + 1
    places = jnp.arange(3 * W)
    near = self.relative_bias.of_distance(
        places[None, :] - W - places[:W, None]).transpose(2, 0, 1)
    if self.config.attention == LOCAL:
      return near, None
    G = mask.shape[1] // self.config.global_block_size
    # Own blocks go from -1, of a document that fills none, to G.
    distance = jnp.arange(2 * G + 1) - (G + 1)
    return near, self.global_relative_bias.of_distance(-distance).T


class LongT5Attention(nn.Module):
  """x [B, L, D], mask [B, L], `SharedBiases` -> [B, L, D]."""
  config: LongT5Config
  dtype: jnp.dtype

  Common = SharedBiases

  def setup(self):
    c = self.config
    self.attention = shell.make_attention(c, self.dtype)
    nn.share_scope(self, self.attention)
    if c.attention == GLOBAL:
      self.global_norm = shell.make_norm(c, self.dtype)

  def side_tokens(self, x, mask):
    """x [B, L, D], mask [B, L] -> keys, values [B, G, H, K], counts [B]."""
    sums, full = block_sums(x, mask, self.config.global_block_size)
    return (*self.attention.keys_values(self.global_norm(sums)), full)

  def __call__(self, x, mask, biases, deterministic):
    c, (near, line) = self.config, biases
    queries = self.attention.queries(x)
    B, L, H, _ = queries.shape
    W, block = c.local_radius + 1, c.global_block_size
    side = c.attention == GLOBAL and L >= block
    if c.attention == GLOBAL:
      side_keys, side_values, full = self.side_tokens(x, mask)
    rate = 0.0 if deterministic else c.dropout_rate

    blocks = -(-L // W)
    per_block = 4 * B * H * W * c.keys_seen(L)
    n = min(blocks, max(1, long_attention.PIECE_BYTES // per_block))
    # A block before the first and what the last piece has too much.
    more = -(-blocks // n) * n * W + W - L
    def around(x):
      return jnp.pad(x, ((0, 0), (W, more), *[(0, 0)] * (x.ndim - 2)))
    keys, values = map(around, self.attention.keys_values(x))
    counts = around(mask)
    distance = jnp.arange(3 * W)[None, :] - W - jnp.arange(W)[:, None]
    is_near = abs(distance) <= c.local_radius

    def neighbours(x, start):
      """[B, ...] -> [B n, 3 W, ...]: for each block itself and both others."""
      part = jax.lax.dynamic_slice_in_dim(x, start, (n + 2) * W, 1)
      part = part.reshape(B, n + 2, W, *x.shape[2:])
      three = [part[:, i:i + n] for i in range(3)]
      return jnp.concatenate(three, 2).reshape(B * n, 3 * W, *x.shape[2:])

    def repeated(x):
      return jnp.repeat(x, n, 0)

    def of_piece(queries, start, key):
      own_keys, own_values, own = (
          neighbours(x, start) for x in (keys, values, counts))
      allowed = own[:, None, None] & is_near
      bias = jnp.broadcast_to(near, (B * n, *near.shape))
      if side:
        G = side_keys.shape[1]
        allowed = jnp.concatenate([allowed, jnp.broadcast_to(
            repeated(jnp.arange(G) < full[:, None])[:, None, None],
            (B * n, 1, W, G))], -1)
        own_keys, own_values = (
            jnp.concatenate([near_ones, repeated(side_ones)], 1)
            for near_ones, side_ones in (
                (own_keys, side_keys), (own_values, side_values)))
        bias = jnp.concatenate(
            [bias, side_bias(line, start, n * W, block, full).reshape(
                B * n, W, H, G).swapaxes(1, 2)], -1)
      queries = queries.reshape(B * n, W, *queries.shape[2:])
      context = self_attention.attend(
          queries, own_keys, own_values, allowed, bias, rate, key)
      return context.reshape(B, n * W, *context.shape[2:])

    return self.attention.merge_heads(self_attention.over_queries(
        of_piece, queries, n * W, self.make_rng('dropout') if rate else None))


def side_bias(line, start, size, block, full):
  """The position bias of the side tokens, for a piece of the queries.

  Args:
    line: [H, 2 G + 1], by own block - key block, from -(G + 1) on.
    start: position of the first query, traced.
    size: queries of the piece.
    block: tokens of a block.
    full: int [B], blocks that documents fill.

  Returns:
    [B, size, H, G].
  """
  G = (line.shape[1] - 1) // 2
  own = jnp.minimum((start + jnp.arange(size)) // block, full[:, None] - 1)
  # Rows of blocks that a piece can have, from the one before its first on, so
  # that a query picks a row rather than G numbers.
  rows = min(size // block + 3, G + 1)
  first = jnp.clip(start // block - 1, -1, G - rows)
  part = jax.lax.dynamic_slice_in_dim(line, first + 2, rows + G - 1, 1)
  matrix = causal_attention.diagonals(part, rows)  # [H, rows, G]
  own = jnp.clip(own - first, 0, rows - 1)
  return jnp.take(matrix.swapaxes(0, 1), own, 0)
