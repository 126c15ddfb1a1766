"""The T5-style encoder-decoder shell around any token mixer.

Encoder layer:  h += mixer(rms(h));  h += ff(rms(h)).
Decoder layer:  h += self(rms(h));   h += cross(rms(h));   h += ff(rms(h)).
RMS norm at the end of both stacks; dropout on every branch, on the embeddings
and after the final norms; no absolute positions; a relative bias shared by the
decoder's layers. Tied output layer: logits = (h D^-1/2) E^T.
(Raffel et al. 2020, section 2.1; LOCOST, section 4.2.)

Axis letters of the project: B batch, L input length, T target length, S
key/value length, D d_model, F d_ff, H heads, K head dim, N complex state pairs,
V vocabulary, P pages, C chunks, R = B * beams rows of a decoding step.
"""

import functools
from typing import Any, Callable

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import attention
from locost_jax.models import causal_attention
from locost_jax.models import layers
from locost_jax.models import long_attention
from locost_jax.models import mesh
from locost_jax.models import shell
from locost_jax.models import tokenwise

PAD_ID = 0


class EncoderLayer(nn.Module):
  """One layer of the encoder; a step of `nn.scan`."""
  config: shell.ShellConfig
  make_mixer: Callable[..., nn.Module]
  dtype: jnp.dtype

  def setup(self):
    self.mixer_norm = shell.make_norm(self.config, self.dtype)
    self.mixer = self.make_mixer(self.config, self.dtype)
    self.feed_forward_norm = shell.make_norm(self.config, self.dtype)
    self.feed_forward = shell.make_feed_forward(self.config, self.dtype)
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def __call__(self, h, mask, deterministic, in_pieces=False):
    """h [B, L, D], mask [B, L] -> h [B, L, D], None.

    in_pieces: all but the mixer's `mix` over pieces of the length, where only
    h, the mixer's input and its output are kept for the backward pass; dropout
    is then drawn otherwise. Not to make parameters with.
    """
    if in_pieces:
      return self.in_pieces(h, mask, deterministic), None
    x = self.mixer(self.mixer_norm(h), mask)
    return self.add(h, x, deterministic), None

  def in_pieces(self, h, mask, deterministic):
    """`__call__` over pieces of the length."""
    run = functools.partial(tokenwise.method, self, along=mesh.SEQUENCE)
    u = run('inward', h, mask)
    draws = bool(self.config.dropout_rate) and not deterministic
    return run('outward', h, self.mix(u, lean=True), draws=draws)

  def add(self, h, x, deterministic):
    """h + the mixer's output x + the feed-forward, [B, L, D]."""
    h = shell.lay_read(h + self.dropout(x, deterministic))
    x = self.feed_forward(self.feed_forward_norm(h), deterministic)
    return shell.lay_read(h + self.dropout(x, deterministic))

  def inward(self, h, mask):
    """The layer up to its mixer's `mix`: h [B, L, D], mask [B, L] -> u."""
    return self.mixer.inward(self.mixer_norm(h), mask)

  def mix(self, u, spectrum=None, lean=False):
    """The part that looks at other tokens: u -> y [B, L, D]."""
    return self.mixer.mix(u, spectrum, lean)

  def outward(self, h, y, deterministic=True):
    """The layer from there on: h, y [B, L, D] -> h."""
    x = self.mixer.outward(self.mixer_norm(h), y)
    return self.add(h, x, deterministic)

  def spectra(self, length):
    """The mixer's kernels for inputs of this length, ready for `mix`."""
    return self.mixer.spectra(length)


class Encoder(nn.Module):
  """Embedded tokens h [B, L, D], mask [B, L] -> states [B, L, D]."""
  config: shell.ShellConfig
  make_mixer: Callable[..., nn.Module]
  dtype: jnp.dtype
  remat: str

  def setup(self):
    layer = EncoderLayer
    if self.remat == 'full':
      layer = nn.remat(layer, prevent_cse=False, static_argnums=(3, 4))
    self.layers = nn.scan(
        layer, in_axes=nn.broadcast,
        **shell.stacked(self.config.num_layers, self.remat),
    )(self.config, self.make_mixer, self.dtype)
    self.norm = shell.make_norm(self.config, self.dtype)
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def __call__(self, h, mask, deterministic):
    h = self.dropout(h, deterministic)
    in_pieces = not self.is_initializing() and self.is_in_pieces(*h.shape[:2])
    h, _ = self.layers(h, mask, deterministic, in_pieces)
    return self.dropout(self.norm(h), deterministic)

  def is_in_pieces(self, B, L):
    """Whether layers run over pieces of inputs [B, L]."""
    along = mesh.SEQUENCE
    if self.remat == 'none' or not hasattr(self.make_mixer, 'mix') or (
        not tokenwise.is_long(B, L, along)):
      return False
    return self.remat != 'auto' or shell.kept_bytes(
        self.config, *tokenwise.on_device(B, L, along)) > shell.AUTO_BYTES


