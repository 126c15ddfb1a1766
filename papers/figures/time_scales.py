"""Pictures of LOCOST's kernels before training.

Two settings decide their shape. A channel with time step dt forgets by a factor
e in 2 / dt tokens. Its N states resolve details of 1 / (N dt) tokens: their
frequencies are n dt / 2 cycles per token for n = 0 .. N - 1 (S4D-Lin).

Axes: K kernels, two of each channel; L lags.
"""

import jax
import numpy as np

from locost_jax.errors import InputError
from locost_jax.ops import complex_pairs
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel
from papers.figures import points
from papers.figures import style

# The defaults of `draw_settings`: of the release, and of a small model.
STATES = (16, 256)
RANGES = ((0.001, 0.1), (0.02, 1.0))


def initial_kernels(d_state, dt_min, dt_max, channels=256, length=2048, seed=0):
  """Returns the kernels of K / 2 new channels, float32 [K, L]."""
  keys, shape = jax.random.split(jax.random.key(seed)), (1, channels, d_state)
  log_dt = ssm.init_log_dt(dt_min, dt_max)(keys[0], shape[:2])
  c = ssm.init_complex_normal(keys[1], (2, channels, d_state, 2))
  A = [ssm.init_A('s4d-lin', part)(None, shape) for part in (0, 1)]
  ones = ssm.init_ones(None, (*shape, 2))
  b_bar = ssm.input_weights_zoh(log_dt, *A, ones)
  w = complex_pairs.multiply((c[..., 0], c[..., 1]), b_bar)
  kernels = ssm_kernel.kernel(ssm.discretise(log_dt, *A), w, length)
  return np.asarray(kernels).reshape(-1, length)


def energy_within(kernels):
  """Returns the share of sum_l K[l]^2 up to each lag: [K, L] -> [K, L]."""
  total = np.cumsum(np.square(kernels, dtype=float), axis=-1)
  return total / total[:, -1:]


def half_energy(kernels):
  """Returns the number of lags with half of each kernel's energy: int [K]."""
  return 1 + (energy_within(kernels) < 0.5).sum(-1)


def draw(*workdirs):
  """Kernels before training, of runs or of the two ranges in docs/training.md."""
  if not workdirs:
    return draw_settings()
  models = [points.find_run(path)[2]['model'] for path in workdirs]
  for path, model in zip(workdirs, models):
    if 'dt_min' not in model or 'd_state' not in model:
      raise InputError(f'{path}: has no model.dt_min; expected a LOCOST')
  ranges = {(model['dt_min'], model['dt_max']) for model in models}
  return draw_settings(sorted({m['d_state'] for m in models}), sorted(ranges))


def draw_settings(states=STATES, ranges=RANGES, shown=128, length=2048):
  """Draws `shown` lags of kernels (left) and their energy beyond a lag (right).

  Each N of `states` has a row of panels, each (dt_min, dt_max) a line.
  """
  figure, rows = style.make_figure(len(states), 2, 4, 2.3, sharex='col')
  for (left, right), N in zip(rows, states):
    for number, (low, high) in enumerate(ranges):
      color = style.color(number)
      kernels = initial_kernels(N, low, high, length=length)
      lags = half_energy(kernels)
      # The kernel whose half energy is the median.
      typical = kernels[np.argsort(lags, kind='stable')[len(lags) // 2]]
      left.plot(typical[:shown] / np.abs(typical).max(), color=color)
      beyond = 100 * (1 - np.median(energy_within(kernels), axis=0))
      label = f'dt in [{low:g}, {high:g}]'
      right.plot(1 + np.arange(length), beyond, color=color, label=label)
    left.set_ylabel(f'N = {N}')
    right.set_xscale('log', base=2)
    right.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
    right.set_ylim(0, 100)
    right.set_ylabel('% of the energy')
  rows[0][0].set_title('a typical kernel, largest value 1')
  rows[0][1].set_title('energy beyond a lag, median')
  rows[0][1].legend(frameon=False)
  for axis in rows[-1]:
    axis.set_xlabel('lag in tokens')
  return figure
