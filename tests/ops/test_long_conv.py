"""The convolution of each transform matches the O(L^2) sum, for every length."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.ops import long_conv
from locost_jax.ops.matrix_transform import MatrixTransform
from tests import products
from tests.ops.compiled import assert_same
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes

# powers of two, odd, prime, tiny, and around them
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 31, 64, 97, 100, 101, 127, 128)


def example(length, batch=2, channels=3):
  rng = np.random.default_rng(length)
  return (
      rng.normal(size=(channels, batch, length)),
      rng.normal(size=(channels, length)),
      rng.normal(size=(channels, length)),
  )


TRANSFORMS = long_conv.FFT, MatrixTransform
EACH = pytest.mark.parametrize('kind', TRANSFORMS)


def learned_conv(kind, u, K0, K1=None, group=None, keep='all'):
  """`learned_conv` with kernels in time, and no skip."""
  transform = kind.of_length(u.shape[2])

  def spectrum(kernels, start, count):
    take = lambda K: jax.lax.dynamic_slice_in_dim(K, start, count)
    K0, K1 = jax.tree.map(take, kernels)
    return transform.kernel_spectrum(K0, K1, jnp.zeros(count))

  return long_conv.learned_conv(u, (K0, K1), spectrum, transform, group, keep)


def direct_sum(u, K0, K1):
  """Loops over y_t = sum_(s<=t) K0[t-s] u_s + sum_(s>=t) K1[s-t] u_s."""
  y = np.zeros_like(u)
  for t in range(u.shape[2]):
    for s in range(u.shape[2]):
      if s <= t:
        y[..., t] += K0[:, None, t - s] * u[..., s]
      if s >= t:
        y[..., t] += K1[:, None, s - t] * u[..., s]
  return y


@products.parametrize('length', LENGTHS, (1, 2, 3, 4, 7, 13, 16, 17, 100))
def test_convolutions_match_the_direct_sum(length):
  """Two-sided, also in float32, and causal, without K1."""
  u, K0, K1 = example(length)
  want, causal = (direct_sum(u, K0, K) for K in (K1, np.zeros_like(K1)))
  convs = [functools.partial(learned_conv, kind) for kind in TRANSFORMS]
  with jax.enable_x64(True):
    for conv in *convs, long_conv.direct_conv:
      got = jax.jit(conv)(*map(jnp.asarray, (u, K0, K1)))
      np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)
    for conv in convs:
      got = jax.jit(conv)(*map(jnp.asarray, (u, K0)))
      np.testing.assert_allclose(got, causal, rtol=0, atol=1e-11)
  for conv in convs:
    got = jax.jit(conv)(*map(jnp.float32, (u, K0, K1)))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


@EACH
@pytest.mark.parametrize('length', (129, 1000, 4096, 20011))
def test_long_inputs_match_the_sum(length, kind):
  """float32 at model lengths, against sums without transforms in float64."""
  (u,), (K0,), (K1,) = example(length, batch=1, channels=1)
  want = np.convolve(u[0], K0)[:length]
  want += np.convolve(u[0, ::-1], K1)[length - 1 :: -1]
  single = (np.float32(x)[None] for x in (u, K0, K1))
  got = jax.jit(functools.partial(learned_conv, kind))(*single)
  atol = 2e-6 * np.abs(want).max()
  np.testing.assert_allclose(got[0, 0], want, rtol=0, atol=atol)


@pytest.mark.parametrize('factors', ((129, 256), (5, 128, 128), (3, 4, 2, 5)))
def test_other_factors_match_the_fft(factors):
  """Those of inputs above 32K and 65K tokens, and more of them."""
  transform = MatrixTransform(factors)
  n = length = transform.bins
  if n > 1000:
    assert MatrixTransform.of_length(n - 1) == transform
  u, K0, K1 = example(length, batch=1, channels=1)
  with jax.enable_x64(True):
    args = jnp.asarray(u), *map(jnp.asarray, (K0, K1, [0.5]))
    got, want = (
        one.convolve(args[0], one.kernel_spectrum(*args[1:]))
        for one in (transform, long_conv.FFT(2 * length))
    )
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-9)


def test_the_precision_of_the_products():
  """Six passes on a TPU, three for bfloat16, and never the default of one."""
  transform = MatrixTransform.of_length(300)

  def conv(u, K0, K1, skip):
    spectrum = transform.kernel_spectrum(K0, K1, skip)
    return transform.convolve(u, spectrum).sum()

  for dtype, few in (jnp.float32, 0), (jnp.bfloat16, 24):
    given = shape(2, 1, 300, dtype=dtype), *2 * (shape(2, 300),), shape(2)
    jaxpr = str(jax.make_jaxpr(jax.grad(conv, range(4)))(*given))
    found = re.findall(r'precision=\(Precision\.(\w+)', jaxpr)
    assert len(found) == jaxpr.count('dot_general[') == 40, found
    assert found.count('HIGH') == few, found
    assert set(found) <= {'HIGH', 'HIGHEST'}, found


def release_conv(u, K0, K1):
  """The release's CUDA path: kernels of 2L lags, an FFT of another size."""
  L = u.shape[2]
  even = K0.shape[1]
  F = max(2 * 2 ** int(np.ceil(np.log2(even))), 16)
  k = np.concatenate([K0, 0 * K1[:, :1], K1[:, :0:-1]], 1)
  k[:, 0] += K1[:, 0]
  spectra = np.fft.rfft(u, F) * np.fft.rfft(k, F)[:, None]
  return np.fft.irfft(spectra, F)[..., :L]


