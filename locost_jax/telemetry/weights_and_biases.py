"""Sends the numbers of metrics.jsonl to Weights & Biases, with --wandb.

The id in WORKDIR/wandb.json identifies a run, or each phase of a run with
phases, so that a resumed run continues the same W&B run. Steps repeated after a
kill are recorded once: W&B ignores steps up to the last one that it has. Log in
with wandb's own means (`wandb login`, WANDB_API_KEY, WANDB_MODE=offline).
"""

import importlib.util
import json
from pathlib import Path
import uuid

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.workdir import phases as phases_lib


def check(project):
  """Raises an InputError if a project is given and wandb is not installed."""
  # W&B leaves a directory `wandb` where it ran, which Python finds as a package
  # without a file.
  spec = importlib.util.find_spec('wandb') if project else None
  if project and (spec is None or spec.origin is None):
    raise InputError(
        f'--wandb={project}: wandb is not installed: pip install wandb'
    )


class Tracker:
  """One run on W&B."""

  def __init__(self, project, workdir, note):
    """Starts a W&B run, or continues the one of WORKDIR.

    Args:
      project: a W&B project.
      workdir: WORKDIR, with the run's config.json if it has one.

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
          # wandb would capture stderr, which shows the progress line.
          settings=wandb.Settings(console='off'),
      )
    except Exception as error:  # any type: no network, no account, ...
      raise InputError(
          f'--wandb={project}: {type(error).__name__}: {error}'
      ) from None
    files.write(path, json.dumps(known) + '\n')

  def log(self, step, numbers):
    """Sends name -> number; an error does not end the run."""
    if self._run is None:
      return
    try:
      self._run.log(numbers, step=step)
    except Exception as error:  # any error of the service
      self._note(
          f'W&B failed, nothing more is sent: {type(error).__name__}: {error}'
      )
      self._run = None

  def close(self):
    """Waits until everything is sent, and ends the W&B run."""
    if self._run is None:
      return
    try:
      self._run.finish()
    except Exception as error:  # any error of the service
      self._note(f'W&B: {type(error).__name__}: {error}')