class DecoderLayer(nn.Module):
  """One layer of the decoder, all targets at once or one step with a cache."""
  config: shell.ShellConfig
  dtype: jnp.dtype

  def setup(self):
    self.self_attention_norm = shell.make_norm(self.config, self.dtype)
    self.self_attention = shell.make_attention(self.config, self.dtype)
    self.cross_attention_norm = shell.make_norm(self.config, self.dtype)
    self.cross_attention = shell.make_attention(self.config, self.dtype)
    self.feed_forward_norm = shell.make_norm(self.config, self.dtype)
    self.feed_forward = shell.make_feed_forward(self.config, self.dtype)
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def __call__(self, h, states, cross_mask, causal_mask, bias, deterministic,
               in_pieces=False):
    """All targets at once.

    Args:
      h: [B, T, D].
      states: [B, L, D], the encoder's.
      cross_mask: [B, L], true at input tokens.
      causal_mask: [T, T], true up to the query's position; None: long targets.
      bias: [H, T, T]; for long targets [H, T], by distance.
      deterministic: no dropout.
      in_pieces: the feed-forward over pieces of T.

    Returns:
      h [B, T, D], None.
    """
    x = self.self_attention_norm(h)
    own = self.self_attention.keys_values(x)
    if causal_mask is None:
      x = self.self_attention.causal(x, *own, bias, deterministic)
    else:
      x = self.self_attention(x, *own, causal_mask, bias, deterministic)
    h = shell.lay_written(h + self.dropout(x, deterministic))
    x = self.cross_attention_norm(h)
    cross = self.cross_attention.keys_values(states)
    x = self.cross_attention.cross(x, *cross, cross_mask, deterministic)
    h = shell.lay_written(h + self.dropout(x, deterministic))
    if in_pieces:
      draws = bool(self.config.dropout_rate) and not deterministic
      return tokenwise.method(self, 'add', h, draws=draws), None
    return self.add(h, deterministic), None

  def add(self, h, deterministic=True):
    """h + the feed-forward, [B, T, D]."""
    x = self.feed_forward(self.feed_forward_norm(h), deterministic)
    return shell.lay_written(h + self.dropout(x, deterministic))

  def traced(self, h, states, mask, segments, causal_mask, bias, num_segments):
    """As `__call__`, and where the cross-attention falls.

    Args:
      h: (h [B, T, D], mass [B, T, P]).
      states: [B, L, D], the encoder's.
      mask: bool [B, L].
      segments: int [B, L].
      causal_mask: [T, T].
      bias: [H, T, T].
      num_segments: P.

    Returns:
      (h, mass with this layer's added), None.
    """
    h, mass = h
    x = self.self_attention_norm(h)
    own = self.self_attention.keys_values(x)
    h = h + self.self_attention(x, *own, causal_mask, bias)
    x, added = self.cross_attention.traced(
        self.cross_attention_norm(h), states, mask, segments, num_segments)
    h = h + x
    h = h + self.feed_forward(self.feed_forward_norm(h), True)
    return (h, mass + added), None

  def cross_cache(self, states):
    """states [B, L, D] -> states, keys and values [B, L, H, K]."""
    return states, self.cross_attention.keys_values(states)

  def step(self, h, cross, own, states, cross_mask, own_mask, bias, position):
    """One token of each row.

    Args:
      h: [R, 1, D].
      cross: keys and values [B, L, H, K]; row r reads document r // (R / B).
        None: the states are read in their place.
      own: keys and values [R, S, H, K] of the tokens so far.
      states: [B, L, D], or None where there is cross.
      cross_mask: [B, L].
      own_mask: [S], true up to the position.
      bias: [H, 1, S].
      position: scalar, where this token's keys and values go.

    Returns:
      h [R, 1, D] and the new own.
    """
    x = self.self_attention_norm(h)
    new = self.self_attention.keys_values(x)
    own = tuple(old.at[:, position].set(n[:, 0]) for old, n in zip(own, new))
    h = h + self.self_attention(x, *own, own_mask, bias)
    x = self.cross_attention_norm(h)
    # The rows of one document are the queries of one attention.
    x = x.reshape(cross_mask.shape[0], -1, x.shape[-1])
    if cross is None:
      x = self.cross_attention.absorbed(x, states, cross_mask)
    else:
      x = self.cross_attention(x, *cross, cross_mask[:, None, None, :])
    h = h + x.reshape(h.shape)
    return h + self.feed_forward(self.feed_forward_norm(h), True), own


