"""Weights & Biases, for runs that ask for it: the numbers of metrics.jsonl.

A run (of a config with phases, each phase) is known there by the id in
WORKDIR/wandb.json, so that it goes on where it was continued. Steps that are
done again after a kill are sent once: W&B leaves out what is not after the last
step that it has. Logging in is its own affair (`wandb login`, WANDB_API_KEY,
WANDB_MODE=offline).
"""

import importlib.util
import json
from pathlib import Path
import uuid

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.workdir import phases as phases_lib


def check(project):
  """Raises an InputError if a project is named and wandb is not installed."""
  # A directory `wandb`, which W&B leaves where it ran, passes for a package
  # that has no file.
  spec = importlib.util.find_spec('wandb') if project else None
  if project and (spec is None or spec.origin is None):
    raise InputError(
        f'--wandb={project}: wandb is not installed: pip install wandb'
    )


class Tracker:
  """One run on W&B."""

  def __init__(self, project, workdir, note):
    """Begins the run, or continues that of WORKDIR.

    Args:
      project: of W&B.
      workdir: WORKDIR, with config.json if the run has one.
      note: takes a line to print.

    Raises:
      InputError: wandb is not installed or refuses.
    """
    check(project)
    import wandb  # optional

    self._note, path = note, Path(workdir) / 'wandb.json'
    known = json.loads(path.read_text()) if path.exists() else {}
    if known.get('project') != project:
      known = dict(project=project, id=uuid.uuid4().hex[:12])
    try:
      self._run = wandb.init(
          project=project,
          id=known['id'],
          name=str(workdir),
          resume='allow',
          dir=str(workdir),
          config=phases_lib.read_config(workdir),
          # It would take over stderr, which has the line of progress.
          settings=wandb.Settings(console='off'),
      )
    except Exception as error:  # of many kinds: no network, no account, ...
      raise InputError(
          f'--wandb={project}: {type(error).__name__}: {error}'
      ) from None
    files.write(path, json.dumps(known) + '\n')

  def log(self, step, numbers):
    """Sends name -> number; a run does not end because this fails."""
    if self._run is None:
      return
    try:
      self._run.log(numbers, step=step)
    except Exception as error:  # whatever a service may answer
      self._note(f'W&B gets nothing more: {type(error).__name__}: {error}')
      self._run = None

  def close(self):
    """Returns when all is sent."""
    if self._run is None:
      return
    try:
      self._run.finish()
    except Exception as error:  # as above
      self._note(f'W&B: {type(error).__name__}: {error}')
