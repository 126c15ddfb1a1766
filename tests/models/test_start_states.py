"""Start states of chunks and their similarity match plain loops."""

import jax
import numpy as np
import pytest

from locost_jax import models
from locost_jax.models import start_states
from tests.models import test_simcas


@pytest.mark.parametrize('align', ('shift', 'mean', 'none'))
def test_states_match_models_with_fewer_layers(align):
  """1, 2, 40 and 3 chunks; layer n's states match a model of n layers."""
  inputs, changes = test_simcas.documents(), dict(align=align)
  params = test_simcas.small_params()['params']
  found = start_states.after_layers(
      models.build(test_simcas.SIMCAS | changes), params, inputs
  )
  assert found.shape[:3] == (3, 4, 40)
  for number in (1, 2, 3):
    own = dict(params['encoder'])
    own['layers'] = jax.tree.map(lambda x: x[:number], own['layers'])
    states, mask, _ = test_simcas.run(
        inputs,
        method='chunk_states',
        params={'params': params | {'encoder': own}},
        num_layers=number,
        **changes,
    )
    is_chunk = np.asarray(mask.any(-1))
    np.testing.assert_allclose(
        np.asarray(found[number - 1])[is_chunk],
        np.asarray(states[:, :, 0])[is_chunk],
        atol=1e-5,
    )


def test_similarity_matches_its_loop():
  """Includes two states that are close, and one that is zero."""
  generator = np.random.default_rng(0)
  states = 3 * generator.normal(size=(2, 5, 8)).astype(np.float32)
  states[:, 1] = states[:, 0] + 1e-3 * generator.normal(size=(2, 8))
  states[1, 4] = 0
  found = np.asarray(start_states.similarities(states))
  cosines = np.asarray(start_states.cosines(states))
  for layer in range(2):
    for i in range(5):
      for j in range(5):
        v, w = states[layer, [i, j]].astype(np.float64)
        lengths = np.sqrt(v @ v) * np.sqrt(w @ w)
        cosine = v @ w / lengths if lengths else 0.0
        assert abs(cosines[layer, i, j] - cosine) < 1e-6
        sim = cosine / (1 + np.sqrt(((v - w) ** 2).sum()))
        assert abs(found[layer, i, j] - sim) < 1e-6
  assert 0.99 < found[0, 0, 1] < 0.9999  # not 1: the difference counts
