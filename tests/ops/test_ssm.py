"""Kernels match sums of exponentials and the recurrence."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.ops import complex_pairs
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel
from tests import products
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes

LENGTHS = (1, 2, 3, 7, 16, 97, 101, 255, 256, 257, 512, 1000)


def parameters(seed, G=1, C=2, D=3, N=5):
  """Random parameters far from their initial values, float64."""
  rng = np.random.default_rng(seed)
  log_dt = rng.uniform(np.log(1e-3), np.log(0.1), (G, D))
  A_real = np.log(0.5) + 0.3 * rng.normal(size=(G, D, N))
  A_imag = np.pi * np.arange(N) + rng.normal(size=(G, D, N))
  B = rng.normal(size=(G, D, N, 2))
  c = rng.normal(size=(C, D, N, 2))
  return log_dt, A_real, A_imag, B, c


def materialised(log_dt, A_real, A_imag, B, C, length):
  """K[l] = 2 Re sum_n C (exp(dt lambda) - 1)/lambda B exp(dt lambda l)."""
  lam = -np.exp(A_real) + 1j * A_imag
  dtA = np.exp(log_dt)[..., None] * lam
  B, C = B[..., 0] + 1j * B[..., 1], C[..., 0] + 1j * C[..., 1]
  w = C * B * (np.exp(dtA) - 1) / lam
  powers = np.exp(dtA[..., None] * np.arange(length))
  return 2 * (w[..., None] * powers).sum(2).real


def make_kernel(p, length):
  log_dt, A_real, A_imag, B, C = map(jnp.asarray, p)
  b = ssm.input_weights_zoh(log_dt, A_real, A_imag, B)
  w = complex_pairs.multiply((C[..., 0], C[..., 1]), b)
  log_z = ssm.discretise(log_dt, A_real, A_imag)
  return ssm_kernel.kernel(log_z, w, length), log_z, w


@products.parametrize(
    'length,G',
    itertools.product(LENGTHS, (1, 2)),
    [(length, 1 + i % 2) for i, length in enumerate(LENGTHS)],
)
def test_kernels_match_the_sum_of_exponentials(length, G):
  """The two-level product and, of few lags, equation 2 term by term."""
  p = parameters(length, G)
  want = materialised(*p, length)
  with jax.enable_x64(True):
    got = jax.jit(lambda p: make_kernel(p, length)[0])(p)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)
    if length < 100:
      _, log_z, w = make_kernel(p, length)
      got = ssm.kernel(log_z, w, length)
      np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)


@pytest.mark.parametrize('group', (None, 768))
def test_memory_at_sixteen_thousand_lags(group):
  """Base size, both directions: 32 MiB; all channels at once do not fit."""

  def make(log_z, w):
    if group is None:
      return ssm_kernel.kernel(log_z, w, 16384)
    return ssm_kernel.kernel_in_tiles(log_z, w, 16384, 128, 128, group)

  pair = lambda C: (shape(C, 768, 256),) * 2
  size = temporary_bytes(make, pair(1), pair(2))
  assert (size <= 32 << 20) == (group is None), size


def test_float32_kernel_at_sixteen_thousand_lags():
  """Errors of repeated doubling do not grow with the length."""
  p = parameters(0)
  want = materialised(*p, 16384)
  got = make_kernel([x.astype(np.float32) for x in p], 16384)[0]
  assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize('length', (1, 2, 17, 256, 300))
def test_convolution_with_the_kernel_matches_the_recurrence(length):
  with jax.enable_x64(True):
    K, log_z, w = make_kernel(parameters(1), length)
    u = np.random.default_rng(2).normal(size=(length, 3))
    got = ssm.recurrence(
        tuple(x[0] for x in log_z), tuple(x[0] for x in w), jnp.asarray(u)
    )
  want = np.stack([np.convolve(u[:, d], K[0, d])[:length] for d in range(3)], 1)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)


def test_expm1_keeps_its_digits_near_zero():
  z = np.array([-5e-4 + 0j, -5e-4 + 3.1e-3j, -1e-7 + 1e-7j, -0.05 + 80j])
  with jax.enable_x64(True):
    precise = complex_pairs.expm1((jnp.asarray(z.real), jnp.asarray(z.imag)))
    precise = np.asarray(precise[0]) + 1j * np.asarray(precise[1])
  np.testing.assert_allclose(precise[3], np.exp(z[3]) - 1, rtol=1e-13)
  # Where exp(z) - 1 cancels, compare with z + z^2/2 + z^3/6 + z^4/24.
  series = z + z**2 / 2 + z**3 / 6 + z**4 / 24
  np.testing.assert_allclose(precise[:3], series[:3], rtol=1e-12)
  re, im = complex_pairs.expm1((jnp.float32(z.real), jnp.float32(z.imag)))
  single = np.asarray(re) + 1j * np.asarray(im)
  np.testing.assert_allclose(single[:3], series[:3], rtol=3e-7)


@pytest.mark.parametrize('log_dt', (6.0, 20.0, 50.0))
def test_a_large_time_step_has_no_gradient(log_dt):
  """If exp(dt lambda) is 0, the kernel is -2 Re(C B / lambda) at lag 0.

  The gradient of log_dt must be 0, not rounding errors times dt Im lambda: with
  those, log_dt grew in training until it was infinite.
  """
  _, A_real, A_imag, B, C = (jnp.asarray(x, jnp.float32) for x in parameters(0))

  def first_lag(log_dt, A_real, A_imag):
    log_z = ssm.discretise(log_dt, A_real, A_imag)
    held = ssm.input_weights_zoh(log_dt, A_real, A_imag, B)
    w = complex_pairs.multiply((C[..., 0], C[..., 1]), held)
    return ssm_kernel.kernel(log_z, w, 4)[..., 0].sum()

  def expected(A_real, A_imag):
    lam = -jnp.exp(A_real) + 1j * A_imag
    b, c = (x[..., 0] + 1j * x[..., 1] for x in (B, C))
    return -2 * (c * b / lam).real.sum()

  log_dt = jnp.full((1, 3), log_dt)
  of_dt, *of_A = jax.grad(first_lag, (0, 1, 2))(log_dt, A_real, A_imag)
  np.testing.assert_allclose(of_dt, 0, atol=1e-30)
  for got, want in zip(
      of_A, jax.jit(jax.grad(expected, (0, 1)))(A_real, A_imag)
  ):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_initialisation():
  key = jax.random.key(0)
  shape = (1, 400, 64)
  dt = np.exp(ssm.init_log_dt()(key, shape[:2]))
  assert 0.001 <= dt.min() < 0.0012 and 0.08 < dt.max() <= 0.1
  dt = np.exp(ssm.init_log_dt(0.02, 1.0)(key, shape[:2]))
  assert 0.02 <= dt.min() < 0.022 and 0.95 < dt.max() <= 1
  assert abs(np.median(dt) - 0.02**0.5) < 0.02
  dt = np.exp(ssm.init_log_dt_paper(key, shape[:2]))
  assert 0 < dt.min() < 0.02 and 0.98 < dt.max() <= 1
  assert abs(dt.mean() - 0.5) < 0.05
  np.testing.assert_allclose(
      -np.exp(ssm.init_A('s4d-lin', 0)(key, shape)), -0.5
  )
  np.testing.assert_allclose(
      ssm.init_A('s4d-lin', 1)(key, shape)[0, 7],
      np.pi * np.arange(64),
      rtol=1e-6,
  )
  c = ssm.init_complex_normal(key, (2, 400, 64, 2))
  assert abs((c**2).sum(-1).mean() - 1) < 0.02


def faded(p, by):
  """Returns parameters whose states decay `by` times as fast."""
  log_dt, A_real, *rest = p
  return log_dt, A_real + np.log(by), *rest


@pytest.mark.parametrize('length, by', ((5000, 20.0), (20000, 5.0)))
def test_lags_where_every_state_has_decayed_are_zero(length, by):
  """No earlier lag is zero."""
  p = faded(parameters(length, D=6), by)
  want = materialised(*p, length)
  with jax.enable_x64(True):
    got = np.asarray(jax.jit(lambda p: make_kernel(p, length)[0])(p))
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)
  last = [np.flatnonzero(K)[-1] for K in got[0]]
  assert min(last) < length - 1 == max(last)  # some channels do not decay
  # No block of lags is computed after the slowest state has decayed.
  log_dt, A_real, *_ = p
  slowest = np.exp(log_dt + A_real.min(-1))[0]
  begins = (
      np.array(last) + 1 - ssm_kernel.tile_size(length) * ssm_kernel.CPU_TILES
  )
  assert (slowest * begins <= -1.5 * np.log(np.finfo(float).eps)).all()


def test_nan_does_not_count_as_decayed():
  p = faded(parameters(0), 20.0)
  p[1][0, 1, 2] = np.nan
  got = make_kernel([x.astype(np.float32) for x in p], 16384)[0]
  assert np.isnan(got[:, 1]).all() and not np.isnan(got[:, 0]).any()


@products.parametrize(
    'length,G',
    itertools.product((1, 7, 128, 300, 1000), (1, 2)),
    ((1, 1), (7, 2), (300, 2), (1000, 1)),
)
def test_gradients_match_the_sum_of_exponentials(length, G):
  kernel = functools.partial(ssm_kernel.kernel, length=length)
  check_gradients(parameters(length, G), kernel, length)


@products.parametrize(
    'T, A, by, G',
    [
        (*sizes, G)
        for sizes in ((8, 2, 1.0), (8, 4, 1e3), (4, 8, 1e4))
        for G in (1, 2)
    ],
    ((8, 2, 1.0, 2), (8, 4, 1e3, 1), (4, 8, 1e4, 2)),
)
def test_groups_of_channels_and_blocks_of_tiles(G, T, A, by):
  """Two of three channels; 150 lags, which have decayed and which have not."""
  check_gradients(
      faded(parameters(A, G), by),
      lambda log_z, w: ssm_kernel.kernel_in_tiles(log_z, w, 150, T, A, 2),
      150,
  )


def check_gradients(p, kernel, length):
  """Compares kernel(log_z, w) and its gradients with those of the plain sum."""
  C = p[-1].shape[0]
  weights = np.random.default_rng(1).normal(size=(C, 3, length))

  def direct(log_dt, A_real, A_imag, c):
    lam = -jnp.exp(A_real) + 1j * A_imag
    z = jnp.exp(
        jnp.exp(log_dt)[..., None, None] * lam[..., None] * jnp.arange(length)
    )
    c = c[..., 0] + 1j * c[..., 1]
    return (2 * weights * (c[..., None] * z).sum(2).real).sum()

  def in_tiles(log_dt, A_real, A_imag, c):
    log_z = ssm.discretise(log_dt, A_real, A_imag)
    return (weights * kernel(log_z, (c[..., 0], c[..., 1]))).sum()

  with jax.enable_x64(True):
    arguments = [jnp.asarray(p[i]) for i in (0, 1, 2, 4)]
    want = jax.jit(jax.value_and_grad(direct, (0, 1, 2, 3)))(*arguments)
    got = jax.jit(jax.value_and_grad(in_tiles, (0, 1, 2, 3)))(*arguments)
  for one, other in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(
        one, other, rtol=0, atol=1e-11 * max(np.abs(other).max(), 1)
    )


@pytest.mark.parametrize('table_bytes', (ssm_kernel.CPU_TABLE_BYTES, 1))
@pytest.mark.parametrize('length', (1, 7, 128, 300, 1000))
@pytest.mark.parametrize('G', (1, 2))
def test_weighted_sums_match_plain_sums(length, G, table_bytes, monkeypatch):
  """Both with all channels at once and one channel at a time."""
  monkeypatch.setattr(ssm_kernel, 'CPU_TABLE_BYTES', table_bytes)
  log_dt, A_real, A_imag, *_ = parameters(length, G)
  u = np.random.default_rng(length).normal(size=(4, 3, length))
  rates = np.exp(log_dt)[..., None] * (-np.exp(A_real) + 1j * A_imag)
  powers = np.exp(rates[..., None] * np.arange(length))
  want = np.einsum('gdnt,gcdt->gcdn', powers, u.reshape(G, -1, 3, length))
  with jax.enable_x64(True):
    log_z = ssm.discretise(*map(jnp.asarray, (log_dt, A_real, A_imag)))
    run = jax.jit(
        lambda *given: ssm_kernel.weighted_sums(*given)
    )  # so that it is traced again
    re, im = map(np.asarray, run(log_z, jnp.asarray(u)))
  np.testing.assert_allclose(
      re + 1j * im, want.reshape(4, 3, -1), rtol=0, atol=1e-11
  )


@pytest.mark.parametrize('share', (0.01, 0.5, 0.95))
def test_context_range_matches_a_count(share):
  kernel = np.random.default_rng(4).normal(size=(2, 3, 500))
  kernel *= np.exp(-np.arange(500) / np.array([3, 30, 300])[:, None])
  with jax.enable_x64(True):
    got = np.asarray(ssm.context_range(jnp.asarray(kernel), share))
  for place in np.ndindex(2, 3):
    mass, r = abs(kernel[place]), got[place]
    assert mass[:r].sum() >= share * mass.sum() * (1 - 1e-12)
    assert r == 1 or mass[: r - 1].sum() < share * mass.sum()
  assert ssm.context_range(jnp.zeros(7)) == 1
