"""Norms, feed-forwards and dropout of the T5 family.

RMS norm: w x rsqrt(mean(x^2) + eps), variance in float32, no mean, no bias.
Feed-forward: wo(gelu(wi_0 x) * wi_1 x), or wo(relu(wi x)) (Shazeer 2020).
"""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.models import mesh


def at_least_float32(x):
  """x in float32, or in its own precision where that is higher."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def normal(stddev):
  """Initialiser N(0, stddev^2)."""
  return nn.initializers.normal(stddev)


@jax.custom_vjp
def product(x, kernel):
  """x [..., D] and kernel [D, F] -> [..., F].

  With a gradient of the kernel that is made as it lies, x^T g. JAX's own is the
  transpose of g^T x: on a CPU that copied g [..., F], and a gated feed-forward
  took twice as long, forward and backward.
  """
  return x @ kernel


def _product_backward(kept, g):
  x, kernel = kept
  rows = tuple(range(x.ndim - 1))
  d_kernel = jax.lax.dot_general(x, g, ((rows, rows), ((), ())))
  return g @ kernel.T, d_kernel


product.defvjp(lambda x, kernel: (x @ kernel, (x, kernel)), _product_backward)


def dot_general(x, kernel, dimension_numbers, precision=None):
  """`product` as nn.Dense calls it."""
  del dimension_numbers, precision
  return product(x, kernel)


def dense(features, stddev, dtype, name, use_bias=False):
  """A projection to `features` with N(0, stddev^2) weights."""
  return nn.Dense(features, use_bias=use_bias, dtype=dtype, name=name,
                  kernel_init=normal(stddev), dot_general=dot_general)


class Embedding(nn.Module):
  """Vectors of tokens, and the logits of a tied output layer."""
  vocab_size: int
  d_model: int
  dtype: jnp.dtype
  stddev: float = 1.0

  def setup(self):
    self.embedding = self.param(
        'embedding', normal(self.stddev), (self.vocab_size, self.d_model))

  def table(self):
    """[V, D], over `tensor` where that divides the vocabulary."""
    cut = self.vocab_size % mesh.axis_size(mesh.TENSOR) == 0
    return mesh.lay_out(
        self.embedding.astype(self.dtype), mesh.TENSOR if cut else None)

  def __call__(self, tokens):
    """int [...] -> [..., D]."""
    return jnp.take(self.table(), tokens, axis=0)

  def attend(self, h):
    """[..., D] -> the products with all vectors, [..., V]."""
    return h @ self.table().T


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
