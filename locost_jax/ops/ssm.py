"""Diagonal state-space models: initialisation, discretisation, equations.

One channel reads u and keeps N complex states (LOCOST, equation 1):

  x_t = z * x_(t-1) + b_bar u_t        z = exp(dt lambda)        [N]
  y_t = 2 Re (c . x_t)

The factor 2 Re stands for the N conjugate states that are not stored. Unrolled
it is a convolution with the kernel (equation 2)

  K[l] = 2 Re sum_n w_n z_n^l,         w = c * b_bar               [L]

lambda = -exp(log_A_real) + i A_imag has a negative real part for any value of
the parameters, so |z| < 1 (appendix E). `recurrence` and `kernel` are the two
equations as written; models compute the kernel with `ssm_kernel`, which the
tests compare with both.

All arithmetic is real: a complex array is a pair of real ones
(`complex_pairs`). Axes: C directions, G parameter sets (1: shared by the
directions, or C), D channels, N complex state pairs, L lags. Everything is at
least float32.
"""

import math

import jax
import jax.numpy as jnp

from locost_jax.ops import complex_pairs


def s4d_lin(n):
  """Re lambda = -1/2, Im lambda_n = pi n (S4D-Lin; appendix E).

  An initialisation of A: states n = 0 .. N - 1, float [N] -> log(-Re lambda)
  and Im lambda, [N] each.
  """
  return jnp.full_like(n, math.log(0.5)), jnp.pi * n


# model.initialisation -> the function.
INITIALISATIONS = {'s4d-lin': s4d_lin}


def init_A(initialisation, part):
  """Returns a Flax initialiser of log_A_real (part 0) or A_imag (part 1)."""

  def init(key, shape, dtype=jnp.float32):
    del key
    n = jnp.arange(shape[-1], dtype=dtype)
    return jnp.broadcast_to(INITIALISATIONS[initialisation](n)[part], shape)

  return init


# The release's values. A state decays to 1 / e in 2 / dt tokens.
DT_MIN, DT_MAX = 0.001, 0.1


def init_log_dt(dt_min=DT_MIN, dt_max=DT_MAX):
  """Returns an initialiser: log dt uniform in [ln dt_min, ln dt_max], [G, D]."""

  def init(key, shape, dtype=jnp.float32):
    low, high = math.log(dt_min), math.log(dt_max)
    return jax.random.uniform(key, shape, dtype, low, high)

  return init


def init_log_dt_paper(key, shape, dtype=jnp.float32):
  """dt uniform in (0, 1], as appendix E says; shape [G, D]."""
  return jnp.log1p(-jax.random.uniform(key, shape, dtype))


def init_ones(key, shape, dtype=jnp.float32):
  """1 + 0i, the release's B; shape [..., 2] (re, im)."""
  del key
  return jnp.broadcast_to(jnp.array([1.0, 0.0], dtype), shape)


def init_complex_normal(key, shape, dtype=jnp.float32):
  """Complex normal with E |c|^2 = 1; shape [..., 2] (re, im)."""
  return jax.random.normal(key, shape, dtype) * math.sqrt(0.5)


def discretise(log_dt, log_A_real, A_imag):
  """Returns log z = dt lambda, a pair of [G, D, N].

  Args:
    log_dt: [G, D], log of the step, in tokens.
    log_A_real: [G, D, N], log of -Re lambda.
    A_imag: [G, D, N], Im lambda in radians per unit of time.
  """
  dt = jnp.exp(log_dt)[..., None]
  return -jnp.exp(log_A_real) * dt, A_imag * dt


def input_weights_zoh(log_dt, log_A_real, A_imag, B):
  """b_bar = B (exp(dt lambda) - 1) / lambda, zero-order hold: the release.

  B [G, D, N, 2], the others of `discretise` -> pair of [G, D, N].
  """
  re, im = -jnp.exp(log_A_real), A_imag
  square = re**2 + im**2
  reciprocal = re / square, -im / square
  held = complex_pairs.expm1(discretise(log_dt, log_A_real, A_imag))
  return complex_pairs.multiply(
      (B[..., 0], B[..., 1]), complex_pairs.multiply(held, reciprocal)
  )


def kernel(log_z, w, length):
  """K[l] = 2 Re sum_n w_n z_n^l, equation 2 term by term: [C, D, L], real.

  Its array of all powers takes 8 D N L bytes; models use `ssm_kernel.kernel`.

  Args:
    log_z: pair of [G, D, N].
    w: pair of [C, D, N], c * b_bar; C a multiple of G.
  """
  l = jnp.arange(length, dtype=log_z[0].dtype)
  powers = complex_pairs.exp(tuple(part[..., None] * l for part in log_z))
  terms = complex_pairs.multiply(tuple(part[..., None] for part in w), powers)
  return 2 * terms[0].sum(2)  # of [C, D, N, L]


def recurrence(log_z, w, u):
  """The same map token by token, equation 1: the reference of the kernel.

  log_z, w = c * b_bar pairs of [D, N], u [L, D] -> y [L, D], with
  y_t = sum_(s <= t) K[t - s] u_s.
  """
  z = complex_pairs.exp(log_z)

  def step(x, u_t):
    x_re, x_im = complex_pairs.multiply(z, x)
    x = x_re + u_t[:, None], x_im
    return x, 2 * complex_pairs.multiply(w, x)[0].sum(-1)

  zeros = jnp.zeros_like(z[0])
  return jax.lax.scan(step, (zeros, zeros), u)[1]


def context_range(kernel, share=0.95):
  """The number of first lags that hold this share of sum_l |K[l]|: int [...].

  |K[l]| is how strongly an output depends on the input l tokens away (section
  4.1), so this is the range of a channel, the token itself included: the least
  r >= 1 with sum_(l < r) |K[l]| >= share sum_l |K[l]|.

  Args:
    kernel: [..., L]; lags beyond L do not count.
    share: above 0 and below 1 (at 1, rounding would decide).
  """
  within = jnp.cumsum(jnp.abs(kernel), -1)
  return 1 + (within < share * within[..., -1:]).sum(-1)
