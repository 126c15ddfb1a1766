"""Gradients of functions of arrays, and their comparison."""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def gradients_and_value(function, *args, argnums=(0, 1, 2)):
  """Returns gradients of a weighted sum of the output, and the output."""

  def loss(*args):
    out = function(*args)
    weights = jnp.cos(jnp.arange(out.size, dtype=out.dtype))
    return (out * weights.reshape(out.shape)).sum(), out

  return jax.jit(jax.grad(loss, argnums, has_aux=True))(*args)


def assert_same(got, want, atol, rtol=0.0):
  check = functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol)
  jax.tree.map(check, got, want)
