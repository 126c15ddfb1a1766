"""The layers of BART, and what they are made of, for `models.bart`.

Encoder layer: h = norm(h + self(h));  h = norm(h + ff(h)).
Decoder layer: h = norm(h + self(h));  h = norm(h + cross(h));
               h = norm(h + ff(h)).

Layer norms with mean and bias, 1e-5 in the root; biases everywhere; queries
scaled by K^-1/2 after theirs; ff(x) = wo(gelu(wi x)) with the exact, erf, GELU.
Dropout on every branch, of its own rate on attention weights and hidden units.
"""

import dataclasses
import functools

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import attention
from locost_jax.models import layers
from locost_jax.models import mesh
from locost_jax.models import shell
from locost_jax.models import tokenwise

# Rows of the position tables in front of that of position 0. The published
# models have them and never read them.
OFFSET = 2


@dataclasses.dataclass(frozen=True)
class BartConfig:
  """What a BART has; configs/default.py explains the keys it shares.

  Attributes:
    decoder_d_ff: d_ff of the decoder.
    max_positions: most tokens of an input, and of a target.
    scale_embedding: whether vectors of tokens are multiplied by sqrt(D).
    pad_id: where inputs have it there is no token.
  """
  vocab_size: int
  d_model: int
  d_ff: int
  decoder_d_ff: int
  num_heads: int
  num_layers: int
  num_decoder_layers: int
  feed_forward: str
  dropout_rate: float
  attention_dropout_rate: float
  activation_dropout_rate: float
  max_positions: int
  scale_embedding: bool
  pad_id: int

  FEED_FORWARDS = ('gelu',)

  def __post_init__(self):
    if self.d_model % self.num_heads:
      raise InputError(f'model.d_model={self.d_model} must be divisible by '
                       f'model.num_heads={self.num_heads}')
    if self.pad_id >= self.vocab_size:
      raise InputError(f'model.pad_id={self.pad_id} must be below '
                       f'model.vocab_size={self.vocab_size}')

  @property
  def d_kv(self):
    """K, width of one attention head."""
    return self.d_model // self.num_heads

  def keys_seen(self, length):
    """Keys that a query of the encoder is multiplied with."""
    return length


def check_length(what, length, config):
  """Raises an InputError where there are fewer positions than tokens."""
  if length > config.max_positions:
    raise InputError(f"{what} have {length} tokens, this model's positions end "
                     f'at max_positions={config.max_positions}')


def make_norm(dtype):
  # flax's fast variance, E[x^2] - E[x]^2, loses digits where means are large.
  return nn.LayerNorm(1e-5, dtype=dtype, use_fast_variance=False)


def make_attention(config, dtype):
  c = config
  return attention.Attention(
      c.num_heads, c.d_kv, c.d_model, c.attention_dropout_rate, dtype,
      use_bias=True, scale=c.d_kv**-0.5)


class PositionEmbedding(nn.Module):
  """Learned vectors of positions, N(0, 1 / D)."""
  config: BartConfig
  dtype: jnp.dtype

  def setup(self):
    D = self.config.d_model
    self.embedding = self.param('embedding', layers.normal(D**-0.5),
                                (self.config.max_positions + OFFSET, D))

  def __call__(self, positions):
    """int [T] -> [T, D]."""
    return self.embedding.astype(self.dtype)[positions + OFFSET]


class FeedForward(nn.Module):
  """[..., D] -> [..., D] through d_ff hidden units."""
  d_ff: int
  dropout_rate: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x, deterministic):
    D, F = x.shape[-1], self.d_ff
    dense = functools.partial(layers.dense, dtype=self.dtype, use_bias=True)
    hidden = nn.gelu(dense(F, D**-0.5, name='wi')(x), approximate=False)
    hidden = nn.Dropout(self.dropout_rate)(hidden, deterministic)
    return dense(D, F**-0.5, name='wo')(hidden)


class EncoderLayer(nn.Module):
  """One layer of the encoder; a step of `nn.scan`."""
  config: BartConfig
  dtype: jnp.dtype

  def setup(self):
    c = self.config
    self.self_attention = make_attention(c, self.dtype)
    self.self_attention_norm = make_norm(self.dtype)
    self.feed_forward = FeedForward(
        c.d_ff, c.activation_dropout_rate, self.dtype)
    self.feed_forward_norm = make_norm(self.dtype)
    self.dropout = nn.Dropout(c.dropout_rate)

  def __call__(self, h, mask, deterministic, in_pieces=False):
    """h [B, L, D], mask [B, L] -> h [B, L, D], None.

    in_pieces: the feed-forward over pieces of the length; dropout is then drawn
    otherwise. Not to make parameters with.
    """
    own = self.self_attention.keys_values(h)
    x = self.self_attention.cross(h, *own, mask, deterministic)
    x = self.dropout(x, deterministic)
    h = shell.lay_read(self.self_attention_norm(h + x))
    if in_pieces:
      return tokenwise.method(
          self, 'add', h, along=mesh.SEQUENCE,
          draws=draws(self.config, deterministic)), None
    return self.add(h, deterministic), None

  def add(self, h, deterministic=True):
    """The feed-forward and its norm, [B, L, D]."""
    x = self.dropout(self.feed_forward(h, deterministic), deterministic)
    return shell.lay_read(self.feed_forward_norm(h + x))


