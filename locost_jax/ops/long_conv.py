"""The two-sided long convolution of LOCOST (equation 3), through one transform.

  y_t = sum_(s <= t) K0[t - s] u_s + sum_(s >= t) K1[s - t] u_s

is a circular convolution of size n >= 2L with the kernel

  k = [K0[0] + K1[0], K0[1], ..., K0[L-1], 0, ..., 0, K1[L-1], ..., K1[1]]

and a product of spectra, which a transform makes and applies: `FFT`, or another
with its methods (`matrix_transform`).

In the release lag 0 belongs to both kernels. In the paper's equation 3 it
belongs to the second one only: then the caller clears K0[0].

Axes: D channels, B batch, L length. Transforms run along the last, so that a
group of channels is one block of memory, and in float32 at least. XLA's
partitioner would gather the operands of every FFT (openxla/xla#24), so under a
mesh they run in `shard_map` (`mesh.on_mesh`).
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces

# The release's CUDA extension takes no longer inputs.
RELEASE_MAX_LENGTH = 8192

# Limits for `group_size`.
CPU_GROUP = 16
CPU_GROUP_BYTES = 8 << 20
CPU_ALL_BYTES = 16 << 20
TPU_GROUP_BYTES = 64 << 20
TPU_ROWS = 8  # of a tile in its vector memory
GROUP_BYTES = 1 << 30


def fft_size(n, backend=None):
  """The size >= n at which an FFT is fast.

  The next 5-smooth number on CPU and GPU, the next power of two on TPU, where
  other sizes cost up to 15 times more.
  """
  power = 1 << max(n - 1, 0).bit_length()
  if (backend or mesh_lib.platform()) == 'tpu':
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


@dataclasses.dataclass(frozen=True)
class FFT:
  """`jnp.fft`: spectra are complex [D, n // 2 + 1].

  Attributes:
    n: the size of the circular convolution, at least 2L - 1.
  """

  n: int

  @classmethod
  def of_length(cls, length):
    """The transform for inputs of this length."""
    return cls(fft_size(2 * length))

  @property
  def bins(self):
    """Complex numbers in the spectrum of a sequence."""
    return self.n // 2 + 1

  @property
  def numbers(self):
    """Real numbers of a transformed sequence's work area."""
    return self.n

  def flops(self, batch, directions):
    """Operations of a channel in a training step, see `models.flops`."""
    del directions
    n = self.n
    return 5.0 * (2 * batch + 1) * n * math.log2(n) + 9.0 * batch * n

  def kernel_spectrum(self, K0, K1, skip):
    """The spectra of kernels K0 and K1 [D, L], K1 None if causal; skip [D]."""
    k = K0 if K1 is None else two_sided_kernel(K0, K1, self.n)
    return jnp.fft.rfft(k.at[:, 0].add(skip.astype(k.dtype)), self.n)

  def convolve(self, u, spectrum):
    """u [D, B, L] convolved with these kernels: [D, B, L], float32 at least."""
    transformed = jnp.fft.rfft(u.astype(_precise(u)), self.n)
    y = jnp.fft.irfft(transformed * spectrum[:, None], self.n)
    return y[..., : u.shape[2]]


def two_sided_kernel(K0, K1, n):
  """The circular kernel k [D, n] of K0 [D, L] and K1 [D, L]; n >= 2L - 1."""
  D, L = K0.shape
  middle = jnp.zeros((D, n - 2 * L + 1), K0.dtype)
  first = K0.at[:, 0].add(K1[:, 0])
  return jnp.concatenate([first, middle, K1[:, :0:-1]], 1)


def group_size(batch, channels, n, backend=None):
  """The number of channels that are transformed at once; n: their `numbers`.

  CPU: all if they fit CPU_ALL_BYTES, else as many, a power of two, as fit
  CPU_GROUP_BYTES, at least CPU_GROUP, so that all threads have work (jax 0.10
  takes one inside a program, openxla/xla#46345). TPU: as many as fit
  TPU_GROUP_BYTES, so that they stay in its vector memory, 128 MiB of a v5e, if
  these fill a tile. Else, and on a GPU: as many as fit a complex work area of
  GROUP_BYTES (above 4 GB cuFFT fails, jax#9591).
  """
  backend = backend or mesh_lib.platform()
  if backend == 'cpu':
    bytes_each = 4 * batch * n
    if channels * bytes_each <= CPU_ALL_BYTES:
      return channels
    few = 1 << (CPU_GROUP_BYTES // bytes_each).bit_length() >> 1
    return min(channels, max(few, CPU_GROUP))
  few = TPU_GROUP_BYTES // (8 * batch * n)
  if backend == 'tpu' and few >= TPU_ROWS:
    return min(channels, few)
  return min(channels, max(1, GROUP_BYTES // (8 * batch * n)))


def conv_in_groups(u, spectrum, transform, group=None):
  """`transform.convolve` over groups of channels, each written over its input.

  Apart from u and the result (one array if u is not used again), only one
  group's transforms and kernels exist at a time. For gradients: `learned_conv`.

  Args:
    u: [D, B, L], real, like the result; transformed in float32 at least.
    spectrum: (start, count) -> [count, ...], `transform.kernel_spectrum` of
      these channels; start may be traced.
    transform: `FFT`, or another transform.
    group: channels at a time; None: `group_size`.
  """
  D, B, _ = u.shape
  group = min(group or group_size(B, D, transform.numbers), D)

  def convolve(start, part):
    y = transform.convolve(part, spectrum(start, group))
    return y.astype(part.dtype)

  def write(piece, y):
    # Elements shared with the previous piece are outputs already.
    part = piece.take(y, 0)
    new = piece.choose(convolve(piece.start, part), part, 0)
    return piece.put(y, new, 0)

  if group == D:
    return convolve(0, u)
  return pieces.over(D, group, write, u)


def spectra_in_groups(spectrum, channels, group):
  """The spectra of all channels' kernels, made group by group: [D, ...].

  spectrum is that of `conv_in_groups`, channels D, group channels at a time.
  """
  if group >= channels:
    return spectrum(0, channels)
  one = jax.eval_shape(lambda: spectrum(0, 1))
  return pieces.over(
      channels,
      group,
      lambda piece, s: piece.put(s, spectrum(piece.start, group), 0),
      jnp.zeros((channels, *one.shape[1:]), one.dtype),
  )


def learned_conv(u, parameters, spectrum, transform, group=None, keep='all'):
  """`conv_in_groups` with gradients in groups; d_u is written over d_y.

  Args:
    u: [D, B, L], real, like the result.
    parameters: tree of float arrays, of all channels.
    spectrum: (parameters, start, count) -> as in `conv_in_groups`; holds no
      arrays.
    keep: what the backward pass keeps besides u and the parameters. 'spectra':
      the kernels' spectra, as many bytes as two arrays u of one document;
      'all': the transforms too, if all channels are one group; 'nothing':
      everything is recomputed.
  """
  D, B, _ = u.shape
  group = min(group or group_size(B, D, transform.numbers), D)
  if group == D and keep == 'all':
    of_channels = functools.partial(spectrum, parameters)
    return conv_in_groups(u, of_channels, transform, group)
  return _conv(spectrum, transform, group, keep != 'nothing', u, parameters)


# `learned_conv` without kept transforms.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _conv(spectrum, transform, group, keeps_spectra, u, parameters):
  del keeps_spectra
  of_channels = functools.partial(spectrum, parameters)
  return conv_in_groups(u, of_channels, transform, group)


def _conv_forward(spectrum, transform, group, keeps_spectra, u, parameters):
  of_channels, spectra = functools.partial(spectrum, parameters), None
  if keeps_spectra:
    spectra = spectra_in_groups(of_channels, u.shape[0], group)
    of_channels = functools.partial(jax.lax.dynamic_slice_in_dim, spectra)
  y = conv_in_groups(u, of_channels, transform, group)
  return y, (u, parameters, spectra)


def _conv_backward(spectrum, transform, group, keeps_spectra, kept, d_y):
  u, parameters, spectra = kept

  def add(piece, carry):
    d, d_parameters = carry
    # d_y, but elements shared with the previous piece are already d_u.
    part = piece.take(d, 0)
    s, pull_s = jax.vjp(
        lambda parameters: spectrum(parameters, piece.start, group), parameters
    )
    if keeps_spectra:  # the s of jax.vjp is then dead code
      s = piece.take(spectra, 0)
    _, pull = jax.vjp(transform.convolve, piece.take(u, 0), s)
    new, d_s = pull(piece.choose(part, 0, 0).astype(_precise(u)))
    new, (more,) = piece.choose(new.astype(d.dtype), part, 0), pull_s(d_s)
    return piece.put(d, new, 0), jax.tree.map(jnp.add, d_parameters, more)

  d_u, d_parameters = pieces.over(
      u.shape[0],
      group,
      add,
      (d_y, jax.tree.map(jnp.zeros_like, parameters)),
  )
  return d_u, d_parameters


_conv.defvjp(_conv_forward, _conv_backward)


def _precise(x):
  return jnp.promote_types(x.dtype, jnp.float32)


def release_reverse(K1):
  """K1 [D, L] as the release's CUDA path applies it, with its defect.

  It pads the circular kernel of size 2L on the right to the FFT's size
  F = max(2 * 2^ceil(log2 L), 16), after its negative lags, so that K1[m], m > 0,
  acts at lag -(m + F - 2L) instead of -m unless L is a power of two (spec: "A
  defect in the release"). Odd lengths are first padded by one. Above 8192
  tokens the release has no such path, and K1 is exact.
  """
  L = K1.shape[1]
  even = L + L % 2
  if even > RELEASE_MAX_LENGTH:
    return K1
  shift = max(2 << (even - 1).bit_length(), 16) - 2 * even
  later = jnp.pad(K1[:, 1:], ((0, 0), (shift, 0)))
  return jnp.concatenate([K1[:, :1], later], 1)[:, :L]


def direct_conv(u, K0, K1):
  """Equation 3 as the O(L^2) sum, lag 0 in both kernels: the reference.

  u [D, B, L], kernels of the tokens before and after K0 and K1 [D, L] ->
  [D, B, L]. Memory L^2 D.
  """
  L = u.shape[2]
  lag = jnp.arange(L)[:, None] - jnp.arange(L)[None, :]  # t - s
  past = jnp.where(lag >= 0, K0[:, abs(lag)], 0)
  future = jnp.where(lag <= 0, K1[:, abs(lag)], 0)
  return jnp.einsum(
      'dts,dbs->dbt', past + future, u, precision=jax.lax.Precision.HIGHEST
  )
