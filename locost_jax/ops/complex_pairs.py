"""Complex arrays as pairs (re, im) of real ones, and their powers."""

import jax
import jax.numpy as jnp
import numpy as np


def multiply(x, y):
  """(a + ib)(c + id) of two (re, im) pairs."""
  (a, b), (c, d) = x, y
  return a * c - b * d, a * d + b * c


def exp(log_z):
  """exp of a (re, im) pair."""
  re, im = log_z
  return jnp.exp(re) * jnp.cos(im), jnp.exp(re) * jnp.sin(im)


@jax.custom_jvp
def expm1(log_z):
  """exp(x + iy) - 1 without cancellation near zero.

  = expm1(x) cos(y) - 2 sin(y/2)^2 + i exp(x) sin(y)
  """
  x, y = log_z
  re = jnp.expm1(x) * jnp.cos(y) - 2 * jnp.sin(y / 2) ** 2
  return re, jnp.exp(x) * jnp.sin(y)


@expm1.defjvp
def _expm1_jvp(primals, tangents):
  """The derivative is exp, computed directly.

  Derived term by term, it would not decay like exp(x): rounding leaves a
  remainder, which is multiplied by y and makes gradients of large dt infinite.
  """
  (log_z,), (tangent,) = primals, tangents
  return expm1(log_z), multiply(exp(log_z), tangent)


def squares(log_z, length):
  """z, z^2, z^4, ... up to the first z^s with s >= length, for `powers`.

  log_z is a pair of [..., N], the result one of [S, ..., N]. Call it before any
  loop over groups of channels: inside, XLA fuses the exponentials into the
  tables and recomputes them for every entry.
  """
  steps = 2.0 ** np.arange(index(length) + 1)
  steps = jnp.asarray(steps, log_z[0].dtype).reshape(-1, *[1] * log_z[0].ndim)
  return exp((steps * log_z[0], steps * log_z[1]))


def beside_one(z):
  """1 and z along a new axis, for `powers`: pair of [..., N] -> [..., 2, N]."""
  re, im = z
  return (
      jnp.stack([jnp.ones_like(re), re], -2),
      jnp.stack([jnp.zeros_like(im), im], -2),
  )


def powers(of_two, length):
  """z^0 .. z^(length-1) along a new axis: pair of [..., length, N].

  Applies z^(2^h a + b) = z^(2^h a) z^b recursively: one product per entry, and
  errors that do not grow with the power.

  Args:
    of_two: pair of [S, ..., 2, N], 1 and z^(2^i) (`beside_one` of `squares`),
      for at least this length.
  """
  bits = index(length)
  if bits < 2:
    return tuple(part[0][..., :length, :] for part in of_two)
  h = bits // 2
  _, *shape, _, N = of_two[0].shape
  high = powers(tuple(z[h:] for z in of_two), 1 << (bits - h))
  table = multiply(
      tuple(part[..., :, None, :] for part in high),
      tuple(part[..., None, :, :] for part in powers(of_two, 1 << h)),
  )
  return tuple(part.reshape(*shape, -1, N)[..., :length, :] for part in table)


def index(lags):
  """Returns the index of z^lags in `squares`; lags is a power of two."""
  return (lags - 1).bit_length()
