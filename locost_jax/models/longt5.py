"""The token mixers of LongT5 (Guo et al. 2022, section 3).

local             a token attends to those at most `local_radius` away
transient-global  also to one side token per block of `global_block_size`: the
                  normed sum of the block's states, recomputed in every layer

Tokens are split into blocks of local_radius + 1, and a block attends to itself
and its neighbours. n valid tokens have G = n // global_block_size side tokens;
tokens at the end that fill no block belong to the last full one. Side tokens
use the projections of keys and values and have their own position bias, by the
distance in blocks. Valid tokens come before padding.

Axes: B batch, L length, D width, H heads, K head width, W local_radius + 1, G
side tokens.
"""

import functools
import math

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from locost_jax.errors import InputError
from locost_jax.models import attention
from locost_jax.models import model_config
from locost_jax.models import stack
from locost_jax.ops import causal_attention
from locost_jax.ops import local_attention

LOCAL, GLOBAL = 'local', 'transient-global'


@model_config.with_keys('longt5')
class LongT5Config(stack.T5StyleConfig):
  """The config of a LongT5."""

  shares_arrays = True

  def check_mask(self, mask, what='input_mask'):
    """Raises an InputError unless tokens come first.

    A traced mask has no values and is not checked.
    """
    if isinstance(mask, jax.core.Tracer):
      return
    mask = np.asarray(mask, bool)
    holes = np.argwhere(mask[:, 1:] & ~mask[:, :-1])
    if len(holes):
      row, position = holes[0]
      raise InputError(
          f'{what}, row {row}: padding at position {position} and a token '
          'after it: LongT5 expects tokens first and padding last: move the '
          'padding to the end of the row'
      )

  def keys_seen(self, length):
    """Returns how many keys a query of the encoder attends to."""
    near = 3 * (self.local_radius + 1)
    if self.attention == LOCAL:
      return near
    return near + length // self.global_block_size

  def mixer_bytes(self, batch, length):
    """See `ModelConfig`: scores exist twice, with and without their bias."""
    return super().mixer_bytes(batch, length) * 2 // 3


def block_sums(x, mask, size):
  """The sums of the blocks' tokens, the rest added to the last full block.

  x [B, L, D], mask bool [B, L] -> sums [B, L // size, D], zero where a document
  has no full block, and the number of its full blocks, int [B].
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
  """Shared by all layers: mask [B, L] -> biases of near and side tokens.

  near: [H, W, 3 W], of a block's queries and the keys of three blocks.
  side: [H, 2 L / global_block_size + 2], a line by distance in blocks, or None.
  """

  config: LongT5Config

  def setup(self):
    self.relative_bias = attention.RelativeBias(self.config, True)
    if self.config.attention == GLOBAL:
      self.global_relative_bias = attention.RelativeBias(self.config, True)

  def __call__(self, mask):
    W = self.config.local_radius + 1
    places = jnp.arange(3 * W)
    near = self.relative_bias.of_distance(
        places[None, :] - W - places[:W, None]
    ).transpose(2, 0, 1)
    if self.config.attention == LOCAL:
      return near, None
    G = mask.shape[1] // self.config.global_block_size
    # Own blocks range from -1 (a document without a full block) to G.
    distance = jnp.arange(2 * G + 1) - (G + 1)
    return near, self.global_relative_bias.of_distance(-distance).T


class LongT5Attention(nn.Module):
  """x [B, L, D], mask [B, L], `SharedBiases` -> [B, L, D]."""

  config: LongT5Config
  dtype: jnp.dtype

  Common = SharedBiases

  def setup(self):
    c = self.config
    self.attention = c.make_attention(self.dtype, c.num_heads)
    nn.share_scope(self, self.attention)
    if c.attention == GLOBAL:
      self.global_norm = c.make_norm(self.dtype)

  def __call__(self, x, mask, biases, deterministic):
    c, (near, line) = self.config, biases
    queries = self.attention.queries(x)
    L = queries.shape[1]
    side = None
    if c.attention == GLOBAL:
      sums, full = block_sums(x, mask, c.global_block_size)
      side = local_attention.Further(
          *self.attention.keys_values(self.global_norm(sums)),
          jnp.arange(sums.shape[1]) < full[:, None],
          functools.partial(side_bias, line, c.global_block_size, full),
      )
    rate = 0.0 if deterministic else c.dropout_rate
    window = local_attention.Window(
        c.local_radius + 1, c.local_radius, c.keys_seen(L), near, side
    )
    return self.attention.merge_heads(
        local_attention.in_blocks(
            queries,
            *self.attention.keys_values(x),
            mask,
            window,
            rate,
            self.make_rng('dropout') if rate else None,
        )
    )


def side_bias(line, block, full, start, size):
  """The position bias of the side tokens for a piece: [B, H, size, G].

  Args:
    line: [H, 2 G + 1], by own block - key block, from -(G + 1) on.
    block: tokens of a block.
    full: int [B], blocks that documents fill.
    start: position of the first query, traced; a multiple of size.
    size: of the piece.
  """
  G = (line.shape[1] - 1) // 2
  step = math.gcd(size, block)  # as many queries have the same row
  queries = jnp.arange(0, size, step)
  own = jnp.minimum((start + queries) // block, full[:, None] - 1)
  # One row for each block that a piece can touch, from the one before its first
  # on, so that a query picks a row instead of G numbers.
  rows = min(size // block + 3, G + 1)
  first = jnp.clip(start // block - 1, -1, G - rows)
  part = jax.lax.dynamic_slice_in_dim(line, first + 2, rows + G - 1, 1)
  matrix = causal_attention.diagonals(part, rows)  # [H, rows, G]
  own = jnp.clip(own - first, 0, rows - 1)
  return jnp.repeat(jnp.take(matrix, own, 1).swapaxes(0, 1), step, 2)
