"""Pictures of kernels show the numbers of the recurrence."""

import jax
import numpy as np
import pytest

import locost_jax
from locost_jax.errors import InputError
from locost_jax.models import locost
from locost_jax.ops import ssm
from papers.figures import kernels
from tests import tiny_run

pytest.importorskip('matplotlib', reason='the pictures need matplotlib')
L = 48


@pytest.fixture(scope='module', params=['release', 'paper'])
def workdir(request, tmp_path_factory):
  directory = tmp_path_factory.mktemp('kernels') / 'run'
  model = {'num_layers': 2, 'variant': request.param}
  tiny_run.make_untrained(directory, tiny_run.make_config(model=model))
  return str(directory)


@pytest.fixture(scope='module')
def summarizer(workdir):
  return locost_jax.load(workdir)


@pytest.fixture(scope='module')
def expected(summarizer):
  """Returns the impulse response of equation 1, [layers, C, D, L]."""
  stacked = summarizer.params['encoder']['layers']['mixer']['ssm']
  found = []
  for layer in range(summarizer.config.num_layers):
    own = jax.tree.map(lambda x, i=layer: x[i], stacked)
    log_z, w, _ = locost.discretise(summarizer.config, own)
    one = np.zeros((L, w[0].shape[1]), np.float32)
    one[0] = 1
    answers = [
        np.asarray(
            ssm.recurrence(
                tuple(part[min(c, len(part) - 1)] for part in log_z),
                tuple(part[c] for part in w),
                one,
            )
        ).T.copy()
        for c in range(2)
    ]
    if summarizer.config.variant == 'paper':
      answers[0][:, 0] = 0  # only the second sum contains the token itself
    found.append(answers)
  return np.array(found)


def test_kernels_are_those_of_the_recurrence(workdir, expected):
  for found, own in zip(kernels.of_layers(workdir, L), expected):
    np.testing.assert_allclose(found, own, rtol=1e-4, atol=1e-5)


def test_the_lines_are_the_kernels_of_the_channel(workdir, expected):
  figure = kernels.draw_kernels(workdir, length=L, channel=3)
  for axis, own in zip(figure.axes, expected[:, :, 3]):
    before, after, _ = axis.lines  # one of them is the line at 0
    assert before.get_xdata().tolist() == [-l for l in range(L)]
    assert after.get_xdata().tolist() == list(range(L))
    for line, kernel in zip((before, after), own):
      np.testing.assert_allclose(
          line.get_ydata(), abs(kernel) / abs(own).max(), rtol=1e-3, atol=1e-4
      )
    bars = [(bar.get_x(), bar.get_height()) for bar in axis.patches]
    edges = [1, 2, 4, 8, 16, 32, 48]
    means = [
        [np.mean([abs(k[l]) for l in range(a, b)]) for a, b in zip(edges, edges[1:])]
        for k in own
    ]  # fmt: skip
    left = [-b for b in edges[1:]] + edges[:-1]
    heights = np.ravel(means) / abs(own).max()
    want = list(zip(left, heights))
    np.testing.assert_allclose(bars, want, rtol=1e-3, atol=1e-4)
  with pytest.raises(InputError, match='channel=16: expected a channel from 0'):
    kernels.draw_kernels(workdir, length=L, channel=16)


def test_the_map_has_the_largest_weights_of_each_bin(workdir, expected):
  figure = kernels.draw_map(workdir, length=L)
  meshes = [axis.collections[0] for axis in figure.axes[:4]]
  for layer in range(2):
    found, scale = expected[layer], abs(expected[layer]).max()
    mean = np.mean(ssm.context_range(found), 0).tolist()
    for c in range(2):
      shown = meshes[2 * layer + c].get_array()
      assert shown.shape[0] == 16
      # The first bin is lag 0; the order of rows with equal contexts is free.
      first = np.clip(abs(found[c, :, 0]) / scale, 1e-3, 1)
      np.testing.assert_allclose(
          sorted(shown[:, 0]), sorted(first), rtol=1e-2, atol=1e-4
      )
      longest = int(np.argmax(mean))
      near = abs(shown[-1, 0] - first[longest]) < 1e-2
      assert near or mean.count(max(mean)) > 1
  edges = np.array([1, 2, 4, 9])
  values = np.array([[1.0, -3, 2, 0, 0, 5, -7, 1]])
  assert kernels.binned(values, edges).tolist() == [[1, 3, 7]]
