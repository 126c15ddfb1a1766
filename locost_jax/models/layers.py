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
  return _contract(x, kernel, x.ndim - 1, 0)


def _product_backward(kept, g):
  x, kernel = kept
  rows = tuple(range(x.ndim - 1))
  return _contract(g, kernel, x.ndim - 1, 1), _contract(x, g, rows, rows)


product.defvjp(lambda x, kernel: (product(x, kernel), (x, kernel)),
               _product_backward)


def _contract(x, y, x_axes, y_axes):
  """The sum over these axes, in the dtype that both have.

  A CPU's units for bfloat16 (AMX) are used where the result is float32 only:
  five times as fast on one as XLA's product of bfloat16 to bfloat16.
  """
  wide = jnp.promote_types(x.dtype, jnp.float32)
  return jnp.tensordot(
      x, y, (x_axes, y_axes),
      preferred_element_type=wide if mesh.platform() == 'cpu' else None,
  ).astype(x.dtype)


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def normalised(x, epsilon):
  """n = x / sqrt(mean(x^2) + epsilon), the mean over the last axis."""
  return _normalise(x, epsilon)[0]


def _normalise(x, epsilon):
  mean = jnp.mean(x**2, axis=-1, keepdims=True)
  r = jax.lax.rsqrt(mean + epsilon)
  return x * r, (x, r)


def _normalised_backward(epsilon, kept, g):
  """d_x = r (g - n mean(g n)), r = 1 / sqrt(mean(x^2) + epsilon)."""
  del epsilon
  x, r = kept
  n = x * r
  mean = _sum(g * n, (x.ndim - 1,)) / x.shape[-1]
  return r * (g - n * mean[..., None]),


normalised.defvjp(_normalise, _normalised_backward)


@jax.custom_vjp
def scaled(x, scale):
  """x [..., D] times scale [D]."""
  return x * scale


def _scaled_backward(kept, g):
  x, scale = kept
  return g * scale, _sum(g * x, tuple(range(x.ndim - 1)))


scaled.defvjp(lambda x, scale: (x * scale, (x, scale)), _scaled_backward)


def _sum(x, axes):
  """The sum over these axes of what is a product of two arrays.

  On CPUs as a product with ones: XLA takes 10 to 40 times as long for what it
  sees as one sum of products, which was a sixth of a layer that learns.
  """
  if mesh.platform() != 'cpu':
    return x.sum(axes)
  ones = jnp.ones([x.shape[axis] for axis in axes], x.dtype)
  return jnp.tensordot(x, ones, (axes, tuple(range(len(axes)))))


class RMSNorm(nn.Module):
  """T5's layer norm: [..., D] -> [..., D] in dtype."""
  epsilon: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x):
    scale = self.param('scale', nn.initializers.ones, (x.shape[-1],))
    x = scaled(normalised(at_least_float32(x), self.epsilon), scale)
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
