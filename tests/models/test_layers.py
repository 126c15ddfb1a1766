"""Norms and products match their formulas, forward and backward."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.models import layers


def vjp(function, g, *args):
  out, pull = jax.vjp(function, *args)
  return out, *pull(g)


def test_norm_matches_its_formula():
  """Gradients match JAX's gradients of the formula, in float64."""
  with jax.enable_x64(True):
    rng = np.random.RandomState(0)
    x, g = (jnp.asarray(rng.randn(2, 5, 24)) for _ in range(2))
    x = x.at[0, 0].set(0)  # like padding: only epsilon is left
    norm = layers.RMSNorm(1e-6, jnp.float64)
    params = {'params': {'scale': jnp.asarray(rng.rand(24))}}

    def formula(params, x):
      mean = (x**2).mean(-1, keepdims=True)
      return x / jnp.sqrt(mean + 1e-6) * params['params']['scale']

    got, want = (
        jax.tree.leaves(vjp(function, g, params, x))
        for function in (norm.apply, formula)
    )
    for a, b in zip(got, want, strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('cut', [False, True])
@pytest.mark.parametrize('dtype', ['float64', 'float32', 'bfloat16'])
def test_products_match_numpy(dtype, cut, monkeypatch):
  """Sums are at least float32 and rounded once; cut: lengths are split."""
  monkeypatch.setattr(layers, '_is_cut', lambda: cut)
  forms = 'btd,df->btf', 'btf,df->btd', 'btd,btf->df'
  with jax.enable_x64(dtype == 'float64'):
    rng = np.random.RandomState(1)
    draw = lambda *shape: jnp.asarray(rng.randn(*shape), dtype)
    x, kernel, g = draw(2, 70, 300), draw(300, 40), draw(2, 70, 40)
    for function, forms, x, g in (
        (layers.product, forms, x, g),
        (lambda x, kernel: layers.product(x, kernel.T, 1), forms, x, g),
        (
            layers.to_channels,
            ('bld,df->fbl', 'fbl,df->bld', 'bld,fbl->df'),
            *(x, jnp.moveaxis(g, 2, 0)),
        ),
        (
            layers.of_channels,
            ('dbl,df->blf', 'blf,df->dbl', 'dbl,blf->df'),
            *(jnp.moveaxis(x, 2, 0), g),
        ),
    ):
      got = vjp(function, g, x, kernel)
      wide = [np.asarray(part, np.float64) for part in (x, kernel, g)]
      eps = float(jnp.finfo(dtype).eps)
      for part, form, (i, j) in zip(
          got, forms, ((0, 1), (2, 1), (0, 2)), strict=True
      ):
        assert part.dtype == dtype
        want = np.einsum(form, wide[i], wide[j])
        error = abs(np.asarray(part, np.float64) - want)
        # Half a unit for rounding the result, and float32 errors of the sums.
        limit = 0.5 * eps * abs(want) + (1e-4 if dtype != 'float64' else 1e-11)
        assert (error <= limit).all(), error.max()


def test_no_gradient_copies_its_input_transposed():
  """Sums over [B, L] run over rows; otherwise CPUs transpose x to [D, B L]."""
  B, L, D, F = 2, 256, 128, 64
  x, g, kernel = (
      jax.ShapeDtypeStruct(shape, 'float32')
      for shape in ((B, L, D), (B, L, F), (D, F))
  )
  norm = layers.RMSNorm(1e-6, jnp.float32)

  def transposed(function, *shapes):
    program = jax.jit(function).lower(*shapes).compile().as_text()
    return re.findall(rf'f32\[{D},{B * L}\]', program)

  def of_kernel(x, kernel, g):
    return vjp(layers.product, g, 2 * x, kernel)

  def of_table(x, table, g):
    return vjp(lambda x, table: layers.product(x, table, 1), g, 2 * x, table)

  def of_scale(x, scale, g):
    return vjp(
        lambda scale, x: norm.apply({'params': {'scale': scale}}, x),
        g,
        scale,
        2 * x,
    )

  def over_two_axes(x, kernel, g):
    del kernel
    return jnp.tensordot(2 * x, g, ((0, 1), (0, 1)))

  assert transposed(over_two_axes, x, kernel, g)
  assert not transposed(of_kernel, x, kernel, g)
  assert not transposed(of_table, x, jax.ShapeDtypeStruct((F, D), 'float32'), g)
  assert not transposed(of_scale, x, jax.ShapeDtypeStruct((D,), 'float32'), x)
