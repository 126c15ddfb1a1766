"""BART (Lewis et al. 2020): an encoder-decoder with norms after its branches.

Embedding of both stacks: h = norm(s E[token] + P[position + 2]), s = sqrt(D) or
1, with positions P per stack. They count from 0 in every row, padding included.
Encoder layer: h = norm(h + self(h));  h = norm(h + ff(h)). mBART (Liu et al.
2020), norms_first: h += self(norm(h)); h += ff(norm(h)), and a norm after the
last layer of each stack. PEGASUS (Zhang et al. 2020), sinusoidal: as mBART, but
P[position] is a formula and no norm follows it. The decoder's layers are those
of `decoder_layers`. Logits: h E^T + bias, or an output layer of their own in
place of E^T.

Layer norms with mean and bias, 1e-5 in the root; biases everywhere; queries
scaled by K^-1/2 after theirs; ff(x) = wo(f(wi x)), f the exact GELU by default.
Dropout on every branch; attention weights and hidden units have their own
rates. Interface and axis letters are those of `encoder_decoder.Model`.
"""

import math

from flax import linen as nn
import jax.numpy as jnp
import numpy as np

from locost_jax.errors import InputError
from locost_jax.models import attention
from locost_jax.models import decoder_layers
from locost_jax.models import encoder_decoder
from locost_jax.models import layers
from locost_jax.models import model_config
from locost_jax.models import stack


@model_config.with_keys('bart')
class BartConfig(model_config.ModelConfig):
  """The config of a BART, and the base of those like it."""

  # Rows of the position tables before that of position 0: published models have
  # them but never read them.
  position_offset = 2
  use_bias = True  # of attention
  has_logits_bias = True

  def __post_init__(self):
    for key, heads in (
        ('num_heads', self.num_heads),
        ('num_decoder_heads', self.decoder_heads),
    ):
      if self.d_model % heads:
        raise InputError(
            f'model.d_model={self.d_model} must be divisible by '
            f'model.{key}={heads}'
        )
    if self.sinusoidal and not self.norms_first:
      raise InputError('model.sinusoidal=True: needs model.norms_first=True')
    if self.pad_id >= self.vocab_size:
      raise InputError(
          f'model.pad_id={self.pad_id} must be below '
          f'model.vocab_size={self.vocab_size}'
      )

  @property
  def d_kv(self):
    """K, width of one attention head of the encoder."""
    return self.d_model // self.num_heads

  @property
  def decoder_heads(self):
    """H of the decoder."""
    return self.num_decoder_heads or self.num_heads

  @property
  def has_dropout(self):
    """See `ModelConfig`."""
    return bool(self.dropout_rate or self.activation_dropout_rate)

  @property
  def has_embedding_norm(self):
    """Whether a norm follows the positions."""
    return not self.sinusoidal

  def make_norm(self, dtype):
    """See `stack.T5StyleConfig`, like the next two."""
    # flax's fast variance, E[x^2] - E[x]^2, loses digits where means are large.
    return nn.LayerNorm(1e-5, dtype=dtype, use_fast_variance=False)

  def make_attention(self, dtype, heads):
    """Its queries are scaled."""
    K = self.d_model // heads
    return attention.Attention(
        heads,
        K,
        self.d_model,
        self.attention_dropout_rate,
        dtype,
        use_bias=self.use_bias,
        scale=K**-0.5,
    )

  def make_feed_forward(self, dtype, d_ff):
    """It has biases."""
    return layers.FeedForward(
        d_ff, self.feed_forward, self.activation_dropout_rate, dtype, True
    )

  def sinusoids(self, positions):
    """int [T] -> vectors of these positions, [T, D]; see the function."""
    return jnp.asarray(sinusoids(self.max_positions, self.d_model))[positions]


def check_length(what, length, config):
  """Raises an InputError where there are fewer positions than tokens."""
  if length > config.max_positions:
    raise InputError(
        f"{what} have {length} tokens, this model's positions end "
        f'at max_positions={config.max_positions}'
    )


