"""Kernels before training: their equation, and the numbers in the docs."""

import jax
import numpy as np
import pytest

from locost_jax import models
from locost_jax.models import locost
from locost_jax.ops import ssm
from papers.figures import time_scales

RELEASE, SHORT = (0.001, 0.1), (0.02, 1.0)


def test_kernels_match_a_new_model(small_model_config):
  """Half of the energy lies within the same distance in both."""
  config = small_model_config
  config.update(dict(d_model=256, d_state=16))
  mixer = locost.BiSSM(models.build(config).config)
  (log_z, w, _), _ = mixer.init_with_output(
      jax.random.key(7), method='discretised'
  )
  expected = np.asarray(ssm.kernel(log_z, w, 512)).reshape(-1, 512)
  found = time_scales.initial_kernels(16, *RELEASE, length=512)
  assert found.shape == expected.shape == (512, 512)
  for share in 0.25, 0.5, 0.75:
    lags = [
        np.median(1 + (time_scales.energy_within(k) < share).sum(-1))
        for k in (found, expected)
    ]
    assert 0.8 < lags[0] / lags[1] < 1.25
  sizes = [np.sqrt(np.mean(k**2)) for k in (found, expected)]
  assert 0.9 < sizes[0] / sizes[1] < 1.1


def test_energy():
  kernels = np.array([[1.0, -1, 0, 0], [0, 0, 3, 4], [2, 0, 0, 1]])
  within = time_scales.energy_within(kernels)
  np.testing.assert_allclose(within[0], [0.5, 1, 1, 1])
  np.testing.assert_allclose(within[1], [0, 0, 9 / 25, 1])
  assert time_scales.half_energy(kernels).tolist() == [1, 4, 1]


@pytest.mark.parametrize(
    'N, dt, median',
    [(16, RELEASE, 67), (256, RELEASE, 72), (16, SHORT, 6), (256, SHORT, 6)],
)
def test_numbers_in_the_docs(N, dt, median):
  kernels = time_scales.initial_kernels(N, *dt)
  assert abs(np.median(time_scales.half_energy(kernels)) - median) <= 1


def test_the_picture():
  pytest.importorskip('matplotlib', reason='the pictures need matplotlib')
  figure = time_scales.draw_settings((4, 8), (RELEASE, SHORT), 16, 64)
  kernels, energy = figure.axes[:2]
  for lines, length in (kernels.lines, 16), (energy.lines, 64):
    assert [len(line.get_ydata()) for line in lines] == [length] * 2
  for line in energy.lines:
    assert (np.diff(line.get_ydata()) <= 0).all()
