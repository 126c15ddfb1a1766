"""The FFT convolution matches the O(L^2) sum, for every kind of length."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.ops import long_conv
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


def circular_conv(u, k, group=None):
  """`learned_conv` with kernels k [D, n] in time."""

  def spectrum(k, start, count):
    return jnp.fft.rfft(jax.lax.dynamic_slice_in_dim(k, start, count))

  return long_conv.learned_conv(u, k, spectrum, k.shape[1], group)


def two_sided_conv(u, K0, K1, group=None):
  n = long_conv.fft_size(2 * u.shape[2])
  return circular_conv(u, long_conv.two_sided_kernel(K0, K1, n), group)


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
def test_two_sided_matches_the_direct_sum(length):
  u, K0, K1 = example(length)
  want = direct_sum(u, K0, K1)
  with jax.enable_x64(True):
    for conv in two_sided_conv, long_conv.direct_conv:
      got = jax.jit(conv)(u, K0, K1)
      np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)
  single = (x.astype(np.float32) for x in (u, K0, K1))
  got = jax.jit(two_sided_conv)(*single)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize('length', (1, 2, 7, 16, 97))
def test_causal_matches_the_direct_sum(length):
  u, K0, _ = example(length)
  want = direct_sum(u, K0, np.zeros_like(K0))
  with jax.enable_x64(True):
    k = long_conv.one_sided_kernel(
        jnp.asarray(K0), long_conv.fft_size(2 * length)
    )
    got = circular_conv(jnp.asarray(u), k)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)


@pytest.mark.parametrize('length', (1, 5, 16, 23, 64, 100))
def test_release_shifts_the_reverse_kernel_unless_a_power_of_two(length):
  """Lag -m of the reverse kernel acts at -(m + F - 2L), L rounded to even."""
  u, _, _ = example(length)
  even = length + length % 2
  _, K0, K1 = example(even)
  F = max(2 * 2 ** int(np.ceil(np.log2(even))), 16)
  shift = F - 2 * even
  moved = np.zeros((3, even + shift))
  moved[:, 0] = K1[:, 0]
  moved[:, 1 + shift :] = K1[:, 1:]
  want = direct_sum(u, K0[:, :length], moved[:, :length])
  assert long_conv.release_length(length) == even
  with jax.enable_x64(True):
    k = long_conv.release_kernel(jnp.asarray(K0), jnp.asarray(K1))
    got = circular_conv(jnp.asarray(u), k)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)


def test_fft_size_is_the_next_smooth_number():
  smooth = sorted(
      2**a * 3**b * 5**c for a in range(15) for b in range(9) for c in range(7)
  )
  for n in range(1, 3000):
    want = next(s for s in smooth if s >= n)
    assert long_conv.fft_size(n, 'cpu') == want
    assert long_conv.fft_size(n, 'tpu') == 1 << (n - 1).bit_length()


@products.parametrize(
    'length,group',
    itertools.product((1, 2, 13, 16), (1, 2, 3, 5, 7)),
    ((1, 2), (2, 1), (13, 2), (13, 7), (16, 3)),
)
def test_groups_match_all_channels_at_once(length, group):
  """Value and gradients, also if the groups do not divide the channels."""
  u, K0, K1 = example(length, channels=5)
  grouped = functools.partial(two_sided_conv, group=group)

  def run(conv, *args):
    loss = lambda *args: (conv(*args) ** 3).sum()
    return conv(*args), jax.grad(loss, (0, 1, 2))(*args)

  with jax.enable_x64(True):
    args = tuple(map(jnp.asarray, (u, K0, K1)))
    got, want = (
        jax.jit(functools.partial(run, conv))(*args)
        for conv in (grouped, long_conv.direct_conv)
    )
    assert_same(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('group', (2, 3))
@pytest.mark.parametrize('keep', ('nothing', 'spectra', 'all'))
def test_what_the_backward_pass_keeps(keep, group):
  """Gradients match the direct sum; only one group keeps more than spectra."""
  u, K0, K1 = example(13)
  n = long_conv.fft_size(26)

  def spectrum(k, start, count):
    return jnp.fft.rfft(jax.lax.dynamic_slice_in_dim(k, start, count))

  def conv(u, K0, K1):
    return long_conv.learned_conv(
        u, long_conv.two_sided_kernel(K0, K1, n), spectrum, n, group, keep
    )

  with jax.enable_x64(True):
    args = tuple(map(jnp.asarray, (u, K0, K1)))
    loss = lambda conv: lambda *args: (conv(*args) ** 3).sum()
    got, want = (
        jax.jit(jax.grad(loss(f), (0, 1, 2)))(*args)
        for f in (conv, long_conv.direct_conv)
    )
    kept = jax.tree.leaves(jax.vjp(conv, *args)[1])
  assert_same(got, want, rtol=1e-9, atol=1e-9)
  found = [x.shape for x in kept if n // 2 + 1 in x.shape]
  if (group, keep) == (3, 'all'):
    assert len(found) > 1
  else:
    assert found == ([] if keep == 'nothing' else [(3, n // 2 + 1)])


def test_groups_of_bfloat16_are_transformed_in_float32():
  u, K0, K1 = (jnp.asarray(x, jnp.float32) for x in example(64, channels=5))
  u = u.astype(jnp.bfloat16)
  n = long_conv.fft_size(128)
  s = jnp.fft.rfft(long_conv.two_sided_kernel(K0, K1, n))
  spectrum = functools.partial(jax.lax.dynamic_slice_in_dim, s)
  got = long_conv.conv_in_groups(u, spectrum, n, 2)
  want = long_conv.direct_conv(u.astype(jnp.float32), K0, K1)
  assert got.dtype == jnp.bfloat16
  # The result is rounded once; the rest is rounding of float32.
  np.testing.assert_allclose(np.float32(got), want, rtol=2**-8, atol=1e-5)


def test_group_size():
  """On a CPU all channels that fit, or 16; elsewhere 1 GiB of work area."""
  assert long_conv.group_size(4, 128, 1024, 'cpu') == 128
  assert long_conv.group_size(1, 768, 32768, 'cpu') == 16
  assert long_conv.group_size(1, 8, 1 << 20, 'cpu') == 8
  assert long_conv.group_size(1, 768, 32768, 'gpu') == 768
  assert long_conv.group_size(1, 768, 1200000, 'gpu') == 111
  assert long_conv.group_size(4, 768, 1 << 28, 'gpu') == 1


@pytest.mark.parametrize('grouped', (True, False))
def test_memory_of_groups(grouped):
  """Memory beyond the result, at 16K tokens and 768 channels."""
  L, D = 16384, 768
  n = long_conv.fft_size(2 * L)

  def conv(u, s):
    spectrum = functools.partial(jax.lax.dynamic_slice_in_dim, s)
    return long_conv.conv_in_groups(u, spectrum, n, None if grouped else D)

  size = temporary_bytes(
      conv,
      shape(D, 1, L),
      shape(D, n // 2 + 1, dtype=jnp.complex64),
      donate_argnums=0,
  ) / (L * D * 4)
  assert (size < 0.25) == grouped, size


def test_gradient_matches_the_direct_sum():
  u, K0, K1 = example(21)
  with jax.enable_x64(True):
    args = tuple(map(jnp.asarray, (u, K0, K1)))
    loss = lambda conv: lambda *a: (conv(*a) ** 3).sum()
    got, want = (
        jax.jit(jax.grad(loss(conv), (0, 1, 2)))(*args)
        for conv in (two_sided_conv, long_conv.direct_conv)
    )
  assert_same(got, want, rtol=1e-9, atol=1e-9)
