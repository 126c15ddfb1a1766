"""Gradients and memory of compiled functions of arrays."""

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


def temporary_bytes(function, *arguments, with_output=False, **options):
  """Returns the temporary memory of a function, compiled with these options.

  with_output: adds the memory of the results.
  """
  if not hasattr(function, 'lower'):
    function = jax.jit(function, **options)
  sizes = function.lower(*arguments).compile().memory_analysis()
  output = sizes.output_size_in_bytes if with_output else 0
  return sizes.temp_size_in_bytes + output


def shape(*sizes, dtype=jnp.float32):
  return jax.ShapeDtypeStruct(sizes, dtype)
