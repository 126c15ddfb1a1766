"""The decoder layers of T5 and BART: all targets at once, or step by step.

  T5    h += self(norm(h));     h += cross(norm(h));    h += ff(norm(h))
  BART  h = norm(h + self(h));  h = norm(h + cross(h)); h = norm(h + ff(h))

config.norms_first: as T5, which mBART and PEGASUS are, too. Dropout on every
branch. The config makes norms, attentions and feed-forwards.

Axes: B batch, L input length, T target length, S slots of a cache, D d_model,
H heads, K head dim, P segments, R rows of a decoding step.
"""

from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.models import stack
from locost_jax.ops import beam_attention
from locost_jax.ops import causal_attention
from locost_jax.ops import tokenwise


class DecoderLayer(stack.Layer):
  """One layer of the decoder, all targets at once or one step with a cache."""

  along = None

  def setup(self):
    super().setup()
    c, dtype = self.config, self.dtype
    self.self_attention_norm = c.make_norm(dtype)
    self.self_attention = c.make_attention(dtype, c.decoder_heads)
    self.cross_attention_norm = c.make_norm(dtype)
    self.cross_attention = c.make_attention(dtype, c.decoder_heads)

  def hidden_units(self):
    """Returns d_ff of this stack."""
    return self.config.decoder_d_ff

  def __call__(
      self,
      h,
      states,
      cross_mask,
      causal_mask,
      bias,
      deterministic,
      in_pieces=False,
  ):
    """All targets at once: h [B, T, D] -> h, None.

    Args:
      states: [B, L, D], the encoder's.
      cross_mask: [B, L], true at input tokens.
      causal_mask: [T, T], true up to the query's position; None: long targets.
      bias: [H, T, T], or None; for long targets [H, T], by distance.
      in_pieces: the feed-forward over pieces of T.
    """

    def attend(x):
      own = self.self_attention.keys_values(x)
      if causal_mask is None:
        return self.self_attention.causal(x, *own, bias, deterministic)
      return self.self_attention(x, *own, causal_mask, bias, deterministic)

    def cross(x):
      read = self.cross_attention.keys_values(states)
      return self.cross_attention.cross(x, *read, cross_mask, deterministic)

    h = self.branch(h, self.self_attention_norm, attend, deterministic)
    h = self.branch(h, self.cross_attention_norm, cross, deterministic)
    return self.feed(h, deterministic, in_pieces), None

  def traced(self, h, states, mask, segments, causal_mask, bias, num_segments):
    """`__call__` that also sums the cross-attention by segment.

    h, also in the result, is (h [B, T, D], mass [B, T, P]), to which this
    layer's is added; segments int [B, L], others as in `__call__`.
    """
    h, mass = h
    added = []

    def attend(x):
      own = self.self_attention.keys_values(x)
      return self.self_attention(x, *own, causal_mask, bias)

    def cross(x):
      x, own = self.cross_attention.traced(
          x, states, mask, segments, num_segments
      )
      added.append(own)
      return x

    h = self.branch(h, self.self_attention_norm, attend)
    h = self.branch(h, self.cross_attention_norm, cross)
    return (self.add(h), mass + added[0]), None

  def cross_cache(self, states):
    """states [B, L, D] -> states, keys and values [B, H, L, K]."""
    cache = self.cross_attention.keys_values(states)
    return states, tuple(x.swapaxes(1, 2) for x in cache)

  def step(self, h, own_parts, shared, per_row, seen, bias):
    """One token of a row: h [R, 1, D] -> h, and new keys, values [R, H, 1, K].

    Args:
      own_parts: the index of this layer and its cross-attention's keys and
        values [B, H, L, K]; row r reads document r // (R / B). None: 'states'
        are read instead.
      shared, per_row: of `stack.init_cache`, but with a scalar 'position'. For
        documents in pages the mask is [B, P, L]: then keys, values and states
        have B P rows, h has P rows per decoded row, and R is two axes of 'own'.
      seen, bias: of `Attention.step`.
    """
    layer, cross = own_parts
    own, position = per_row['own'], per_row['position']
    cross_mask = shared['mask']
    new = []

    def attend(x):
      new.extend(n.swapaxes(1, 2) for n in self.self_attention.keys_values(x))
      read = (
          _with_token(cache, layer, n, position) for cache, n in zip(own, new)
      )
      return self.self_attention.step(x, *read, seen, bias)

    def read(x):
      queries = by_document(x, cross_mask.shape[:-1])
      mask = cross_mask.reshape(-1, cross_mask.shape[-1])
      if cross is None:
        found = self.cross_attention.absorbed(queries, shared['states'], mask)
      else:
        found = self.cross_attention.cached(queries, *cross, mask)
      return by_row(found, cross_mask.shape[:-1])

    h = self.branch(h, self.self_attention_norm, attend)
    h = self.branch(h, self.cross_attention_norm, read)
    return self.add(h), tuple(new)


