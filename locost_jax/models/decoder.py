"""The decoder of the T5 family: all targets at once, or step by step.

Layer:  h += self(rms(h));   h += cross(rms(h));   h += ff(rms(h)).
A relative bias that all layers share; RMS norm at the end; dropout as in the
encoder (Raffel et al. 2020, section 2.1). `decoder_layers` has the layers.

Axes: B batch, T target length, D d_model, P segments, R rows of a decoding
step.
"""

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import attention
from locost_jax.models import decoder_layers
from locost_jax.models import stack
from locost_jax.ops import causal_attention

PARTS = decoder_layers.Parts(
    stack.make_norm,
    stack.make_attention,
    stack.make_feed_forward,
    norms_first=True,
    has_dropout=lambda config: bool(config.dropout_rate),
)


class Decoder(nn.Module):
  """Embedded targets -> states [B, T, D], at once or step by step."""

  config: stack.T5StyleConfig
  dtype: jnp.dtype
  remat: str

  def setup(self):
    c = self.config
    self.stack = decoder_layers.DecoderLayers(c, self.dtype, self.remat, PARTS)
    nn.share_scope(self, self.stack)  # decoder/layers, not decoder/stack/layers
    self.relative_bias = attention.RelativeBias(
        c.num_heads,
        c.relative_attention_num_buckets,
        c.relative_attention_max_distance,
        False,
        c.d_model**-0.5,
    )
    self.norm = stack.make_norm(c, self.dtype)
    self.dropout = nn.Dropout(c.dropout_rate)

  def __call__(self, h, memory, deterministic):
    h = self.dropout(stack.lay_written(h), deterministic)
    positions = jnp.arange(h.shape[1])
    if causal_attention.is_long(h.shape[1]):
      bias = self.relative_bias.of_distance(-positions).T
    else:
      bias = self.relative_bias(positions, positions)
    h = self.stack(h, memory, bias, deterministic)
    return self.dropout(self.norm(h), deterministic)

  def traced(self, h, memory, segments, num_segments):
    """Embedded targets h [B, T, D] -> mass [B, T, P] of `cross_mass`."""
    positions = jnp.arange(h.shape[1])
    bias = self.relative_bias(positions, positions)
    return self.stack.traced(h, memory, segments, num_segments, bias)

  def cross_cache(self, states):
    """states [B, L, D] -> keys and values [layers, B, H, L, K]."""
    return self.stack.cross_cache(states)

  def step(self, h, shared, per_row, ancestors):
    """h [R, 1, D] -> h [R, 1, D], per_row; the caches of `init_cache`."""
    position = per_row['position'][0]
    positions = jnp.arange(per_row['own'][0].shape[-2])
    bias = self.relative_bias(position[None], positions)
    h, per_row = self.stack.step(h, shared, per_row, ancestors, bias)
    return self.norm(h), per_row