@EACH
@pytest.mark.parametrize('length', (1, 2, 5, 16, 23, 64, 100))
def test_the_releases_defect(length, kind):
  """Its own transforms give the same, which powers of two do not change."""
  u, _, _ = example(length)
  _, K0, K1 = example(length + length % 2)
  want = release_conv(u, K0, K1)
  with jax.enable_x64(True):
    u, K0, K1 = (jnp.asarray(x[..., :length]) for x in (u, K0, K1))
    moved = long_conv.release_reverse(K1)
    got = learned_conv(kind, u, K0, moved)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)
  assert (moved == K1).all() == (length in (1, 16, 64))
  exact = jnp.zeros((1, 8193))
  assert long_conv.release_reverse(exact) is exact


def test_fft_size_is_the_next_smooth_number():
  smooth = sorted(
      2**a * 3**b * 5**c for a in range(15) for b in range(9) for c in range(7)
  )
  for n in range(1, 3000):
    want = next(s for s in smooth if s >= n)
    assert long_conv.fft_size(n, 'cpu') == want
    assert long_conv.fft_size(n, 'tpu') == 1 << (n - 1).bit_length()


GROUPS = [(*x, 'all') for x in ((1, 2), (13, 2), (13, 7), (16, 3))]
GROUPS += itertools.product((13,), (2, 5), ('nothing', 'spectra'))
MORE = itertools.product((1, 2, 13, 16), (1, 2, 3, 5, 7), ('all',))


@products.few(
    'length,group,keep',
    GROUPS,
    [case for case in MORE if case not in GROUPS],
    others=pytest.mark.products,
)
@EACH
def test_groups_match_all_channels_at_once(length, group, keep, kind):
  """Value and gradients, also if the groups do not divide the channels.

  Only one group keeps more than spectra for the backward pass.
  """
  conv = functools.partial(learned_conv, kind, group=group, keep=keep)

  def run(conv, *args):
    loss = lambda *args: (conv(*args) ** 3).sum()
    return conv(*args), jax.grad(loss, (0, 1, 2))(*args)

  with jax.enable_x64(True):
    args = tuple(map(jnp.asarray, example(length, channels=5)))
    got, want = (
        jax.jit(functools.partial(run, form))(*args)
        for form in (conv, long_conv.direct_conv)
    )
    kept = jax.tree.leaves(jax.vjp(conv, *args)[1])
  assert_same(got, want, rtol=1e-9, atol=1e-9)
  if length < 13:  # no other array has as many numbers as a spectrum
    return
  bins = kind.of_length(length).bins
  spectrum = (bins,) if kind is long_conv.FFT else (2, 1, bins)
  found = [x.shape for x in kept if bins in x.shape]
  if group >= 5 and keep == 'all':
    assert len(found) > 1
  else:
    assert found == ([] if keep == 'nothing' else [(5, *spectrum)])


@EACH
def test_groups_of_bfloat16_are_transformed_in_float32(kind):
  u, K0, K1 = (jnp.asarray(x, jnp.float32) for x in example(64, channels=5))
  u = u.astype(jnp.bfloat16)
  got = learned_conv(kind, u, K0, K1, 2)
  want = long_conv.direct_conv(u.astype(jnp.float32), K0, K1)
  assert got.dtype == jnp.bfloat16
  # The result is rounded once; the rest is rounding of float32.
  np.testing.assert_allclose(np.float32(got), want, rtol=2**-8, atol=1e-5)


@EACH
def test_work_area(kind):
  """Of 16 channels; `numbers` also bounds the groups of other devices."""
  transform, (D, B, L) = kind.of_length(16384), (16, 2, 16384)
  kernel = jax.eval_shape(
      transform.kernel_spectrum, *2 * (shape(D, L),), shape(D)
  )
  assert kernel.size * kernel.dtype.itemsize == 8 * D * transform.bins
  size = temporary_bytes(transform.convolve, shape(D, B, L), kernel)
  assert 0.4 < size / (16 * D * B * transform.numbers) <= 1


def test_group_size():
  """On a CPU all channels that fit, or 16; elsewhere 1 GiB of work area."""
  assert long_conv.group_size(4, 128, 1024, 'cpu') == 128
  assert long_conv.group_size(1, 768, 8192, 'cpu') == 256
  assert long_conv.group_size(1, 768, 32768, 'cpu') == 64
  assert long_conv.group_size(1, 768, 1200000, 'cpu') == 16
  assert long_conv.group_size(1, 8, 1 << 20, 'cpu') == 8
  assert long_conv.group_size(1, 768, 32768, 'gpu') == 768
  assert long_conv.group_size(1, 768, 1200000, 'gpu') == 111
  assert long_conv.group_size(4, 768, 1 << 28, 'gpu') == 1
  assert long_conv.group_size(16, 768, 8192, 'tpu') == 64
  assert long_conv.group_size(1, 768, 1200000, 'tpu') == 111
