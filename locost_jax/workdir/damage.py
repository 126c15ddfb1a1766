"""Sets damaged checkpoints aside when a run continues.

A step whose files differ from its manifest is renamed to STEP.damaged. If only
the metrics are damaged, the latest step is kept without them and evaluated
again; an earlier step is renamed, because it may have been the best. Nothing is
deleted.
"""

import json
import os
from pathlib import Path

from locost_jax import files
from locost_jax import untrusted
from locost_jax.workdir import checkpoint
from locost_jax.workdir import manifest

LOOP = 'loop/metadata'  # where Orbax puts JSON
_METRICS_ASIDE = 'metrics.damaged'


def set_aside(directory):
  """Sets damaged steps aside.

  Args:
    directory: WORKDIR/checkpoints.

  Returns:
    Lines that report damage, and files that no manifest names.
  """
  lines = []
  for path in _numbered(directory):
    # Without `params`, it is no checkpoint, although Orbax would take it as one.
    found = manifest.find_damage(path, but='metrics/')
    if not found and not (path / 'params').is_dir():
      found = 'params is missing'
    if found:
      lines.append(manifest.set_aside(path, found))
    elif extra := manifest.find_extra(path, but=(checkpoint.METRICS,)):
      lines.append(extra)
  steps = checkpoint.list_steps(directory)
  for step in steps:
    path = Path(directory) / str(step)
    _, found = checkpoint.find_metrics(path)
    if found and step == steps[-1]:
      lines.append(_forget_metrics(path, found))
    elif found:
      lines.append(manifest.set_aside(path, found))
  return lines


def set_measured(directory, measured):
  """Stores in a checkpoint whether its step has been evaluated."""
  record = untrusted.read_object(directory / LOOP)
  manifest.replace(directory, LOOP, json.dumps(record | {'measured': measured}))


def _numbered(directory):
  """Returns all step directories in order, whatever they contain."""
  paths = [
      path
      for path in Path(directory).iterdir()
      if path.name.isdigit() and path.is_dir()
  ]
  return sorted(paths, key=lambda path: int(path.name))


def _forget_metrics(directory, found):
  """Sets a step's metrics aside; if it had any, it is evaluated again."""
  nothing = json.dumps({})
  known = manifest.known_of(directory, checkpoint.METRICS)
  path = directory / checkpoint.METRICS
  if os.path.lexists(path):
    os.replace(path, directory / _METRICS_ASIDE)
  path.parent.mkdir(exist_ok=True)
  manifest.replace(directory, checkpoint.METRICS, nothing)
  line = f'{directory}: {found}: set aside as {_METRICS_ASIDE}'
  if known == [files.describe(nothing.encode())]:
    return line
  set_measured(directory, False)
  return f'{line}; the step is evaluated again'
