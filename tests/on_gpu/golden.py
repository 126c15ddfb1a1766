"""The tests of golden arrays in float32, recorded instead of asserted."""

import functools
import types
from unittest import mock

import jax
import numpy as np

from tests.models import golden
from tests.models import test_golden
from tests.models import test_golden_pagesum as pagesum
from tests.models import test_golden_simcas as simcas
from tests.on_gpu import job as job_lib
from tests.training import test_ppo


def list_cases(tiny):
  """Yields (name, test of golden arrays in float32, its arguments)."""
  single, patch = golden.FLOAT32, types.SimpleNamespace(setattr=setattr)
  folders = test_golden.FEW + test_golden.EVERY  # one of each family first
  for folder in dict.fromkeys(folders[: 1 if tiny else None]):
    yield folder, test_golden.test_states_kernels_and_logits, (folder, single)
    yield folder, test_golden.test_loss_and_gradients, (folder, *single)
    yield folder, test_golden.test_beams, (folder,)
    if folder in test_golden.FOLDERS:
      yield folder, test_golden.test_greedy_tokens, (folder,)
    if 'fastpath_emul_f32/enc_last' in golden.arrays(folder):
      yield folder, test_golden.test_release_convolution, (folder, 'fft')
  for weights in 'init', 'pert':
    yield weights, test_golden.test_kernel_of_paper_size, (weights, *single)
  if tiny:
    return
  for padding in 'release', 'tokens':
    name = f'pagesum, {padding}'
    test = pagesum.test_golden_states_weights_and_logits
    yield name, test, (padding, single)
    test = pagesum.test_golden_losses_and_gradients
    yield name, test, (*single, padding)
  yield 'pagesum', pagesum.test_golden_greedy_tokens, ()
  for test, arguments in (
      (test_ppo.test_golden_attention_rewards_and_advantages, single),
      (test_ppo.test_golden_losses_and_gradients_of_ppo, single),
      (simcas.test_golden_loss_and_gradients, single),
      # These two set what the others leave alone, so they are the last.
      (simcas.test_golden_states_selector_and_logits, (patch, *single)),
      (simcas.test_golden_greedy_tokens, (patch,)),
  ):
    yield 'simcas', test, arguments


def run(job):
  """Yields a row for each golden array that the tests compare with."""
  jax.config.update('jax_default_matmul_precision', 'highest')
  for folder, test, arguments in list_cases(job['tiny']):
    title = test.__name__.removeprefix('test_').removeprefix('golden_')
    title = f'{folder} {title.replace("_", " ")}'
    rows = {}
    with record(rows):
      whole = job_lib.attempt(title, lambda t=test, a=arguments: t(*a) or {})
    yield from (row | dict(name=f'{title}: {x}') for x, row in rows.items())
    if 'error' in whole or not rows:
      yield {'error': 'compares nothing'} | whole


def record(rows):
  """A context in which comparisons of NumPy add to `rows` and do not raise."""
  close, equal = np.testing.assert_allclose, np.testing.assert_array_equal

  def compare(check, kind, bound, got, want, name):
    got, want = np.asarray(got), np.asarray(want)
    gap = abs(got - want) if kind == 'array' else got != want
    row = dict(
        difference=float(np.sum(gap) if kind == 'tokens' else np.max(gap)),
        tolerance=float(bound(want)),
    )
    try:
      check(got, want)
    except AssertionError:
      row['error'] = 'the difference is above the tolerance'
    name = name or f'{kind} {len(rows) + 1}'
    # An array that is compared twice, or in parts: the worst.
    worse = lambda row: ('error' in row, row['difference'])
    rows[name] = max(rows.get(name, row), row, key=worse)

  def allclose(got, want, rtol=1e-7, atol=0, err_msg='', **options):
    check = functools.partial(close, rtol=rtol, atol=atol, **options)
    bound = lambda want: atol + rtol * np.max(abs(want))
    compare(check, 'array', bound, got, want, err_msg)

  def array_equal(got, want):
    compare(equal, 'tokens', lambda _: 0, got, want, '')

  return mock.patch.multiple(
      np.testing, assert_allclose=allclose, assert_array_equal=array_equal
  )


if __name__ == '__main__':
  job_lib.main(run)
