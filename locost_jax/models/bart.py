"""BART (Lewis et al. 2020): an encoder-decoder with norms after its branches.

Embedding of both stacks: h = norm(s E[token] + P[position + 2]), s = sqrt(D) or
1, with positions P per stack. They count from 0 in every row, padding included.
Logits: h E^T + bias. `models.bart_layers` has the layers.

Interface and axis letters are those of `encoder_decoder.Model`.
"""

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import bart_layers
from locost_jax.models import decoder_layers
from locost_jax.models import encoder_decoder
from locost_jax.models import layers
from locost_jax.models import stack


class Encoder(nn.Module):
  """Vectors of tokens [B, L, D], mask [B, L] -> states [B, L, D]."""

  config: bart_layers.BartConfig
  dtype: jnp.dtype
  remat: str

  LAYER = bart_layers.EncoderLayer

  def setup(self):
    self.layers = stack.make_encoder_layers(
        self.LAYER, self.config, self.remat, self.dtype
    )
    self.position_embedding = bart_layers.PositionEmbedding(
        self.config, self.dtype
    )
    self.embedding_norm = bart_layers.make_norm(self.dtype)
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def embed(self, h):
    """Vectors of tokens [B, L, D] -> with positions, normed, [B, L, D]."""
    bart_layers.check_length('inputs', h.shape[1], self.config)
    positions = self.position_embedding(jnp.arange(h.shape[1]))
    return stack.lay_read(self.embedding_norm(h + positions))

  def __call__(self, h, mask, deterministic):
    """h of `embed` -> states."""
    h = self.dropout(h, deterministic)
    in_pieces = not self.is_initializing() and stack.reads_in_pieces(
        self.config, self.remat, *h.shape[:2]
    )
    return self.layers(h, mask, deterministic, in_pieces)[0]


class Decoder(decoder_layers.Decoder):
  """The decoder, with positions and a norm before its layers."""

  PARTS = bart_layers.PARTS

  def setup(self):
    super().setup()
    self.position_embedding = bart_layers.PositionEmbedding(
        self.config, self.dtype
    )
    self.embedding_norm = bart_layers.make_norm(self.dtype)

  def embed(self, h, positions):
    """Vectors of tokens [B, T, D], positions [T] -> h [B, T, D]."""
    bart_layers.check_length('targets', h.shape[1], self.config)
    h = h + self.position_embedding(positions)
    return stack.lay_written(self.embedding_norm(h))

  def bias(self, positions, keys, is_long=False):
    """None, or zeros [H, S]."""
    return (
        jnp.zeros((self.config.decoder_heads, keys.size)) if is_long else None
    )

  def finish(self, h, deterministic):
    """h as it is."""
    del deterministic
    return h


class Bart(encoder_decoder.Model):
  """The model: encode, decode, cache, step; remat: see `models.build`."""

  config: bart_layers.BartConfig
  dtype: jnp.dtype = jnp.float32
  remat: str = 'auto'

  ENCODER = Encoder

  def setup(self):
    c = self.config
    self.token_embedding = layers.Embedding(
        c.vocab_size, c.d_model, self.dtype, c.d_model**-0.5
    )
    self.encoder = self.ENCODER(c, self.dtype, self.remat)
    self.decoder = Decoder(c, self.dtype, self.remat)
    self.copy_head = self.make_copy_head()
    self.logits_bias = self.param(
        'logits_bias', nn.initializers.zeros, (c.vocab_size,)
    )

  def vectors(self, tokens):
    """int [...] -> [..., D], without positions."""
    h = self.token_embedding(tokens)
    return h * self.config.d_model**0.5 if self.config.scale_embedding else h

  def head(self, h):
    """h [..., D] -> float32 logits [..., V]."""
    return self.token_embedding.attend(h) + self.logits_bias

  def caches(self, memory, max_length):
    """(shared, per_row) of `stack.init_cache`."""
    bart_layers.check_length('targets', max_length, self.config)
    return super().caches(memory, max_length)
