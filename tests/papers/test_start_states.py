"""Start states of chunks and their similarity match plain loops."""

import jax
import numpy as np
import pytest

from locost_jax import models
from papers.figures import start_states
from tests.models import test_simcas


@pytest.mark.parametrize('align', ('shift', 'mean', 'none'))
def test_states_match_models_with_fewer_layers(align):
  """1, 3, 40 and 3 chunks; layer n's states match a model of n layers."""
  inputs, changes = test_simcas.documents(), dict(align=align)
  params = test_simcas.of_three.small_params()['params']
  model = models.build(test_simcas.SIMCAS | dict(num_layers=3) | changes)
  found = start_states.after_layers(model, params, inputs)
  assert found.shape[:3] == (3, 4, 40)
  for number in (1, 2, 3):
    own = dict(params['encoder'])
    own['layers'] = jax.tree.map(lambda x: x[:number], own['layers'])
    states, mask, _ = test_simcas.of_three(
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
  found = start_states.similarities(states)
  cosines = start_states.cosines(states)
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


@pytest.mark.parametrize('layers', [1, 3, 8])
def test_a_matrix_for_each_layer(layers):
  """Rows have at most six layers: cosines above, the paper's Sim below."""
  pytest.importorskip('matplotlib', reason='the pictures need matplotlib')
  values = np.random.default_rng(0).uniform(-0.2, 1, (2, layers, 4, 4))
  figure = start_states.draw_matrices(values)
  shown = [axis for axis in figure.axes if axis.get_title()]
  assert len(shown) == 2 * layers
  for axis in shown:
    name, _, layer = axis.get_title().partition(', layer ')
    image = axis.images[0]
    expected = values[('cosine', 'Sim').index(name), int(layer) - 1]
    np.testing.assert_array_equal(image.get_array(), expected)
    assert image.get_clim() == shown[0].images[0].get_clim()  # the same scale
