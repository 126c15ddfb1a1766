"""PageSum: all forms match the plain one; golden arrays: test_golden_*.py."""

import functools

import jax
import numpy as np
import pytest

from tests.models import small
from tests.models.small import BART as SMALL
from tests.models.small import tokens

P, L = 4, 13
PAGESUM = SMALL | dict(name='pagesum')


def documents():
  """Returns documents of 4 pages, and of 3 pages with a short second one."""
  inputs = tokens(5, 2, P, L)
  lengths = np.array([[13, 13, 9, 5], [13, 2, 11, 0]])
  return np.where(np.arange(L) < lengths[..., None], inputs, 1)


run = small.Runner(PAGESUM, 0.3)
small_params = run.small_params
plain = small.Runner(SMALL, 0.3)
of_bart = functools.partial(run.params_without, 'confidence')


def test_one_page_matches_bart():
  """Also as [B, L]; the confidence is over a single page."""
  inputs, targets = documents()[:, 0], tokens(7, 2, 5)
  bart = plain(inputs, targets, params=of_bart())
  np.testing.assert_allclose(run(inputs, targets), bart, 0, 1e-5)
  np.testing.assert_array_equal(
      run(inputs[:, None], targets), run(inputs, targets)
  )


def test_global_decoding_matches_bart_over_all_states():
  own, inputs, targets = of_bart(), documents(), tokens(7, 2, 5)
  memory = plain(inputs.reshape(2 * P, L), method='encode', params=own)
  memory = jax.tree.map(lambda x: x.reshape(2, P * L, *x.shape[2:]), memory)
  expected = plain(memory, targets, method='decode', params=own)
  found = run(inputs, targets, decoding='global', params=own)
  np.testing.assert_allclose(found, expected, 0, 1e-5)


@pytest.mark.parametrize('padding', ['tokens', 'release'])
def test_mixing_matches_equation_9(padding):
  """Loops over pages; BART reads each page alone."""
  own, confidence = of_bart(), small_params()['params']['confidence']
  inputs, targets = documents(), tokens(7, 2, 5)
  states = lambda page: plain(page, targets, method='states', params=own)[0]
  h_all = np.stack([states(inputs[:, p]) for p in range(P)], 1)
  together = run(inputs, targets, padding=padding)
  for document, h in enumerate(h_all):
    scores = h @ confidence['kernel'][:, 0] + confidence['bias']
    pages = [p for p in range(P) if padding == 'release' or p < 4 - document]
    h, scores = h[pages], np.asarray(scores)[pages]
    weights = np.exp(scores)
    weights /= weights.sum(0)
    mixed = np.einsum('pt,ptd->td', weights, h)
    expected = plain(mixed, method='head', params=own)
    np.testing.assert_allclose(together[document], expected, 0, 2e-5)


def test_a_document_without_tokens_gives_finite_numbers():
  inputs = np.full((1, 3, 5), 1)
  assert np.isfinite(run(inputs, tokens(7, 1, 4))).all()
