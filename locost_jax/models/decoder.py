"""The decoder of the T5 family: all targets at once, or step by step.

Layer:  h += self(rms(h));   h += cross(rms(h));   h += ff(rms(h)).
A relative bias that all layers share; RMS norm at the end; dropout as in the
encoder (Raffel et al. 2020, section 2.1).

Axes: B batch, L input length, T target length, S slots of a cache, D d_model,
H heads, K head dim, P segments, R rows of a decoding step.
"""

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import attention
from locost_jax.models import causal_attention
from locost_jax.models import shell
from locost_jax.models import tokenwise


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
