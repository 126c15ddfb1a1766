"""The two-sided long convolution of LOCOST (equation 3), through one FFT.

  y_t = sum_(s <= t) K0[t - s] u_s + sum_(s >= t) K1[s - t] u_s

is a circular convolution of size n >= 2L with the kernel

  k = [K0[0] + K1[0], K0[1], ..., K0[L-1], 0, ..., 0, K1[L-1], ..., K1[1]].

In the release lag 0 belongs to both kernels. In the paper's equation 3 it
belongs to the second one only: the caller clears K0[0] then.

Axes: B batch, L length, D channels. At least float32. A transform that is
sharded over its batch must not be left to XLA's partitioner, which gathers the
operands of every FFT (openxla/xla#24): under a mesh it runs in `shard_map`.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

# The mesh axes of the whole project.
DATA, FSDP, TENSOR, SEQUENCE = 'data', 'fsdp', 'tensor', 'sequence'
AXES = (DATA, FSDP, TENSOR, SEQUENCE)

# The release's CUDA extension takes no longer inputs.
RELEASE_MAX_LENGTH = 8192


def fft_size(n, backend=None):
  """The size >= n at which an FFT is fast.

  The next 5-smooth number on CPU and GPU, the next power of two on TPU, where
  other sizes cost up to 15 times more.
  """
  power = 1 << max(n - 1, 0).bit_length()
  if (backend or jax.default_backend()) == 'tpu':
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


def circular_conv(u, k):
  """The first L outputs of the circular convolution of u with k.

  Args:
    u: [B, L, D], real.
    k: [D, n], n >= L.

  Returns:
    [B, L, D].
  """
  n, L = k.shape[1], u.shape[1]
  u_f = jnp.fft.rfft(u.swapaxes(1, 2), n)
  y = jnp.fft.irfft(u_f * jnp.fft.rfft(k), n)[..., :L]
  return y.swapaxes(1, 2)


def sharded_circular_conv(u, k):
  """`circular_conv`, each device convolving its own part of the batch.

  Reads the mesh in context; without one, or when the batch does not divide
  over it, this is `circular_conv`.
  """
  mesh = jax.sharding.get_abstract_mesh()
  shards = mesh.shape.get(DATA, 1) * mesh.shape.get(FSDP, 1)
  if shards == 1 or u.shape[0] % shards:
    return circular_conv(u, k)
  rows = P((DATA, FSDP))
  return jax.shard_map(
      circular_conv, mesh=mesh, in_specs=(rows, P()), out_specs=rows)(u, k)


def two_sided_conv(u, K0, K1):
  """Equation 3, lag 0 in both kernels; exact for every length.

  Args:
    u: [B, L, D].
    K0: [D, L], kernel of the tokens before.
    K1: [D, L], kernel of the tokens after.

  Returns:
    [B, L, D].
  """
  n = fft_size(2 * u.shape[1])
  return sharded_circular_conv(u, two_sided_kernel(K0, K1, n))


def causal_conv(u, K0):
  """y_t = sum_(s <= t) K0[t - s] u_s; u [B, L, D], K0 [D, L] -> [B, L, D]."""
  n = fft_size(2 * u.shape[1])
  return sharded_circular_conv(u, one_sided_kernel(K0, n))


def release_conv(u, K0, K1):
  """The release's CUDA path with its defect, to compare released weights.

  The kernel of size 2L is zero-padded on the right to the FFT's size
  F = max(2 * 2^ceil(log2 L), 16), after its negative lags, so that K1[m] acts
  at lag -(m + F - 2L) instead of -m unless L is a power of two (spec: "A defect
  in the release"). Odd lengths are first padded by one, hence kernels of L + 1
  lags there (`release_length`). Longer than 8192 tokens the release has no such
  path: the exact one is taken.

  Args:
    u: [B, L, D].
    K0: [D, release_length(L)].
    K1: [D, release_length(L)].

  Returns:
    [B, L, D].
  """
  even = K0.shape[1]
  if even > RELEASE_MAX_LENGTH:
    return two_sided_conv(u, K0, K1)
  size = max(2 << (even - 1).bit_length(), 16)
  k = two_sided_kernel(K0, K1, 2 * even)
  return sharded_circular_conv(u, jnp.pad(k, ((0, 0), (0, size - 2 * even))))


def release_length(length):
  """Lags of the kernels that `release_conv` wants for inputs of this length."""
  return length if length > RELEASE_MAX_LENGTH else length + length % 2


@functools.partial(jax.vmap, in_axes=(0, None, None))
def direct_conv(u, K0, K1):
  """Equation 3 as the O(L^2) sum, lag 0 in both kernels: the reference.

  Args and result as in `two_sided_conv`; memory L^2 D.
  """
  L = u.shape[0]
  lag = jnp.arange(L)[:, None] - jnp.arange(L)[None, :]  # t - s
  past = jnp.where(lag >= 0, K0[:, abs(lag)], 0)
  future = jnp.where(lag <= 0, K1[:, abs(lag)], 0)
  return jnp.einsum('dts,sd->td', past + future, u,
                    precision=jax.lax.Precision.HIGHEST)
