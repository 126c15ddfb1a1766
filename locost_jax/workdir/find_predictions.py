"""Finds the predictions that a run wrote with its best checkpoint."""

import os
from pathlib import Path

from locost_jax.errors import InputError
from locost_jax.workdir import find


def newest(directory):
  """Returns the newest file of predictions of a run's best checkpoint.

  Args:
    directory: a WORKDIR, or a checkpoint in one (see `find.find_run`).

  Raises:
    InputError: the directory is not a run's, or it has no such file.
  """
  run = find.find_run(directory)
  if run is None:
    raise InputError(
        f'{directory}: no config.json of a run in it; expected a file of '
        'predictions or a WORKDIR'
    )
  home, checkpoint, _ = run
  step = Path(checkpoint).name
  folder = Path(home) / 'predictions'
  found = sorted(
      (
          path
          for suffix in ('', '.settings-*')
          for path in folder.glob(f'*-{step}{suffix}.jsonl')
      ),
      key=lambda path: (path.stat().st_mtime_ns, path.name),
  )
  if not found:
    raise InputError(
        f'{directory}: no predictions of its best checkpoint, step {step} '
        f'({home}/predictions/*-{step}.jsonl): main --evaluate writes them'
    )
  return os.path.relpath(found[-1])
