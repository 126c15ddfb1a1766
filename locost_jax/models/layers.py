"""Norms, feed-forwards and dropout of the T5 family.

RMS norm: w x rsqrt(mean(x^2) + eps), variance in float32, no mean, no bias.
Feed-forward: wo(gelu(wi_0 x) * wi_1 x), or wo(relu(wi x)) (Shazeer 2020).
"""

from flax import linen as nn
import jax
import jax.numpy as jnp


def at_least_float32(x):
  """x in float32, or in its own precision where that is higher."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def normal(stddev):
  """Initialiser N(0, stddev^2)."""
  return nn.initializers.normal(stddev)


def dense(features, stddev, dtype, name):
  """A bias-free projection to `features` with N(0, stddev^2) weights."""
  return nn.Dense(features, use_bias=False, dtype=dtype, name=name,
                  kernel_init=normal(stddev))


class RMSNorm(nn.Module):
  """T5's layer norm: [..., D] -> [..., D] in dtype."""
  epsilon: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x):
    scale = self.param('scale', nn.initializers.ones, (x.shape[-1],))
    x = at_least_float32(x)
    variance = jnp.mean(x**2, axis=-1, keepdims=True)
    x = x * jax.lax.rsqrt(variance + self.epsilon) * scale
    return x.astype(self.dtype)


class FeedForward(nn.Module):
  """[..., D] -> [..., D] through d_ff hidden units."""
  d_ff: int
  gated: bool
  dropout_rate: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x, deterministic):
    D, F = x.shape[-1], self.d_ff
    if self.gated:
      gate = dense(F, D**-0.5, self.dtype, 'wi_0')(x)
      hidden = nn.gelu(gate, approximate=True)
      hidden = hidden * dense(F, D**-0.5, self.dtype, 'wi_1')(x)
    else:
      hidden = nn.relu(dense(F, D**-0.5, self.dtype, 'wi')(x))
    hidden = nn.Dropout(self.dropout_rate)(hidden, deterministic)
    return dense(D, F**-0.5, self.dtype, 'wo')(hidden)