def sinusoids(count, D):
  """PEGASUS's vectors of positions, float32 [count, D]: sines, then cosines.

  Position p has the angles p / 10000^(2 i / D) (Vaswani et al. 2017, section
  3.5), of which transformers takes the sines for the first half of D.
  """
  angles = np.arange(count)[:, None] / 10000 ** (2 * (np.arange(D) // 2) / D)
  return np.concatenate(
      [np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], 1, dtype=np.float32
  )


class PositionEmbedding(nn.Module):
  """Vectors of positions: learned, N(0, 1 / D) at first, or `sinusoids`."""

  config: BartConfig
  dtype: jnp.dtype

  def setup(self):
    D, c = self.config.d_model, self.config
    if not c.sinusoidal:
      self.embedding = self.param(
          'embedding',
          nn.initializers.normal(D**-0.5),
          (c.max_positions + c.position_offset, D),
      )

  def __call__(self, positions):
    """int [T] -> [T, D]."""
    c = self.config
    if c.sinusoidal:
      return c.sinusoids(positions).astype(self.dtype)
    return self.embedding.astype(self.dtype)[positions + c.position_offset]


class Positioned(nn.Module):
  """Adds positions and norms to a stack, the next class among the bases."""

  def setup(self):
    super().setup()
    c, nothing = self.config, lambda h: h
    make = lambda exists: c.make_norm(self.dtype) if exists else nothing
    self.position_embedding = PositionEmbedding(c, self.dtype)
    self.embedding_norm = make(c.has_embedding_norm)
    self.norm = make(c.norms_first)


class EncoderLayer(stack.Layer):
  """One layer of the encoder; a step of `nn.scan`."""

  def setup(self):
    super().setup()
    c = self.config
    self.self_attention = c.make_attention(self.dtype, c.num_heads)
    self.self_attention_norm = c.make_norm(self.dtype)

  def __call__(self, h, mask, deterministic, in_pieces=False):
    """h [B, L, D], mask [B, L] -> h, None; in_pieces: see `encoder`."""
    h = self.branch(
        h,
        self.self_attention_norm,
        lambda x: self.attend(x, mask, deterministic),
        deterministic,
    )
    return self.feed(h, deterministic, in_pieces), None

  def attend(self, h, mask, deterministic):
    """Self-attention without residual, [B, L, D]."""
    own = self.self_attention.keys_values(h)
    return self.self_attention.cross(h, *own, mask, deterministic)


class Encoder(Positioned):
  """Vectors of tokens [B, L, D], mask [B, L] -> states [B, L, D]."""

  config: BartConfig
  dtype: jnp.dtype
  remat: str

  LAYER = EncoderLayer

  def setup(self):
    super().setup()
    self.layers = stack.make_encoder_layers(
        self.LAYER, self.config, self.remat, self.dtype
    )
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def embed(self, h):
    """Vectors of tokens [B, L, D] -> with positions, normed, [B, L, D]."""
    check_length('inputs', h.shape[1], self.config)
    positions = self.position_embedding(jnp.arange(h.shape[1]))
    return stack.lay_read(self.embedding_norm(h + positions))

  def __call__(self, h, mask, deterministic):
    """h of `embed` -> states."""
    h = self.dropout(h, deterministic)
    *rows, L, _ = h.shape  # of a batch, or of its chunks
    in_pieces = not self.is_initializing() and stack.reads_in_pieces(
        self.config, self.remat, math.prod(rows), L
    )
    start, mask = self.start(h, mask)
    h, _ = self.layers(start, mask, deterministic, in_pieces)
    return self.norm(h[0] if isinstance(h, tuple) else h)

  def start(self, h, mask):
    """Returns the first layer's arguments: h, or a tuple with h first; mask."""
    return h, mask


class Decoder(Positioned, decoder_layers.Decoder):
  """The decoder, with positions and a norm before its layers."""

  def embed(self, h, positions):
    """Vectors of tokens [B, T, D], positions [T] -> h [B, T, D]."""
    check_length('targets', h.shape[1], self.config)
    h = h + self.position_embedding(positions)
    return stack.lay_written(self.embedding_norm(h))

  def bias(self, positions, keys, is_long=False):
    """None, or zeros [H, S]."""
    return (
        jnp.zeros((self.config.decoder_heads, keys.size)) if is_long else None
    )

  def finish(self, h, deterministic):
    """h, normed if norms are first."""
    del deterministic
    return self.norm(h)


class Bart(encoder_decoder.Model):
  """The model: encode, decode, cache, step; remat: see `models.build`."""

  config: BartConfig
  dtype: jnp.dtype = jnp.float32
  remat: str = 'auto'

  ENCODER = Encoder

  def setup(self):
    c = self.config
    self.token_embedding = layers.Embedding(
        c.vocab_size, c.d_model, self.dtype, c.d_model**-0.5
    )
    self.encoder = self.ENCODER(c, self.dtype, self.remat)
    self.decoder = Decoder(c.of_targets(), self.dtype, self.remat)
    self.copy_head = self.make_copy_head()
    self.logits = self.make_logits()
    self.logits_bias = 0.0
    if c.has_logits_bias:
      self.logits_bias = self.param(
          'logits_bias', nn.initializers.zeros, (c.vocab_size,)
      )

  def vectors(self, tokens):
    """int [...] -> [..., D], without positions."""
    h = self.token_embedding(tokens)
    return h * self.config.d_model**0.5 if self.config.scale_embedding else h

  def head(self, h):
    """h [..., D] -> float32 logits [..., V]."""
    own = self.logits or self.token_embedding.attend
    return own(h) + self.logits_bias

  def caches(self, memory, max_length):
    """(shared, per_row) of `stack.init_cache`."""
    check_length('targets', max_length, self.config.of_targets())
    return super().caches(memory, max_length)
