"""Small states and checkpoints for tests of WORKDIR."""

import contextlib
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax.workdir import checkpointer as checkpointer_lib


class State(NamedTuple):
  step: Any
  params: Any
  opt_state: Any
  rng: Any


def make(step):
  return State(
      jnp.int32(step),
      {'a': jnp.full((4,), step, jnp.float32)},
      {'mu': jnp.zeros((4,))},
      jnp.uint32([1, 2]),
  )


class Measured(checkpointer_lib.Checkpointer):
  """Saves a step with its metrics, if it has any."""

  def save(self, step, state, metrics=None, loop=None):
    super().save(step, state, loop or {})
    if metrics is not None:
      self.measure(step, metrics)


@contextlib.contextmanager
def open_run(workdir, **changes):
  """Yields a Measured; changes: keys of config.checkpoint."""
  config = default.get_config().checkpoint
  config.metric = 'rouge_mean'
  config.update(changes)
  checkpointer = Measured(workdir / 'checkpoints', config)
  yield checkpointer
  checkpointer.close()


def save(workdir, metrics, **changes):
  """Saves steps 1, 2, ... with their metrics; returns WORKDIR/checkpoints."""
  with open_run(workdir, **changes) as checkpointer:
    for step, measured in enumerate(metrics, start=1):
      checkpointer.save(step, make(step), measured, loop={'measured': True})
  return workdir / 'checkpoints'


def steps(directory):
  return sorted(path.name for path in directory.iterdir())


def step_of(params):
  """Returns the step of these parameters."""
  return int(np.asarray(params['a'])[0])
