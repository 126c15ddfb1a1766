"""LED, Longformer Encoder-Decoder (Beltagy et al. 2020): BART for long inputs.

A token of the encoder attends to the tokens at most w/2 away, where w is the
`attention_window` of the layer, and to the global tokens. A global token
attends to all tokens, with its own projections of queries, keys and values:

  near    softmax over |s - t| <= w/2 and global s of q_t . k_s
  global  softmax over all s of q'_t . k'_s

and one output projection for both. Global are the first `global_tokens` tokens
of a document and its separators (PRIMERA, Xiao et al. 2022), or those where its
row of an integer input_mask is 2 (0 is padding, 1 any other token); at most
`most_global` of them, the first ones. The rest is BART's; position i has row i
of the table, and the decoder fewer positions.

Axes: those of `encoder_decoder.Model`, and G global tokens.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import bart
from locost_jax.models import model_config
from locost_jax.ops import local_attention
from locost_jax.ops import long_attention


@model_config.with_keys('led')
class LEDConfig(bart.BartConfig):
  """The config of an LED."""

  position_offset = 0
  # Blocks on each side of a block whose keys it reads. More of them read fewer
  # keys in vain: 9/8 of a window instead of 3/2 with one.
  SIDES = 4

  def __post_init__(self):
    super().__post_init__()
    if not isinstance(self.attention_window, int):  # a list of config.json
      windows = tuple(self.attention_window)
      object.__setattr__(self, 'attention_window', windows)
    if len(self.windows) != self.num_layers:
      raise InputError(
          f'model.attention_window={self.windows}: expected one number, or '
          f'model.num_layers={self.num_layers} of them'
      )

  @property
  def windows(self):
    """The window of each encoder layer, a tuple."""
    w = self.attention_window
    return (w,) * self.num_layers if isinstance(w, int) else w

  @property
  def block(self):
    """Tokens of a block: SIDES on each side of one span the widest window."""
    return -(-(max(self.windows) // 2) // self.SIDES)

  @property
  def most_global(self):
    """The most global tokens of a document."""
    separators = self.max_separators if self.separator_id >= 0 else 0
    return self.global_tokens + separators

  def of_targets(self):
    """See `ModelConfig`."""
    return dataclasses.replace(self, max_positions=self.max_target_positions)

  def keys_seen(self, length):
    """Returns how many keys a query of the encoder attends to."""
    near = (1 + 2 * self.SIDES) * self.block
    return near + min(self.most_global, length)

  def mixer_flops(self, batch, length):
    """See `ModelConfig`: also the projections and scores of global tokens."""
    parts = super().mixer_flops(batch, length)
    D, G = self.d_model, min(self.most_global, length)
    if G:
      parts['dense'] += 6 * batch * (2 * length + G) * D * D
      parts['attention'] += 12 * batch * G * length * D
    return parts

  def mixer_bytes(self, batch, length):
    """See `ModelConfig`: also the keys and values that global tokens read."""
    own = 2 * 4 * batch * length * self.d_model
    return super().mixer_bytes(batch, length) + own


class Tokens(NamedTuple):
  """Which tokens of a batch are read, and how."""

  mask: jax.Array  # bool [B, L], true at tokens
  near: jax.Array  # bool [B, L], true at tokens that are not global
  places: jax.Array  # int [B, G], positions of global tokens, padded with L

  @classmethod
  def of(cls, mask, most):
    """Reads an int mask [B, L], 2 at the tokens that are global."""
    L = mask.shape[1]
    is_global, places = jax.lax.top_k((mask == 2).astype(jnp.int32), most)
    places = jnp.where(is_global == 1, places, L)
    chosen = (jnp.arange(L) == places[..., None]).any(1)
    return cls(mask > 0, (mask > 0) & ~chosen, places)


class EncoderLayer(bart.EncoderLayer):
  """One layer of the encoder; a step of `nn.scan`."""

  def setup(self):
    super().setup()
    # Its output projection is that of self_attention.
    c = self.config
    self.global_attention = c.make_attention(self.dtype, c.num_heads)

  def __call__(self, h, tokens, deterministic, in_pieces=False):
    """h ([B, L, D], number of the layer), `Tokens` -> h, None."""
    h, layer = h
    radius = jnp.asarray(self.config.windows)[layer] // 2
    h, _ = super().__call__(h, (tokens, radius), deterministic, in_pieces)
    return (h, layer + 1), None

  def attend(self, h, mask, deterministic):
    """Self-attention of h [B, L, D]; mask: `Tokens` and the radius."""
    c, (tokens, radius) = self.config, mask
    rate = 0.0 if deterministic else c.attention_dropout_rate
    draw = lambda: self.make_rng('dropout') if rate else None
    of_places = lambda x: jnp.take_along_axis(
        x,
        tokens.places.reshape(*tokens.places.shape, *[1] * (x.ndim - 2)),
        1,
        mode='clip',
    )
    B, L, _ = h.shape
    exists = tokens.places < L
    keys, values = self.self_attention.keys_values(h)
    further = local_attention.Further(
        of_places(keys), of_places(values), exists
    )
    window = local_attention.Window(
        c.block, radius, c.keys_seen(L), None, further, c.SIDES
    )
    queries = self.self_attention.queries(h)
    context = local_attention.in_blocks(
        queries, keys, values, tokens.near, window, rate, draw()
    )
    if tokens.places.size or self.is_initializing():
      own = long_attention.plain(
          self.global_attention.queries(of_places(h)),
          *self.global_attention.keys_values(h),
          tokens.mask[:, None, None],
          drop=long_attention.dropping(rate, draw()),
      )
      rows = jnp.arange(B)[:, None]
      context = context.at[rows, tokens.places].set(own, mode='drop')
    return self.self_attention.merge_heads(context)


class Encoder(bart.Encoder):
  """Vectors of tokens [B, L, D], int mask [B, L] -> states [B, L, D]."""

  LAYER = EncoderLayer

  def start(self, h, mask):
    """See `bart.Encoder`: the number of the layer, too, and `Tokens`."""
    tokens = Tokens.of(mask, min(self.config.most_global, mask.shape[1]))
    return (h, jnp.int32(0)), tokens


class LED(bart.Bart):
  """The model: encode, decode, cache, step; remat: see `models.build`."""

  ENCODER = Encoder

  def encode(self, inputs, input_mask=None, deterministic=True):
    """See `encoder_decoder.Model`; input_mask may be 2 at global tokens."""
    memory = super().encode(inputs, input_mask, deterministic)
    return memory | {'mask': memory['mask'] > 0}

  def embed(self, inputs, input_mask=None):
    """Inputs and mask of `encode` -> h [B, L, D], int mask [B, L]."""
    h, mask = super().embed(inputs, input_mask)
    marks = jnp.zeros_like(mask) if input_mask is None else input_mask == 2
    is_first = jnp.arange(mask.shape[1]) < self.config.global_tokens
    is_special = is_first | (inputs == self.config.separator_id)
    is_global = mask & jnp.where(marks.any(1, keepdims=True), marks, is_special)
    return h, mask.astype(jnp.int32) + is_global
