"""The interface of every model, and the T5-style one around any token mixer.

No absolute positions. Tied output layer: logits = (h D^-1/2) E^T; untied ones
are not scaled (Raffel et al. 2020, section 2.1; Shazeer 2020; LOCOST, section
4.2).

Axis letters of the project: B batch, L input length, T target length, S
key/value length, D d_model, F d_ff, H heads, K head dim, N complex state pairs,
V vocabulary, P pages, C chunks, R = B * beams rows of a decoding step.
"""

import functools
from typing import Any, Callable

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import attention
from locost_jax.models import copy_head
from locost_jax.models import decoder_layers
from locost_jax.models import encoder as encoder_lib
from locost_jax.models import layers
from locost_jax.models import stack


class Model(copy_head.CopyingModel):
  """The interface of every model: encode, decode, cache, step.

  It has an `encoder`, a `decoder`, `vectors` of tokens and a `head`.
  """

  def make_logits(self):
    """The output layer for `setup`; None: it is the embedding."""
    c = self.config
    if c.tie_embeddings:
      return None
    return layers.dense(
        c.vocab_size,
        c.d_model**-0.5,
        self.dtype,
        'logits',
        dot_general=functools.partial(layers.dot_general, precise=True),
    )

  def __call__(self, inputs, targets_in, input_mask=None, deterministic=True):
    """inputs [B, L], targets_in [B, T] -> float32 logits [B, T, V]."""
    return self.predict(
        *self.states(inputs, targets_in, input_mask, deterministic)
    )

  def encode(self, inputs, input_mask=None, deterministic=True):
    """Reads the documents, inputs int [B, L]: a memory.

    {'states': [B, L, D], 'mask': bool [B, L]}, and what `copy_head.with_tokens`
    adds. input_mask [B, L] is true at tokens; None: where inputs are not pad.
    """
    h, mask = self.embed(inputs, input_mask)
    memory = {'states': self.encoder(h, mask, deterministic), 'mask': mask}
    return copy_head.with_tokens(self.config, memory, inputs)

  def embed(self, inputs, input_mask=None):
    """Inputs and mask of `encode` -> h [B, L, D], bool mask [B, L]."""
    if input_mask is None:
      input_mask = inputs != self.config.pad_id
    mask = input_mask.astype(bool)
    self.config.check_mask(mask)
    return self.encoder.embed(self.vectors(inputs)), mask

  def sources(self, memory):
    """The memory of `encode` as the decoder reads it, [B, S, ...]."""
    return memory

  def states(
      self, inputs, targets_in, input_mask=None, deterministic=True, **seeds
  ):
    """The arguments of `predict`: states [B, T, D] and the source.

    seeds: of `selector.SelectingModel.encode`.
    """
    memory = self.encode(inputs, input_mask, deterministic, **seeds)
    return self.decoder_states(memory, targets_in, deterministic)

  def decoder_states(self, memory, targets_in, deterministic=True):
    """memory of `encode`, targets_in [B, T] -> see `states`."""
    memory = self.sources(memory)
    h = self.decoder(self.vectors(targets_in), memory, deterministic)
    return self.written(h, targets_in), self.source(memory)

  def decode(self, memory, targets_in, deterministic=True):
    """targets_in [B, T], starting with the start id -> logits [B, T, V]."""
    return self.predict(*self.decoder_states(memory, targets_in, deterministic))

  def cross_mass(self, memory, targets_in, segments, num_segments):
    """Where the decoder looks while it writes targets_in [B, T].

    Args:
      segments: int [B, L], the segment of each input token, in
        [0, P = num_segments), not decreasing; by chunk if the inputs are.

    Returns:
      float32 [B, T, P]: the share of the cross-attention of position t that
      falls on segment p, averaged over heads and layers. Rows sum to 1.
    """
    memory = self.sources(memory | {'segments': segments})
    return self.decoder.traced(
        self.vectors(targets_in), memory, memory['segments'], num_segments
    )

  def init_cache(self, memory, max_length):
    """(shared, per_row) of `stack.init_cache`, with the `source`."""
    memory = self.sources(memory)
    return self.with_source(*self.caches(memory, max_length), memory)

  def caches(self, memory, max_length):
    """(shared, per_row) of `stack.init_cache`."""
    return stack.init_cache(
        self.config, self.dtype, memory, self.decoder.cross_cache, max_length
    )

  def step(self, tokens, shared, per_row, ancestors=None):
    """One token of every row: tokens [R] -> (logits [R, V], per_row).

    Args:
      shared, per_row: of `init_cache`.
      ancestors: int [B, beams, max_length] of `ops.beam_attention`, the slot of
        per_row['own'] that each beam reads at each position; None: its own.
    """
    h, caches = self.decoder.step(
        self.vectors(tokens)[:, None], shared, per_row, ancestors
    )
    return self.predict_next(h, tokens, shared, per_row, caches)


class Decoder(decoder_layers.Decoder):
  """The decoder: relative biases, and a norm at the end."""

  def setup(self):
    super().setup()
    c = self.config
    self.relative_bias = attention.RelativeBias(c, False)
    self.norm = c.make_norm(self.dtype)

  def embed(self, h, positions):
    """Vectors of tokens [B, T, D] -> h: there are no absolute positions."""
    del positions
    return stack.lay_written(h)

  def bias(self, positions, keys, is_long=False):
    """See `decoder_layers.Decoder`."""
    if is_long:
      return self.relative_bias.of_distance(-keys).swapaxes(-1, -2)
    return self.relative_bias(positions, keys)

  def finish(self, h, deterministic):
    """The norm at the end."""
    return self.dropout(self.norm(h), deterministic)


class EncoderDecoder(Model):
  """The T5-style model.

  Attributes:
    make_mixer: (config, dtype) -> the mixer of a layer; see `encoder`.
    remat: see `models.build`.
  """

  config: Any
  make_mixer: Callable[..., nn.Module]
  dtype: jnp.dtype = jnp.float32
  remat: str = 'auto'

  def setup(self):
    c = self.config
    self.token_embedding = layers.Embedding(c.vocab_size, c.d_model, self.dtype)
    self.encoder = encoder_lib.Encoder(
        c, self.make_mixer, self.dtype, self.remat
    )
    self.decoder = Decoder(c, self.dtype, self.remat)
    self.copy_head = self.make_copy_head()
    self.logits = self.make_logits()

  def vectors(self, tokens):
    """int [...] -> [..., D]."""
    return self.token_embedding(tokens)

  def head(self, h):
    """h [..., D] -> float32 logits [..., V]."""
    if self.config.tie_embeddings:
      return self.token_embedding.attend(h) * self.config.d_model**-0.5
    return self.logits(h)
