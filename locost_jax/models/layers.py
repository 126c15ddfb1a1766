"""Products, norms and feed-forwards.

RMS norm: w x rsqrt(mean(x^2) + eps), variance in float32, no mean, no bias.
Feed-forward: wo(f(wi x)), or gated wo(f(wi_0 x) * wi_1 x) (Shazeer 2020); f is
one of `ACTIVATIONS`.
"""

import functools
import math
from typing import Callable

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.ops import mesh as mesh_lib


def at_least_float32(x):
  """x in float32, or in its own precision where that is higher."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def product(x, kernel, axis=0, precise=False):
  """x [..., D] and kernel [D, F], or [F, D] with axis 1, -> [..., F].

  precise: see `matmul`.
  """
  if _is_cut():
    return _contract(x, kernel, x.ndim - 1, axis, precise)
  out = matmul(_rows(x), kernel, 1, axis, precise)
  return out.reshape(*x.shape[:-1], out.shape[1])


def to_channels(x, kernel):
  """`product` of x [B, L, D] with its channels first: -> [F, B, L]."""
  if _is_cut():
    return jnp.moveaxis(product(x, kernel), 2, 0)
  return matmul(kernel, _rows(x), 0, 1).reshape(-1, *x.shape[:2])


def of_channels(x, kernel):
  """`product` of x whose channels come first: [D, B, L] -> [B, L, F]."""
  if _is_cut():
    return product(jnp.moveaxis(x, 0, 2), kernel)
  out = matmul(x.reshape(x.shape[0], -1), kernel, 0, 0)
  return out.reshape(*x.shape[1:], out.shape[1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def matmul(a, b, i, j, precise=False):
  """The sum over axis i of one matrix and axis j of the other: [m, n].

  In the dtype of both; `precise`: not rounded to it, but float32 at least. The
  incoming gradient is rounded, so that gradients cost the same, and gradients
  are made in their final layout: JAX's own one of b [k, n] is the transpose of
  g^T a, and on a CPU that copied g [m, n] and made a gated feed-forward twice
  as slow.
  """
  return _contract(a, b, i, j, precise)


def _matmul_backward(i, j, precise, kept, g):
  del precise
  a, b = kept
  g = g.astype(a.dtype)
  d_a = (b, g, 1 - j, 1) if i == 0 else (g, b, 1, 1 - j)
  d_b = (a, g, 1 - i, 0) if j == 0 else (g, a, 0, 1 - i)
  return _contract(*d_a), _contract(*d_b)


matmul.defvjp(
    lambda a, b, *options: (_contract(a, b, *options), (a, b)),
    _matmul_backward,
)


def _contract(x, y, x_axis, y_axis, precise=False):
  """The sum over these axes, in the dtype of both; see `matmul`."""
  # On CPUs sums are float32: only then does XLA use a CPU's bfloat16 units
  # (AMX), five times as fast on one as the product of bfloat16 to bfloat16.
  is_wide = precise or mesh_lib.platform() == 'cpu'
  kind = jnp.promote_types(x.dtype, jnp.float32) if is_wide else None
  sums = jnp.tensordot(
      x, y, ((x_axis,), (y_axis,)), preferred_element_type=kind
  )
  return sums if precise else sums.astype(x.dtype)


def _rows(x):
  """[..., D] -> [rows, D], for a sum over rows; unchanged if they are split.

  A CPU would transpose x row by row for a sum over several axes: if D is a
  power of two, that took as long as the product itself.
  """
  return x if _is_cut() else x.reshape(-1, x.shape[-1])


def _is_cut():
  """Whether each device has a part of the length of every row."""
  return mesh_lib.axis_size(mesh_lib.SEQUENCE) > 1 and not mesh_lib.is_on_mesh()


def dot_general(x, kernel, dimension_numbers, precision=None, precise=False):
  """`product` as nn.Dense calls it."""
  del dimension_numbers, precision
  return product(x, kernel, precise=precise)


def dense(
    features, stddev, dtype, name, use_bias=False, dot_general=dot_general
):
  """A projection to `features` with N(0, stddev^2) weights."""
  return nn.Dense(
      features,
      use_bias=use_bias,
      dtype=dtype,
      name=name,
      kernel_init=nn.initializers.normal(stddev),
      dot_general=dot_general,
  )


class Projection(nn.Module):
  """x W + b with W [D, F], to or from arrays with channels first."""

  shape: tuple[int, int]
  dtype: jnp.dtype
  initializer: Callable[..., jax.Array]

  def setup(self):
    self.kernel = self.param('kernel', self.initializer, self.shape)
    self.bias = self.param('bias', self.initializer, self.shape[1:])

  def to_channels(self, x):
    """[B, L, D] -> [F, B, L]."""
    x, kernel, bias = self._cast(x)
    return to_channels(x, kernel) + bias[:, None, None]

  def of_channels(self, x):
    """[D, B, L] -> [B, L, F]."""
    x, kernel, bias = self._cast(x)
    return of_channels(x, kernel) + bias

  def _cast(self, x):
    return tuple(a.astype(self.dtype) for a in (x, self.kernel, self.bias))


class Embedding(nn.Module):
  """Vectors of tokens, and the logits of a tied output layer."""

  vocab_size: int
  d_model: int
  dtype: jnp.dtype
  stddev: float = 1.0

  def setup(self):
    self.embedding = self.param(
        'embedding',
        nn.initializers.normal(self.stddev),
        (self.vocab_size, self.d_model),
    )

  def table(self):
    """[V, D], split over `tensor` if that divides V."""
    cut = self.vocab_size % mesh_lib.axis_size(mesh_lib.TENSOR) == 0
    return mesh_lib.lay_out(
        self.embedding.astype(self.dtype), mesh_lib.TENSOR if cut else None
    )

  def __call__(self, tokens):
    """int [...] -> [..., D]."""
    return jnp.take(self.table(), tokens, axis=0)

  def attend(self, h):
    """[..., D] -> the products with all vectors, float32 [..., V]."""
    return product(h, self.table(), 1, precise=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x, scale, epsilon):
  """x [..., D] and scale [D] -> scale x / sqrt(mean(x^2) + epsilon)."""
  return _rms_norm_forward(x, scale, epsilon)[0]


def _rms_norm_forward(x, scale, epsilon):
  mean = jnp.mean(x**2, axis=-1, keepdims=True)
  r = jax.lax.rsqrt(mean + epsilon)
  return x * r * scale, (x, r, scale)


def _rms_norm_backward(epsilon, kept, g):
  """With n = r x and d_n = scale g: d_x = r (d_n - n mean(n d_n))."""
  del epsilon
  x, r, scale = kept
  n, d_n, last = x * r, g * scale, x.ndim - 1
  mean = _sum(n * d_n, (last,))[..., None] / x.shape[last]
  terms = _rows(g * n)
  return r * (d_n - n * mean), _sum(terms, tuple(range(terms.ndim - 1)))


rms_norm.defvjp(_rms_norm_forward, _rms_norm_backward)


def _sum(x, axes):
  """The sum over these axes of an array that is a product of two.

  On CPUs it is a product with ones: XLA takes 10 to 40 times as long for a
  fused sum of products, which was a sixth of a layer's training time.
  """
  if mesh_lib.platform() != 'cpu':
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
    x = rms_norm(at_least_float32(x), scale, self.epsilon)
    return x.astype(self.dtype)


@jax.custom_jvp
def _erfc(x):
  return jax.lax.erfc(x)


# The rule of jax 0.12 fails inside `shard_map`.
_erfc.defjvps(
    lambda d, _, x: -2 / math.sqrt(math.pi) * (d * jnp.exp(-jnp.square(x)))
)


def gelu(x):
  """The exact GELU, x Phi(x), with Phi the normal distribution function."""
  return 0.5 * x * _erfc(-x * math.sqrt(0.5))


# transformers' names: 'gelu' is the exact GELU, 'gelu_new' has a tanh.
ACTIVATIONS = {
    'relu': nn.relu,
    'gelu': gelu,
    'gelu_new': functools.partial(nn.gelu, approximate=True),
    'silu': nn.silu,
}


def _activated(activate, x, *gate):
  """activate(x), multiplied by a gate if there is one.

  In bfloat16 on a CPU, where rounding every operation takes 2.7 times as long,
  it is computed in float32, by the backward pass again.
  """
  run = lambda x, *gate: math.prod(gate, start=activate(x))
  if x.dtype != jnp.bfloat16 or mesh_lib.platform() != 'cpu':
    return run(x, *gate)
  wide = lambda *xs: run(*map(at_least_float32, xs)).astype(x.dtype)
  return jax.checkpoint(wide)(x, *gate)


class FeedForward(nn.Module):
  """[..., D] -> [..., D] through d_ff hidden units; see the top.

  form: an activation, or 'gated-' and one; 'gated-gelu' (T5 v1.1) has the tanh.
  """

  d_ff: int
  form: str
  dropout_rate: float
  dtype: jnp.dtype
  use_bias: bool = False

  @nn.compact
  def __call__(self, x, deterministic):
    D, F = x.shape[-1], self.d_ff
    project = functools.partial(dense, dtype=self.dtype, use_bias=self.use_bias)
    gate, _, name = self.form.rpartition('-')
    activate = ACTIVATIONS['gelu_new' if gate and name == 'gelu' else name]
    names = ('wi_0', 'wi_1') if gate else ('wi',)
    inner = [project(F, D**-0.5, name=name)(x) for name in names]
    hidden = _activated(activate, *inner)
    hidden = nn.Dropout(self.dropout_rate)(hidden, deterministic)
    return project(D, F**-0.5, name='wo')(hidden)
