"""The two-sided long convolution of LOCOST (equation 3), through one FFT.

  y_t = sum_(s <= t) K0[t - s] u_s + sum_(s >= t) K1[s - t] u_s

is a circular convolution of size n >= 2L with the kernel

  k = [K0[0] + K1[0], K0[1], ..., K0[L-1], 0, ..., 0, K1[L-1], ..., K1[1]].

In the release lag 0 belongs to both kernels. In the paper's equation 3 it
belongs to the second one only: the caller clears K0[0] then.

Axes: B batch, L length, D channels. At least float32. A sharded transform must
not be left to XLA's partitioner, which gathers the operands of every FFT
(openxla/xla#24): under a mesh it runs in `shard_map` (`mesh.on_mesh`).
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.models import mesh
from locost_jax.models import pieces

# The release's CUDA extension takes no longer inputs.
RELEASE_MAX_LENGTH = 8192

# What `group_size` goes by.
CPU_GROUP = 16
CPU_ALL_BYTES = 16 << 20
GROUP_BYTES = 1 << 30


def fft_size(n, backend=None):
  """The size >= n at which an FFT is fast.

  The next 5-smooth number on CPU and GPU, the next power of two on TPU, where
  other sizes cost up to 15 times more.
  """
  power = 1 << max(n - 1, 0).bit_length()
  if (backend or mesh.platform()) == 'tpu':
    return power
  best = power
  five = 1
  while five < best:
    three = five
    while three < best:
      rest = -(-n // three)
      best = min(best, three << max(rest - 1, 0).bit_length())
      three *= 3
    five *= 5
  return best


def two_sided_kernel(K0, K1, n):
  """The circular kernel k [D, n] of K0 [D, L] and K1 [D, L]; n >= 2L - 1."""
  D, L = K0.shape
  middle = jnp.zeros((D, n - 2 * L + 1), K0.dtype)
  first = K0.at[:, 0].add(K1[:, 0])
  return jnp.concatenate([first, middle, K1[:, :0:-1]], 1)


def one_sided_kernel(K0, n):
  """The circular kernel [D, n] of a causal convolution with K0 [D, L]."""
  return jnp.pad(K0, ((0, 0), (0, n - K0.shape[1])))


def spectral_conv(u, spectrum, n):
  """The first L outputs of the circular convolution of size n.

  Args:
    u: [B, L, D], real, at least float32.
    spectrum: [D, n // 2 + 1], the kernels' `rfft`.
    n: size of the transform, >= L.

  Returns:
    [B, L, D].
  """
  u_f = jnp.fft.rfft(u.swapaxes(1, 2), n)
  y = jnp.fft.irfft(u_f * spectrum, n)[..., :u.shape[1]]
  return y.swapaxes(1, 2)


def group_size(batch, channels, n, backend=None):
  """Channels that are transformed at once.

  CPU: all while they are few bytes, else 16, whose float32 numbers fill a
  cache line of u [B, L, D]. Elsewhere: as many as keep a transform's complex
  work area at GROUP_BYTES (above 4 GB cuFFT fails, jax#9591).

  Args:
    batch: B.
    channels: D.
    n: size of the transform.
    backend: None: the default one.
  """
  if (backend or mesh.platform()) == 'cpu':
    small = 4 * batch * channels * n <= CPU_ALL_BYTES
    return channels if small else min(channels, CPU_GROUP)
  return min(channels, max(1, GROUP_BYTES // (8 * batch * n)))


def conv_in_groups(u, spectrum, n, group=None, lean=False):
  """`spectral_conv` over groups of channels, each written over its input.

  Beside u and the result (one array where u is not needed any more) only one
  group's transforms and kernels exist at a time, also in the backward pass,
  which makes them again. Where all channels are one group it keeps them, unless
  it is to be lean.

  Args:
    u: [B, L, D], real; transformed in float32 at least.
    spectrum: (start, count) -> complex [count, n // 2 + 1], the spectrum of
      the kernels of these channels; start may be traced.
    n: size of the transform, >= L.
    group: channels at a time; None: `group_size`.
    lean: whether the backward pass makes again also what one group has.

  Returns:
    [B, L, D] in u's dtype.
  """
  B, _, D = u.shape
  group = group or group_size(B, D, n)
  dtype, precise = u.dtype, jnp.promote_types(u.dtype, jnp.float32)
  if mesh.platform() == 'cpu':  # no bfloat16 is written in place there
    u = u.astype(precise)

  def convolve(start, part):
    y = spectral_conv(part.astype(precise), spectrum(start, min(group, D)), n)
    return y.astype(part.dtype)

  if group < D or lean:
    convolve = jax.checkpoint(convolve)
  if group >= D:
    return convolve(0, u).astype(dtype)

  def write(piece, u):
    part = piece.take(u, 2)  # what is not fresh is an output already
    y = jnp.where(piece.fresh, convolve(piece.start, part), part)
    return piece.put(u, y, 2)

  return pieces.over(D, group, write, u).astype(dtype)


def circular_conv(u, k, group=None):
  """`conv_in_groups` with kernels k [D, n] in time."""
  def spectrum(start, count):
    return jnp.fft.rfft(jax.lax.dynamic_slice_in_dim(k, start, count))
  return conv_in_groups(u, spectrum, k.shape[1], group)


def release_size(length):
  """n of `release_kernel` for inputs of this length."""
  even = release_length(length)
  if even > RELEASE_MAX_LENGTH:
    return fft_size(2 * even)
  return max(2 << (even - 1).bit_length(), 16)


def release_kernel(K0, K1):
  """The circular kernel of the release's CUDA path with its defect.

  The kernel of size 2L is zero-padded on the right to the FFT's size
  F = max(2 * 2^ceil(log2 L), 16), after its negative lags, so that K1[m] acts
  at lag -(m + F - 2L) instead of -m unless L is a power of two (spec: "A defect
  in the release"). Odd lengths are first padded by one, hence kernels of L + 1
  lags there (`release_length`). Longer than 8192 tokens the release has no such
  path: the exact one is taken.

  Args:
    K0: [D, release_length(L)].
    K1: [D, release_length(L)].

  Returns:
    [D, release_size(L)].
  """
  even = K0.shape[1]
  n = release_size(even)
  if even > RELEASE_MAX_LENGTH:
    return two_sided_kernel(K0, K1, n)
  k = two_sided_kernel(K0, K1, 2 * even)
  return jnp.pad(k, ((0, 0), (0, n - 2 * even)))


def release_length(length):
  """Lags of the kernels that `release_kernel` takes for inputs so long."""
  return length if length > RELEASE_MAX_LENGTH else length + length % 2


@functools.partial(jax.vmap, in_axes=(0, None, None))
def direct_conv(u, K0, K1):
  """Equation 3 as the O(L^2) sum, lag 0 in both kernels: the reference.

  Memory L^2 D.

  Args:
    u: [B, L, D].
    K0: [D, L], kernel of the tokens before.
    K1: [D, L], kernel of the tokens after.

  Returns:
    [B, L, D].
  """
  L = u.shape[0]
  lag = jnp.arange(L)[:, None] - jnp.arange(L)[None, :]  # t - s
  past = jnp.where(lag >= 0, K0[:, abs(lag)], 0)
  future = jnp.where(lag <= 0, K1[:, abs(lag)], 0)
  return jnp.einsum('dts,sd->td', past + future, u,
                    precision=jax.lax.Precision.HIGHEST)