class Decoder(nn.Module):
  """Vectors of targets -> states [B, T, D], at once or step by step.

  A model's own decoder defines `embed` (vectors [B, T, D], positions [T] -> h),
  `bias` and `finish` (h after the last layer).
  """

  config: Any
  dtype: jnp.dtype
  remat: str

  def setup(self):
    layer = DecoderLayer
    if self.remat == 'full':
      layer = nn.remat(layer, prevent_cse=False, static_argnums=(6, 7))
    over = stack.stacked(self.config.num_decoder_layers, self.remat)
    # The axes of layers of four arguments and of the bias.
    own_bias = 0 if self.config.biases_per_layer else nn.broadcast
    axes = (nn.broadcast,) * 4 + (own_bias,)
    # Traced once: Flax's check is a second time, which advances random keys.
    once = dict(over, check_constancy_invariants=False)
    # Not unrolled, or XLA copies the caches, which it reads before the new keys
    # and values are written.
    step = dict(once, in_axes=(0, *axes[1:]), out_axes=1, unroll=1)
    self.layers = nn.scan(
        layer,
        methods={
            '__call__': dict(over, in_axes=axes[1:] + (nn.broadcast,) * 2),
            'cross_cache': once,
            'traced': dict(over, in_axes=(*axes, nn.broadcast)),
            'step': step,
        },
    )(self.config, self.dtype)
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def bias(self, positions, keys, is_long=False):
    """Positions [T] and [S] -> [H, T, S]; None: no bias.

    is_long: [H, S] instead, by the distance back to the key. All are [layers,
    ...] with config.biases_per_layer.
    """
    raise NotImplementedError

  def __call__(self, h, memory, deterministic):
    B, T, _ = h.shape
    positions, is_long = jnp.arange(T), causal_attention.is_long(T)
    in_pieces = (
        is_long
        and self.remat != 'none'
        and not self.is_initializing()
        and tokenwise.is_long(B, T)
    )
    h, _ = self.layers(
        self.dropout(self.embed(h, positions), deterministic),
        memory['states'],
        memory['mask'],
        None if is_long else _causal_mask(T),
        self.bias(positions, positions, is_long),
        deterministic,
        in_pieces,
    )
    return self.finish(h, deterministic)

  def traced(self, h, memory, segments, num_segments):
    """Vectors of targets [B, T, D] -> mass [B, T, P] of `Model.cross_mass`."""
    B, T, _ = h.shape
    positions = jnp.arange(T)
    precise = jnp.promote_types(h.dtype, jnp.float32)
    (_, mass), _ = self.layers.traced(
        (self.embed(h, positions), jnp.zeros((B, T, num_segments), precise)),
        memory['states'],
        memory['mask'],
        segments,
        _causal_mask(T),
        self.bias(positions, positions),
        num_segments,
    )
    return mass / self.config.num_decoder_layers

  def cross_cache(self, states):
    """states [B, L, D] -> keys and values [layers, B, H, L, K]."""
    return self.layers.cross_cache(states)[1]

  def step(self, h, shared, per_row, ancestors):
    """One token of each row: vectors h [R, 1, D] -> h [R, 1, D], per_row.

    Args:
      shared, per_row: of `stack.init_cache`.
      ancestors: int [B, beams, S] of `ops.beam_attention`; None: every row
        reads its own slot.
    """
    own, position = per_row['own'], per_row['position'][:1]
    slots = jnp.arange(own[0].shape[-2])
    if ancestors is None:
      seen = (slots <= position)[None, None, None]
    else:
      seen = beam_attention.is_seen(ancestors)
    h, new = self.layers.step(
        self.embed(h, position),
        (jnp.arange(self.config.num_decoder_layers), shared.get('cross')),
        {key: shared[key] for key in ('states', 'mask') if key in shared},
        {'own': own, 'position': position[0]},
        seen,
        self.bias(position, slots),
    )
    own = tuple(_write(x, n, position[0]) for x, n in zip(own, new))
    per_row = {'own': own, 'position': per_row['position'] + 1}
    return self.finish(h, True), per_row


def by_document(x, shape):
  """Groups the rows x [R, 1, D] that read one text: [B, R / B, D].

  shape (B,): row r reads document r // (R / B); (B, P): also page r % P of it,
  then [B P, R / (B P), D].
  """
  B, *pages = shape
  x = x.reshape(B, -1, *pages, x.shape[-1])
  if pages:
    x = x.swapaxes(1, 2)
  return x.reshape(-1, x.shape[-2], x.shape[-1])


def by_row(x, shape):
  """Undoes `by_document`: -> [R, 1, D]."""
  x = x.reshape(*shape, *x.shape[1:])
  if len(shape) == 2:
    x = x.swapaxes(1, 2)
  return x.reshape(-1, 1, x.shape[-1])


def _with_token(cache, layer, new, position):
  """A layer of a cache [..., layers, H, S, K] with new: [R, H, S, K]."""
  past = jax.lax.dynamic_index_in_dim(cache, layer, -4, keepdims=False)
  past = past.reshape(-1, *past.shape[-3:])
  is_new = jnp.arange(past.shape[2])[:, None] == position
  return jnp.where(is_new, new, past)


def _write(cache, new, position):
  """Puts new [R, layers, H, 1, K] into a cache, in place."""
  new = new.reshape(*cache.shape[:-2], 1, cache.shape[-1])
  return jax.lax.dynamic_update_slice_in_dim(cache, new, position, axis=-2)


def _causal_mask(T):
  """[T, T], true up to the query's position."""
  positions = jnp.arange(T)
  return positions[None, :] <= positions[:, None]
