"""Diagonal state-space models: initialisation, discretisation, kernel.

One channel is driven by u and keeps N complex states (LOCOST, equation 1):

  x_t = z * x_(t-1) + b_bar u_t        z = exp(dt lambda)          [N]
  y_t = 2 Re (c . x_t)

The factor 2 Re stands for the N conjugate states that are not stored. Unrolled
it is a convolution with the kernel (equation 2)

  K[l] = 2 Re sum_n w_n z_n^l,         w = c * b_bar               [L]

lambda = -exp(log_A_real) + i A_imag is kept stable by its form (appendix E).
All arithmetic is real: a complex array is a pair (re, im) of real ones.

Axes: C directions, G parameter sets (1: shared by the directions, or C), D
channels, N complex state pairs, L lags. Everything is at least float32.
"""

import functools
import math

import jax
import jax.numpy as jnp

from locost_jax.models import mesh
from locost_jax.models import pieces

HIGHEST = jax.lax.Precision.HIGHEST

# `table_bytes`: in a CPU's cache, and far below a GPU's memory, where few large
# products are faster.
CPU_TABLE_BYTES = 16 << 20
TABLE_BYTES = 512 << 20


def init_log_A_real(key, shape, dtype=jnp.float32):
  """Re lambda = -1/2 for every state; shape [G, D, N] (appendix E)."""
  del key
  return jnp.full(shape, math.log(0.5), dtype)


def init_A_imag(key, shape, dtype=jnp.float32):
  """Im lambda_n = pi n, the S4D-Lin initialisation; shape [G, D, N]."""
  del key
  return jnp.broadcast_to(jnp.pi * jnp.arange(shape[-1], dtype=dtype), shape)


def init_log_dt(key, shape, dtype=jnp.float32):
  """log dt uniform in [ln 0.001, ln 0.1], the release; shape [G, D]."""
  low, high = math.log(0.001), math.log(0.1)
  return jax.random.uniform(key, shape, dtype, low, high)


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


def complex_multiply(x, y):
  """(a + ib)(c + id) of two (re, im) pairs."""
  (a, b), (c, d) = x, y
  return a * c - b * d, a * d + b * c


def exp(log_z):
  """exp of a (re, im) pair."""
  re, im = log_z
  return jnp.exp(re) * jnp.cos(im), jnp.exp(re) * jnp.sin(im)


def expm1(log_z):
  """exp(x + iy) - 1 without cancellation near zero.

  = expm1(x) cos(y) - 2 sin(y/2)^2 + i exp(x) sin(y)
  """
  x, y = log_z
  re = jnp.expm1(x) * jnp.cos(y) - 2 * jnp.sin(y / 2) ** 2
  return re, jnp.exp(x) * jnp.sin(y)


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

  Args:
    log_dt: [G, D].
    log_A_real: [G, D, N].
    A_imag: [G, D, N].
    B: [G, D, N, 2].

  Returns:
    b_bar as a pair of [G, D, N].
  """
  re, im = -jnp.exp(log_A_real), A_imag
  square = re**2 + im**2
  reciprocal = re / square, -im / square
  held = expm1(discretise(log_dt, log_A_real, A_imag))
  return complex_multiply((B[..., 0], B[..., 1]),
                          complex_multiply(held, reciprocal))


def powers(log_z, length):
  """z^0 .. z^(length-1) along a new last axis, by doubling.

  table <- [table, table z^s] with z^s = exp(s log z) taken afresh, so that
  there is one exponential per doubling and errors do not accumulate.

  Args:
    log_z: pair of [..., N].
    length: number of powers.

  Returns:
    Pair of [..., N, length].
  """
  re, im = log_z
  table = jnp.ones_like(re)[..., None], jnp.zeros_like(im)[..., None]
  size = 1
  while size < length:
    step = exp((size * re[..., None], size * im[..., None]))
    shifted = complex_multiply(table, step)
    table = tuple(jnp.concatenate(p, -1) for p in zip(table, shifted))
    size *= 2
  return tuple(part[..., :length] for part in table)


def tile_size(length):
  """T, the lags of one tile of the two-level product.

  About sqrt(length), which makes the tables smallest, and at least 128, below
  which the products are too narrow: on a CPU 128 took 0.65 of the time of 64
  at 16K lags and 0.43 of that of 256; at 64K 256 took 0.64 of that of 128.
  """
  return min(length, max(128, 1 << round(math.log2(length) / 2)))


def kernel(log_z, w, length):
  """K[l] = 2 Re sum_n w_n z_n^l as a two-level product (equation 2).

  With l = a T + b: K[a, b] = 2 Re sum_n (w_n z_n^(aT)) z_n^b, one real matrix
  product per channel with 2N = (re, im) contracted, instead of N L
  exponentials. Groups of channels follow each other, so that the tables of few
  exist at once; the backward pass makes them again.

  Args:
    log_z: pair of [G, D, N].
    w: pair of [C, D, N], C a multiple of G.
    length: L.

  Returns:
    [C, D, L], real.
  """
  C, T = w[0].shape[0], tile_size(length)
  return kernel_in_groups(
      log_z, w, length, T, group_size(log_z, C, T, -(-length // T)))


def group_size(log_z, C, T, A):
  """Channels whose tables exist at once: T inner powers, C times A outer."""
  return max(table_bytes() // _channel_bytes(log_z, C, T, A), 1)


def table_bytes():
  """What the tables of one group of channels take at most."""
  return CPU_TABLE_BYTES if mesh.platform() == 'cpu' else TABLE_BYTES


def keeps_tables(log_z, C, T, A):
  """Whether the backward pass of `weighted_sums` keeps all channels' tables.

  Where they would fit a CPU's cache, wherever it runs: every layer has its own.
  """
  D = log_z[0].shape[1]
  return D * _channel_bytes(log_z, C, T, A) <= CPU_TABLE_BYTES


def _channel_bytes(log_z, C, T, A):
  """Bytes of a channel's tables, as of `group_size`."""
  G, _, N = log_z[0].shape
  return log_z[0].dtype.itemsize * 2 * N * (G * (T + A) + C * A)


