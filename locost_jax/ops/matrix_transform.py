"""Transforms of long real sequences as matrix products, for TPUs.

With t = t1 (n / n1) + t', k = k1 + n1 k' and w(a, m) = exp(-2 pi i a / m),

  X[k1, k'] = sum_t' w(t' (k1 + c), n) w(t' k', n / n1)
              sum_t1 w(t1 (k1 + c), n1) x[t1, t']

is a DFT at the frequencies k + c (Bailey 1990, "FFTs in external or
hierarchical memory"); sums over t' are split again. Complex numbers are planes
of real and imaginary parts. Spectra keep the order [k1, k2, ...], which
products ignore and the inverse undoes.

With c = 1/4 a product of spectra convolves modulo z^n = -i: all that wraps
around is imaginary, and the real part is the convolution of n tokens with lags
-(n - 1) .. n - 1. So n is L where a circular convolution needs 2L, and may be
any product. Lags before a token are complex conjugates: nothing is reversed.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax.ops import complex_pairs

SHIFT = 0.25  # c
PLANES = REAL, IMAGINARY = 0, 1


@dataclasses.dataclass(frozen=True)
class MatrixTransform:
  """`long_conv.FFT` of other spectra: [D, 2, n1, n2, ...], planes on axis 1.

  Attributes:
    factors: n1, n2, ..., at least two.
  """

  factors: tuple[int, ...]

  @classmethod
  def of_length(cls, length):
    """The transform for inputs of this length."""
    last = (128, 128) if length > 1 << 16 else (256,)
    last = last if length > 1 << 15 else (128,)
    return cls((-(-length // math.prod(last)), *last))

  @property
  def bins(self):
    """Complex numbers in the spectrum of a sequence."""
    return math.prod(self.factors)

  @property
  def numbers(self):
    """Real numbers of a transformed sequence's work area."""
    return 2 * self.bins

  def flops(self, batch, directions):
    """Operations of a channel in a training step, see `models.flops`."""
    n, (first, *rest) = self.bins, self.factors
    one = 4 * n * (first + 2 * sum(rest))
    # Two sequences, each for one plane; see `kernel_spectrum`.
    kernels = one if directions == 1 else 2 * (one - 4 * n * rest[-1])
    return 2.0 * (2 * batch * one + kernels) + 18.0 * batch * n

  def kernel_spectrum(self, K0, K1, skip):
    """The spectra [D, 2, n1, n2, ...]; arguments of `long_conv.FFT`."""
    K0 = K0.at[:, 0].add(skip.astype(K0.dtype))
    if K1 is None:
      return jnp.stack(self._forward(K0), 1)
    re = self._forward(K0 + K1, (REAL,))
    im = self._forward(K0 - K1, (IMAGINARY,))
    return jnp.stack([*re, *im], 1)

  def convolve(self, u, spectrum):
    """u [D, B, L] convolved with these kernels: [D, B, L], float32 at least.

    Three passes of bfloat16 products (HIGH, errors of 1e-5) where u is
    bfloat16, which rounds by 2e-3; else all six (HIGHEST, 1e-6).
    """
    names = jax.lax.Precision
    precision = names.HIGH if u.dtype == jnp.bfloat16 else names.HIGHEST
    wide = u.astype(jnp.promote_types(u.dtype, jnp.float32))
    z = self._forward(wide, precision=precision)
    kernels = spectrum[:, None, REAL], spectrum[:, None, IMAGINARY]
    y = self._inverse(complex_pairs.multiply(z, kernels), precision)
    return y[..., : u.shape[2]]

  def _forward(self, x, planes=PLANES, precision=jax.lax.Precision.HIGHEST):
    """The spectrum of real x [..., t], t <= n: planes of [..., k1, k2, ...]."""
    z = (jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, self.bins - x.shape[-1])]),)
    for i, m in enumerate(self.factors):
      is_last = i == len(self.factors) - 1
      matrix, twiddles = _roots(self.factors, i, 1, x.dtype)
      z = tuple(part.reshape(*part.shape[:-1], m, -1) for part in z)
      z = _product(z, matrix, planes if is_last else PLANES, precision)
      z = z if is_last else complex_pairs.multiply(z, twiddles)
    return tuple(part[..., 0] for part in z)

  def _inverse(self, z, precision):
    """The real sequences [..., n] of spectra of `_forward`."""
    z = tuple(part[..., None] / self.bins for part in z)
    for i in reversed(range(len(self.factors))):
      matrix, twiddles = _roots(self.factors, i, -1, z[0].dtype)
      if i < len(self.factors) - 1:
        z = complex_pairs.multiply(z, twiddles)
      z = _product(z, matrix, PLANES if i else (REAL,), precision)
      z = tuple(part.reshape(*part.shape[:-2], -1) for part in z)
    return z[0]


@functools.cache
def _roots(factors, i, sign, dtype):
  """The matrix of a factor, [t, k], and its twiddles [k, t'], as (re, im).

  sign: 1, or -1 for the inverse, whose matrix is [k, t].
  """
  m, rest = factors[i], math.prod(factors[i + 1 :])
  t, k = np.arange(m), np.arange(m) + (0 if i else SHIFT)

  def roots(a, b, n):
    # a b is exact: a multiple of 1/4 below 2^51.
    angle = -2 * sign * np.pi * (np.outer(a, b) % n) / n
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)

  matrix = roots(*((t, k) if sign == 1 else (k, t)), m)
  return matrix, roots(k, np.arange(rest), m * rest)


def _product(z, matrix, planes, precision):
  """Planes (re, im) or (re,) [..., t, r], matrix [t, k] -> [..., k, r]."""
  re, im = matrix
  ways = (re, -im), (im, re)  # to the real and the imaginary plane
  dot = functools.partial(jnp.einsum, '...tr,tk->...kr', precision=precision)
  terms = (map(dot, z, ways[plane]) for plane in planes)
  return tuple(functools.reduce(jnp.add, each) for each in terms)
