"""Norms and products against their formulas, forward and backward."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.models import layers


def vjp(function, g, *args):
  out, pull = jax.vjp(function, *args)
  return out, *pull(g)


def test_norm_against_its_formula():
  """JAX's own gradients of the formula, in float64."""
  with jax.enable_x64(True):
    rng = np.random.RandomState(0)
    x, g = (jnp.asarray(rng.randn(2, 5, 24)) for _ in range(2))
    x = x.at[0, 0].set(0)  # of padding: epsilon alone counts
    norm = layers.RMSNorm(1e-6, jnp.float64)
    params = {'params': {'scale': jnp.asarray(rng.rand(24))}}

    def formula(params, x):
      mean = (x**2).mean(-1, keepdims=True)
      return x / jnp.sqrt(mean + 1e-6) * params['params']['scale']

    got, want = (jax.tree.leaves(vjp(function, g, params, x))
                 for function in (norm.apply, formula))
    for a, b in zip(got, want, strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('dtype', ['float64', 'float32', 'bfloat16'])
def test_product_against_numpy(dtype):
  """Sums are of float32 at least, and rounded once."""
  with jax.enable_x64(dtype == 'float64'):
    rng = np.random.RandomState(1)
    x, kernel, g = (jnp.asarray(rng.randn(*shape), dtype)
                    for shape in ((2, 70, 300), (300, 40), (2, 70, 40)))
    got = vjp(layers.product, g, x, kernel)
    assert all(part.dtype == dtype for part in got)
    x, kernel, g = (np.asarray(part, np.float64) for part in (x, kernel, g))
    eps = float(jnp.finfo(dtype).eps)
    for part, want in zip(got, (x @ kernel, g @ kernel.T,
                                np.einsum('btd,btf->df', x, g)), strict=True):
      error = abs(np.asarray(part, np.float64) - want)
      # Half a step of rounding the result, and of sums what float32 leaves.
      limit = 0.5 * eps * abs(want) + (1e-4 if dtype != 'float64' else 1e-11)
      assert (error <= limit).all(), error.max()


def test_no_gradient_copies_its_input_transposed():
  """A sum over [B, L] is one over rows: on a CPU else x becomes [D, B L]."""
  B, L, D, F = 2, 256, 128, 64
  x, g, kernel = (jax.ShapeDtypeStruct(shape, 'float32')
                  for shape in ((B, L, D), (B, L, F), (D, F)))
  norm = layers.RMSNorm(1e-6, jnp.float32)

  def transposed(function, *shapes):
    program = jax.jit(function).lower(*shapes).compile().as_text()
    return re.findall(rf'f32\[{D},{B * L}\]', program)

  def of_kernel(x, kernel, g):
    return vjp(layers.product, g, 2 * x, kernel)

  def of_scale(x, scale, g):
    return vjp(lambda scale, x: norm.apply({'params': {'scale': scale}}, x), g,
               scale, 2 * x)

  def over_two_axes(x, kernel, g):
    del kernel
    return jnp.tensordot(2 * x, g, ((0, 1), (0, 1)))

  assert transposed(over_two_axes, x, kernel, g)
  assert not transposed(of_kernel, x, kernel, g)
  assert not transposed(of_scale, x, jax.ShapeDtypeStruct((D,), 'float32'), x)
