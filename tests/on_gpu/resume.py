"""A training run that is killed has the parameters of an unbroken one."""

import os
from pathlib import Path
import tempfile

import jax
import numpy as np

from locost_jax.workdir import checkpoint
from tests.on_gpu import job as job_lib
from tests.runs import processes
from tests.runs import test_faults

KILLS = 4
GIVEN = dict(model='locost', step_seconds=0.03, log_every=1, steps=36)


def run(job):
  """Yields a row of a second run, and of a killed one, next to an unbroken one.

  The second run shows whether the device repeats its own results. Runs of a job
  share compiled programs, as those of a user do.
  """
  seed = int.from_bytes(os.urandom(4), 'big')
  rng, kills = np.random.default_rng(seed), 1 if job['tiny'] else KILLS
  with tempfile.TemporaryDirectory() as folder:
    home = Path(folder)
    # A killed process may hold its memory for a moment.
    more = dict(XLA_PYTHON_CLIENT_PREALLOCATE='false')
    runs = processes.Runs(home, home / 'compiled', **more)
    train = lambda name: processes.Run(runs, home / name, **GIVEN)

    def again():
      train('again').end()
      return compare(home / 'unbroken', home / 'again')

    def killed():
      for i in range(kills):
        test_faults.kill(train('killed'), rng, while_saving=i % 2 == 1)
      train('killed').end()
      facts = dict(kills=kills, seed=seed)
      return facts | compare(home / 'unbroken', home / 'killed')

    train('unbroken').end()
    # The device is taken only after the last run.
    yield from [
        job_lib.attempt(job['name'] + make.__name__, make)
        for make in (again, killed)
    ]


def compare(one, other):
  """Returns a row on the last parameters of two runs."""
  leaves = (
      map(np.asarray, jax.tree.leaves(checkpoint.load_params(path)))
      for path in (
          x / 'checkpoints' / str(GIVEN['steps']) for x in (one, other)
      )
  )
  pairs = list(zip(*leaves, strict=True))
  gap = max(float(np.max(abs(x - y))) for x, y in pairs)
  row = dict(difference=gap, tolerance=0.0)
  if any(x.tobytes() != y.tobytes() for x, y in pairs):
    row['error'] = 'the parameters are not the same bits'
  return row


if __name__ == '__main__':
  job_lib.main(run)