def kernel_in_groups(log_z, w, length, T, group):
  """`kernel` with tiles of T lags and groups of so many channels."""
  C, D, _ = w[0].shape
  if group >= D:
    return _tiles(log_z, w, length, T)

  def write(piece, K):
    of_piece = jax.tree.map(lambda x: piece.take(x, 1), (log_z, w))
    return piece.put(K, _tiles(*of_piece, length, T), 1)

  return pieces.over(
      D, group, write, jnp.zeros((C, D, length), w[0].dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _tiles(log_z, w, length, T):
  """`kernel` of all channels at once."""
  (G, D, N), C = log_z[0].shape, w[0].shape[0]
  inner, outer = _tables(log_z, length, T)
  w = tuple(part.reshape(G, C // G, D, N, 1) for part in w)
  x_re, x_im = complex_multiply(w, tuple(part[:, None] for part in outer))
  x = 2 * jnp.concatenate([x_re, -x_im], 3)  # [G, C/G, D, 2N, A]
  tiles = jnp.einsum('gcdna,gdnb->gcdab', x, inner, precision=HIGHEST)
  return tiles.reshape(C, D, -1)[..., :length]


def _tables(log_z, length, T):
  """z^b, re and im as [G, D, 2N, T], and z^(aT), a pair of [G, D, N, A]."""
  outer = powers(tuple(T * part for part in log_z), -(-length // T))
  return jnp.concatenate(powers(log_z, T), 2), outer


def _tiles_forward(log_z, w, length, T):
  return _tiles(log_z, w, length, T), (log_z, w)


def _tiles_backward(length, T, kept, d_K):
  """The gradients of `_tiles` as sums over the lags, in tiles as well.

    S_n = sum_l dK[l] z_n^l            dw = 2 conj(S)
    M_n = sum_l l dK[l] z_n^l          d log z = 2 conj(w M)

  where a complex x stands for the pair (Re x, Im x). Over b they are products
  with the table of z^b, of dK and of b dK; JAX's own way through the products
  and the doubling of the tables took 3.3 times as long on a CPU.
  """
  log_z, w = kept
  (G, D, N), C = log_z[0].shape, w[0].shape[0]
  inner, outer = _tables(log_z, length, T)
  A = outer[0].shape[-1]
  d_K = jnp.pad(d_K, ((0, 0), (0, 0), (0, A * T - length)))
  d_K = d_K.reshape(G, C // G, D, A, T)
  d_K = jnp.concatenate([d_K, d_K * jnp.arange(T, dtype=d_K.dtype)], 3)
  tiles = jnp.einsum('gcdab,gdnb->gcdan', d_K, inner, precision=HIGHEST)
  plain, by_lag = jnp.split(tiles, 2, 3)  # [G, C/G, D, A, 2N]
  by_lag = by_lag + plain * (T * jnp.arange(A, dtype=d_K.dtype))[:, None]
  outer = tuple(part.swapaxes(2, 3)[:, None] for part in outer)
  S, M = (tuple(part.sum(3) for part in complex_multiply(
      jnp.split(tiles, 2, 4), outer)) for tiles in (plain, by_lag))
  d_w = tuple(2 * part.reshape(C, D, N) for part in (S[0], -S[1]))
  re, im = complex_multiply(
      tuple(part.reshape(G, C // G, D, N) for part in w), M)
  return (2 * re.sum(1), -2 * im.sum(1)), d_w


_tiles.defvjp(_tiles_forward, _tiles_backward)


def weighted_sums(log_z, u):
  """sum_t z_n^t u_t, what `kernel` is the transpose of, also in two levels.

  Args:
    log_z: pair of [G, D, N].
    u: [C, L, D], C a multiple of G.

  Returns:
    Pair of [C, D, N].
  """
  C, L, D = u.shape
  T = tile_size(L)
  A = -(-L // T)
  group = min(group_size(log_z, C, T, A), D)
  u = jnp.pad(u, ((0, 0), (0, A * T - L), (0, 0)))
  sums = functools.partial(_sums_of_tiles, T=T)
  if group < D or not keeps_tables(log_z, C, T, A):
    sums = jax.checkpoint(sums)
  if group == D:
    return sums(log_z, u)

  def write(piece, totals):
    own = jax.tree.map(lambda x: piece.take(x, 1), log_z)
    found = sums(own, piece.take(u, 2))
    return jax.tree.map(lambda x, part: piece.put(x, part, 1), totals, found)

  zeros = jnp.zeros((C, D, log_z[0].shape[-1]), log_z[0].dtype)
  return pieces.over(D, group, write, (zeros, zeros))


def _sums_of_tiles(log_z, u, T):
  """`weighted_sums` of all channels at once; T divides L."""
  (G, D, N), (C, L, _) = log_z[0].shape, u.shape
  u = u.reshape(G, C // G, L // T, T, D)
  inner = powers(log_z, T)
  outer = powers(tuple(T * part for part in log_z), L // T)
  tiles = jnp.einsum('gcatd,gdnt->gcdna', u, jnp.concatenate(inner, 2),
                     precision=HIGHEST)
  sums = complex_multiply(jnp.split(tiles, 2, 3),
                          tuple(part[:, None] for part in outer))
  return tuple(part.sum(-1).reshape(C, D, N) for part in sums)


def context_range(kernel, share=0.95):
  """How many lags from the first on hold this share of sum_l |K[l]|.

  |K[l]| is how much an output moves with the input l tokens away (section 4.1),
  so this is how far a channel looks. It counts the token itself.

  Args:
    kernel: [..., L]; what it would be beyond L lags does not count.
    share: above 0, below 1 (there rounding would decide).

  Returns:
    int [...], the least r >= 1 with sum_(l < r) |K[l]| >= share sum_l |K[l]|.
  """
  within = jnp.cumsum(jnp.abs(kernel), -1)
  return 1 + (within < share * within[..., -1:]).sum(-1)


def recurrence(log_z, w, u):
  """The same map token by token, equation 1: the reference of the kernel.

  Args:
    log_z: pair of [D, N].
    w: pair of [D, N], c * b_bar.
    u: [L, D].

  Returns:
    y [L, D], y_t = sum_(s <= t) K[t - s] u_s.
  """
  z = exp(log_z)

  def step(x, u_t):
    x_re, x_im = complex_multiply(z, x)
    x = x_re + u_t[:, None], x_im
    return x, 2 * complex_multiply(w, x)[0].sum(-1)

  zeros = jnp.zeros_like(z[0])
  return jax.lax.scan(step, (zeros, zeros), u)[1]