class Decoder(nn.Module):
  """Embedded targets -> states [B, T, D], at once or step by step."""
  config: shell.ShellConfig
  dtype: jnp.dtype
  remat: str

  def setup(self):
    c = self.config
    layer = DecoderLayer
    if self.remat == 'full':
      layer = nn.remat(layer, prevent_cse=False, static_argnums=(6, 7))
    over = shell.stacked(c.num_decoder_layers, self.remat)
    self.layers = nn.scan(layer, methods={
        '__call__': dict(over, in_axes=nn.broadcast),
        'cross_cache': over,
        'traced': dict(over, in_axes=nn.broadcast),
        'step': dict(over, in_axes=(0, 1) + (nn.broadcast,) * 5, out_axes=1),
    })(c, self.dtype)
    self.relative_bias = attention.RelativeBias(
        c.num_heads, c.relative_attention_num_buckets,
        c.relative_attention_max_distance, False, c.d_model**-0.5)
    self.norm = shell.make_norm(c, self.dtype)
    self.dropout = nn.Dropout(c.dropout_rate)

  def __call__(self, h, memory, deterministic):
    h = self.dropout(h, deterministic)
    B, T, _ = h.shape
    positions = jnp.arange(T)
    if causal_attention.is_long(T):
      causal_mask, bias = None, self.relative_bias.of_distance(-positions).T
    else:
      causal_mask = positions[None, :] <= positions[:, None]
      bias = self.relative_bias(positions, positions)
    in_pieces = (causal_mask is None and self.remat != 'none'
                 and not self.is_initializing() and tokenwise.is_long(B, T))
    h, _ = self.layers(h, memory['states'], memory['mask'], causal_mask, bias,
                       deterministic, in_pieces)
    return self.dropout(self.norm(h), deterministic)

  def traced(self, h, memory, segments, num_segments):
    """Embedded targets h [B, T, D] -> mass [B, T, P] of `cross_mass`."""
    positions = jnp.arange(h.shape[1])
    causal_mask = positions[None, :] <= positions[:, None]
    mass = jnp.zeros((*h.shape[:2], num_segments),
                     jnp.promote_types(h.dtype, jnp.float32))
    (_, mass), _ = self.layers.traced(
        (h, mass), memory['states'], memory['mask'], segments, causal_mask,
        self.relative_bias(positions, positions), num_segments)
    return mass / self.config.num_decoder_layers

  def cross_cache(self, states):
    """states [B, L, D] -> keys and values [layers, B, L, H, K]."""
    return self.layers.cross_cache(states)[1]

  def step(self, h, shared, per_row):
    """h [R, 1, D] -> h [R, 1, D], per_row; the caches of `init_cache`."""
    own, position = per_row['own'], per_row['position'][0]
    slots = jnp.arange(own[0].shape[2])
    h, own = self.layers.step(
        h, shared.get('cross'), own, shared.get('states'), shared['mask'],
        slots <= position, self.relative_bias(position[None], slots), position)
    return self.norm(h), {'own': own, 'position': per_row['position'] + 1}


