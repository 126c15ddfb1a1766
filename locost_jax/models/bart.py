"""BART (Lewis et al. 2020): an encoder-decoder with norms after its branches.

Embedding of both stacks: h = norm(s E[token] + P[position + 2]), s = sqrt(D) or
1, with positions P per stack. They count from 0 in every row, padding included.
Logits: h E^T + bias. `models.bart_layers` has the layers.

Interface and axis letters are those of `encoder_decoder.EncoderDecoder`.
"""

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import bart_layers
from locost_jax.models import copy_head
from locost_jax.models import decoder_layers
from locost_jax.models import layers
from locost_jax.models import stack
from locost_jax.ops import causal_attention


class Encoder(nn.Module):
  """Vectors of tokens [B, L, D], mask [B, L] -> states [B, L, D]."""

  config: bart_layers.BartConfig
  dtype: jnp.dtype
  remat: str

  LAYER = bart_layers.EncoderLayer

  def setup(self):
    layer = self.LAYER
    if self.remat == 'full':
      layer = nn.remat(layer, prevent_cse=False, static_argnums=(3, 4))
    self.layers = nn.scan(
        layer,
        in_axes=nn.broadcast,
        **stack.stacked(self.config.num_layers, self.remat),
    )(self.config, self.dtype)
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


class Decoder(nn.Module):
  """Vectors of targets -> states [B, T, D], at once or step by step."""

  config: bart_layers.BartConfig
  dtype: jnp.dtype
  remat: str

  def setup(self):
    c = self.config
    self.stack = decoder_layers.DecoderLayers(
        c, self.dtype, self.remat, bart_layers.PARTS
    )
    nn.share_scope(self, self.stack)  # decoder/layers, not decoder/stack/layers
    self.position_embedding = bart_layers.PositionEmbedding(c, self.dtype)
    self.embedding_norm = bart_layers.make_norm(self.dtype)
    self.dropout = nn.Dropout(c.dropout_rate)

  def embed(self, h, positions):
    """Vectors of tokens [B, T, D], positions [T] -> h [B, T, D]."""
    h = h + self.position_embedding(positions)
    return stack.lay_written(self.embedding_norm(h))

  def __call__(self, h, memory, deterministic):
    T = h.shape[1]
    bart_layers.check_length('targets', T, self.config)
    h = self.dropout(self.embed(h, jnp.arange(T)), deterministic)
    unbiased = None
    if causal_attention.is_long(T):
      unbiased = jnp.zeros((self.config.decoder_heads, T))
    return self.stack(h, memory, unbiased, deterministic)

  def traced(self, h, memory, segments, num_segments):
    """Vectors of targets [B, T, D] -> mass [B, T, P] of `cross_mass`."""
    T = h.shape[1]
    bart_layers.check_length('targets', T, self.config)
    h = self.embed(h, jnp.arange(T))
    return self.stack.traced(h, memory, segments, num_segments, None)

  def cross_cache(self, states):
    """states [B, L, D] -> keys and values [layers, B, H, L, K]."""
    return self.stack.cross_cache(states)

  def step(self, h, shared, per_row, ancestors):
    """Vectors [R, 1, D] -> h [R, 1, D], per_row; caches of `init_cache`."""
    h = self.embed(h, per_row['position'][:1])
    return self.stack.step(h, shared, per_row, ancestors, None)


class Bart(copy_head.CopyingModel):
  """The model: encode, decode, cache, step.

  Attributes:
    config: a bart_layers.BartConfig.
    dtype: of matmuls and activations.
    remat: what the backward pass keeps of a layer; see `models.build`.
  """

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

  def __call__(self, inputs, targets_in, input_mask=None, deterministic=True):
    """inputs [B, L], targets_in [B, T] -> float32 logits [B, T, V]."""
    return self.predict(
        *self.states(inputs, targets_in, input_mask, deterministic)
    )

  def encode(self, inputs, input_mask=None, deterministic=True):
    """Reads the documents.

    Args:
      inputs: [B, L] token ids.
      input_mask: [B, L], true at tokens; None: where inputs are not pad_id.

    Returns:
      {'states': [B, L, D], 'mask': bool [B, L]}, and what
      `copy_head.with_tokens` adds.

    Raises:
      InputError: more tokens than positions; likewise of targets below.
    """
    h, mask = self.embed(inputs, input_mask)
    memory = {'states': self.encoder(h, mask, deterministic), 'mask': mask}
    return copy_head.with_tokens(self.config, memory, inputs)

  def embed(self, inputs, input_mask=None):
    """Inputs and mask of `encode` -> h [B, L, D], bool mask [B, L]."""
    mask = (
        inputs != self.config.pad_id
        if input_mask is None
        else input_mask.astype(bool)
    )
    return self.encoder.embed(self.vectors(inputs)), mask

  def vectors(self, tokens):
    """int [...] -> [..., D], without positions."""
    h = self.token_embedding(tokens)
    return h * self.config.d_model**0.5 if self.config.scale_embedding else h

  def states(self, inputs, targets_in, input_mask=None, deterministic=True):
    """The arguments of `predict`: states [B, T, D] and the source."""
    memory = self.encode(inputs, input_mask, deterministic)
    return self.decoder_states(memory, targets_in, deterministic)

  def decoder_states(self, memory, targets_in, deterministic=True):
    """memory of `encode`, targets_in [B, T] -> see `states`."""
    h = self.decoder(self.vectors(targets_in), memory, deterministic)
    return self.written(h, targets_in), self.source(memory)

  def decode(self, memory, targets_in, deterministic=True):
    """targets_in [B, T], starting with the start id -> logits [B, T, V]."""
    return self.predict(*self.decoder_states(memory, targets_in, deterministic))

  def cross_mass(self, memory, targets_in, segments, num_segments):
    """Where the decoder looks while it writes: [B, T, P].

    Arguments and result as in `encoder_decoder.EncoderDecoder.cross_mass`.
    """
    return self.decoder.traced(
        self.vectors(targets_in), memory, segments, num_segments
    )

  def head(self, h):
    """h [..., D] -> float32 logits [..., V]."""
    return self.token_embedding.attend(h) + self.logits_bias

  def init_cache(self, memory, max_length):
    """(shared, per_row) of `stack.init_cache`, with the `source`."""
    return self.with_source(*self.caches(memory, max_length), memory)

  def caches(self, memory, max_length):
    """(shared, per_row) of `stack.init_cache`."""
    bart_layers.check_length('targets', max_length, self.config)
    return stack.init_cache(
        self.config, self.dtype, memory, self.decoder.cross_cache, max_length
    )

  def step(self, tokens, shared, per_row, ancestors=None):
    """`encoder_decoder.EncoderDecoder.step`."""
    h, caches = self.decoder.step(
        self.vectors(tokens)[:, None], shared, per_row, ancestors
    )
    return self.predict_next(h, tokens, shared, per_row, caches)