def draws(config, deterministic):
  """Whether `add` of a layer needs random numbers."""
  return not deterministic and bool(
      config.dropout_rate or config.activation_dropout_rate)


class DecoderLayer(nn.Module):
  """One layer of the decoder, all targets at once or one step with a cache."""
  config: BartConfig
  dtype: jnp.dtype

  def setup(self):
    c = self.config
    self.self_attention = make_attention(c, self.dtype)
    self.self_attention_norm = make_norm(self.dtype)
    self.cross_attention = make_attention(c, self.dtype)
    self.cross_attention_norm = make_norm(self.dtype)
    self.feed_forward = FeedForward(
        c.decoder_d_ff, c.activation_dropout_rate, self.dtype)
    self.feed_forward_norm = make_norm(self.dtype)
    self.dropout = nn.Dropout(c.dropout_rate)

  def __call__(self, h, states, cross_mask, causal_mask, deterministic,
               in_pieces=False):
    """All targets at once.

    Args:
      h: [B, T, D].
      states: [B, L, D], the encoder's.
      cross_mask: [B, L], true at input tokens.
      causal_mask: [T, T], true up to the query's position; None: long targets.
      deterministic: no dropout.
      in_pieces: the feed-forward over pieces of T.

    Returns:
      h [B, T, D], None.
    """
    own = self.self_attention.keys_values(h)
    if causal_mask is None:
      unbiased = jnp.zeros((self.config.num_heads, h.shape[1]))
      x = self.self_attention.causal(h, *own, unbiased, deterministic)
    else:
      x = self.self_attention(h, *own, causal_mask, None, deterministic)
    x = self.dropout(x, deterministic)
    h = shell.lay_written(self.self_attention_norm(h + x))
    cross = self.cross_attention.keys_values(states)
    x = self.cross_attention.cross(h, *cross, cross_mask, deterministic)
    x = self.dropout(x, deterministic)
    h = shell.lay_written(self.cross_attention_norm(h + x))
    if in_pieces:
      return tokenwise.method(
          self, 'add', h, draws=draws(self.config, deterministic)), None
    return self.add(h, deterministic), None

  def add(self, h, deterministic=True):
    """The feed-forward and its norm, [B, T, D]."""
    x = self.dropout(self.feed_forward(h, deterministic), deterministic)
    return shell.lay_written(self.feed_forward_norm(h + x))

  def traced(self, h, states, mask, segments, causal_mask, num_segments):
    """As `__call__`, and where the cross-attention falls.

    Args:
      h: (h [B, T, D], mass [B, T, P]).
      states: [B, L, D], the encoder's.
      mask: bool [B, L].
      segments: int [B, L].
      causal_mask: [T, T].
      num_segments: P.

    Returns:
      (h, mass with this layer's added), None.
    """
    h, mass = h
    own = self.self_attention.keys_values(h)
    h = self.self_attention_norm(
        h + self.self_attention(h, *own, causal_mask))
    x, added = self.cross_attention.traced(
        h, states, mask, segments, num_segments)
    return (self.add(self.cross_attention_norm(h + x)), mass + added), None

  def cross_cache(self, states):
    """states [B, L, D] -> states, keys and values [B, L, H, K]."""
    return states, self.cross_attention.keys_values(states)

  def step(self, h, cross, own, states, cross_mask, own_mask, position):
    """One token of each row.

    Args:
      h: [R, 1, D].
      cross: keys and values [B, L, H, K]; row r reads document r // (R / B).
        None: the states are read in their place.
      own: keys and values [R, S, H, K] of the tokens so far.
      states: [B, L, D], or None where there is cross.
      cross_mask: [B, L].
      own_mask: [S], true up to the position.
      position: scalar, where this token's keys and values go.

    Returns:
      h [R, 1, D] and the new own.
    """
    new = self.self_attention.keys_values(h)
    own = tuple(old.at[:, position].set(n[:, 0]) for old, n in zip(own, new))
    h = self.self_attention_norm(h + self.self_attention(h, *own, own_mask))
    # The rows of one document are the queries of one attention.
    x = h.reshape(cross_mask.shape[0], -1, h.shape[-1])
    if cross is None:
      x = self.cross_attention.absorbed(x, states, cross_mask)
    else:
      x = self.cross_attention(x, *cross, cross_mask[:, None, None, :])
    return self.add(self.cross_attention_norm(h + x.reshape(h.shape))), own