class EncoderDecoder(nn.Module):
  """The model every part of the house knows: encode, decode, cache, step.

  Attributes:
    config: a ShellConfig or one that extends it.
    make_mixer: (config, dtype) -> a module (x [B, L, D], mask [B, L]) -> x.
    dtype: of matmuls and activations.
    remat: what the backward pass keeps of a layer; see `models.build`.
  """
  config: Any
  make_mixer: Callable[..., nn.Module]
  dtype: jnp.dtype = jnp.float32
  remat: str = 'auto'

  def setup(self):
    c = self.config
    self.token_embedding = layers.Embedding(
        c.vocab_size, c.d_model, self.dtype)
    self.encoder = Encoder(c, self.make_mixer, self.dtype, self.remat)
    self.decoder = Decoder(c, self.dtype, self.remat)
    if not c.tie_embeddings:
      self.logits = layers.dense(
          c.vocab_size, c.d_model**-0.5, self.dtype, 'logits')

  def __call__(self, inputs, targets_in, input_mask=None, deterministic=True):
    """inputs [B, L], targets_in [B, T] -> float32 logits [B, T, V]."""
    memory = self.encode(inputs, input_mask, deterministic)
    return self.decode(memory, targets_in, deterministic)

  def encode(self, inputs, input_mask=None, deterministic=True):
    """Reads the documents.

    Args:
      inputs: [B, L] token ids.
      input_mask: [B, L], true at tokens; None: where inputs are not pad.
      deterministic: no dropout.

    Returns:
      {'states': [B, L, D], 'mask': bool [B, L]}.
    """
    h, mask = self.embed(inputs, input_mask)
    return {'states': self.encoder(h, mask, deterministic), 'mask': mask}

  def embed(self, inputs, input_mask=None):
    """Inputs and mask of `encode` -> h [B, L, D], bool mask [B, L]."""
    mask = inputs != PAD_ID if input_mask is None else input_mask.astype(bool)
    return shell.lay_read(self.token_embedding(inputs)), mask

  def states(self, inputs, targets_in, input_mask=None, deterministic=True):
    """`__call__` up to the `head`: the decoder's states [B, T, D]."""
    memory = self.encode(inputs, input_mask, deterministic)
    h = shell.lay_written(self.token_embedding(targets_in))
    return self.decoder(h, memory, deterministic)

  def decode(self, memory, targets_in, deterministic=True):
    """targets_in [B, T], starting with the start id -> logits [B, T, V]."""
    h = shell.lay_written(self.token_embedding(targets_in))
    return self.head(self.decoder(h, memory, deterministic))

  def cross_mass(self, memory, targets_in, segments, num_segments):
    """Where the decoder looks while it writes.

    Args:
      memory: of `encode`.
      targets_in: [B, T], starting with the start id.
      segments: int [B, L], the segment of each input token, in [0, P), not
        decreasing.
      num_segments: P.

    Returns:
      float32 [B, T, P]: of the cross-attention of position t, averaged over
      heads and layers, the part that falls on segment p. Rows sum to 1.
    """
    return self.decoder.traced(
        self.token_embedding(targets_in), memory, segments, num_segments)

  def head(self, h):
    """h [..., D] -> float32 logits [..., V]."""
    if self.config.tie_embeddings:
      logits = self.token_embedding.attend(h * self.config.d_model**-0.5)
    else:
      logits = self.logits(h)
    return layers.at_least_float32(logits)

  def init_cache(self, memory, max_length):
    """The caches of a decoding of at most max_length tokens.

    Returns:
      (shared, per_row). shared belongs to the documents and is only read:
      the mask and either 'cross', keys and values [layers, B, L, H, K], or,
      for L >= long_attention.ABSORBED, 'states' [B, L, D]. per_row changes
      with every step and has rows as the first axis of every leaf: own keys
      and values [B, layers, max_length, H, K] and the position [B].
    """
    c, (B, L, _) = self.config, memory['states'].shape
    if L >= long_attention.ABSORBED:
      shared = {'states': memory['states'], 'mask': memory['mask']}
    else:
      shared = {'cross': self.decoder.cross_cache(memory['states']),
                'mask': memory['mask']}
    shape = B, c.num_decoder_layers, max_length, c.num_heads, c.d_kv
    own = jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype)
    return shared, {'own': own, 'position': jnp.zeros(B, jnp.int32)}

  def step(self, tokens, shared, per_row):
    """One token of every row: tokens [R] -> (logits [R, V], per_row)."""
    h = self.token_embedding(tokens)[:, None]
    h, per_row = self.decoder.step(h, shared, per_row)
    return self.head(h)[:, 0], per_row
