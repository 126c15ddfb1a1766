"""Reads checkpoints: finds steps, compares and loads their parameters.

Whoever only reads renames nothing and gets no other checkpoint than the one
asked for: `load_params` checks the parameters against the manifest and raises.
`checkpointer.py` writes checkpoints.
"""

import functools
import math
from pathlib import Path
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp

from locost_jax import untrusted
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.workdir import manifest

# Keys in a checkpoint's metrics: by which number the best is chosen, and what
# config.checkpoint.metric was then.
SCORE, SCORE_OF = 'score', 'score_of'
METRICS = 'metrics/metrics'  # where Orbax puts them


def score(metrics, name, lower_is_better=('loss',)):
  """Returns the number by which checkpoints compare, larger is better.

  Args:
    metrics: name -> number, names like 'eval/arxiv/rouge_mean'.
    name: config.checkpoint.metric: a whole name or its last part; several
      tasks that have it are averaged.
    lower_is_better: last parts of names that count negatively.

  Returns:
    A float, or None when nothing has that name or it is not finite.
  """
  values = [
      float(value)
      for key, value in metrics.items()
      if key == name or key.endswith('/' + name)
  ]
  if not values or not math.isfinite(sum(values)):
    return None
  mean = sum(values) / len(values)
  return -mean if name.rpartition('/')[2] in lower_is_better else mean


def latest_step(directory):
  """Returns the most recent finished step, or None. Makes no directory.

  Args:
    directory: WORKDIR/checkpoints; may not exist.
  """
  directory = Path(directory)
  steps = list_steps(directory) if directory.is_dir() else []
  return steps[-1] if steps else None


def best_step(directory):
  """Returns the step with the largest score, or None; see `best_first`.

  Args:
    directory: WORKDIR/checkpoints.
  """
  return next(iter(best_first(directory)), None)


def evaluations_since_best(directory, every):
  """Returns how many evaluations ago the best checkpoint was written.

  Args:
    directory: WORKDIR/checkpoints.
    every: config.train.eval_every, above 0.
  """
  latest, best = latest_step(directory) or 0, best_step(directory) or 0
  return latest // every - best // every


def is_finished(directory, settings):
  """Whether a run took its last step, or ended by its patience.

  Args:
    directory: WORKDIR/checkpoints; may not exist.
    settings: config.train, or the same of config.json, as a dict.
  """
  latest = latest_step(directory)
  if latest is None:
    return False
  patience = settings.get('patience', 0)  # older runs have none
  return latest >= settings['steps'] or (
      patience > 0
      and evaluations_since_best(directory, settings['eval_every']) >= patience
  )


def find(directory, step=None):
  """Returns the directory of one checkpoint.

  Args:
    directory: a WORKDIR, its `checkpoints`, or one checkpoint in there.
    step: which one; None: the best, or the latest where none was evaluated.

  Raises:
    InputError: there is no checkpoint, or not that one.
  """
  directory = Path(directory)
  if not directory.is_dir():
    raise InputError(f'{directory}: no such directory')
  if (directory / 'params').is_dir() and step is None:
    return directory
  if (directory / 'checkpoints').is_dir():
    directory = directory / 'checkpoints'
  steps = list_steps(directory)
  if not steps:
    raise InputError(
        f'{directory}: holds no checkpoint; expected a WORKDIR with '
        'checkpoints/STEP/params in it'
    )
  if step is None:
    best = best_step(directory)
    step = steps[-1] if best is None else best
  elif step not in steps:
    raise InputError(f'{directory}: no step {step}; there are {steps}')
  return directory / str(step)


def load_params(directory, step=None):
  """Returns the parameters of a checkpoint as numpy arrays.

  Needs neither the optimiser nor the devices they were saved with.

  Args:
    directory: as in `find`.
    step: as in `find`.

  Raises:
    InputError: as `find`, or the checkpoint is damaged: names the file, what is
      wrong with it, and the other steps.
  """
  path = find(directory, step)
  damage = manifest.find_damage(path, 'params/')
  if damage:
    others = [
        other for other in list_steps(path.parent) if str(other) != path.name
    ]
    raise InputError(
        f'{path}: {damage}: damaged; the other checkpoints are of steps '
        f'{others}'
    )
  _tell(manifest.find_extra(path, 'params/'))
  path = path / 'params'
  try:
    to_numpy = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), metadata(path)
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
      return checkpointer.restore(path.absolute(), restore_args=to_numpy)
  except (OSError, ValueError, KeyError) as error:
    reason = str(error).strip().split('\n')[0]
    raise InputError(f'{path}: cannot be restored: {reason}') from error


def save_params(directory, params):
  """Writes a checkpoint that has nothing but parameters.

  Args:
    directory: WORKDIR/checkpoints/STEP; does not exist.
    params: the tree of parameters.
  """
  directory = Path(directory).absolute()
  with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
    checkpointer.save(directory / 'params', params)
  manifest.write(directory)


def compare(found, expected, source):
  """Raises unless two trees have the same paths, shapes and dtypes.

  Args:
    found: a tree of what a checkpoint holds: arrays or anything with shape
      and dtype.
    expected: the same of what the run wants.
    source: where `found` comes from, to name it.

  Raises:
    InputError: names the first path that differs, what was expected and what
      was found.
  """
  found, expected = parameters.flatten(found), parameters.flatten(expected)
  for path in sorted(found.keys() | expected.keys()):
    if path not in expected:
      raise InputError(f'{source}: has {path}, which this config does not')
    if path not in found:
      raise InputError(f'{source}: lacks {path}, which this config needs')
    have, want = _describe(found[path]), _describe(expected[path])
    if have != want:
      raise InputError(f'{source}: {path} is {have}; expected {want}')


def _describe(leaf):
  return f'{np.dtype(leaf.dtype).name}{list(leaf.shape)}'


def metadata(item):
  """Returns the shapes and types of an item of a checkpoint, as a tree."""
  # The handler itself: a Checkpointer warns about a file only a step has.
  handler = ocp.PyTreeCheckpointHandler()
  try:
    return handler.metadata(item.absolute()).tree
  finally:
    handler.close()


def list_steps(directory):
  """Returns the finished steps; an unfinished one has another name."""
  return sorted(
      int(path.name)
      for path in Path(directory).iterdir()
      if path.name.isdigit() and (path / 'params').is_dir()
  )


def best_first(directory):
  """Returns the steps that have a score, of a tie the later one first.

  Scores of two metrics are not compared: the latest one says which is meant. A
  run that continues writes the scores of its own metric (`Checkpointer`).
  """
  scored = {}
  for step in list_steps(directory):
    metrics = read_metrics(Path(directory) / str(step))
    if metrics.get(SCORE) is not None:
      scored[step] = metrics[SCORE], metrics.get(SCORE_OF)
  if not scored:
    return []
  _, meant = scored[max(scored)]
  steps = [step for step in scored if scored[step][1] == meant]
  return sorted(steps, key=lambda step: (scored[step][0], step), reverse=True)


def read_metrics(step_directory):
  """Returns the metrics of a checkpoint; {}, and a line on stderr, if damaged."""
  metrics, problem = find_metrics(step_directory)
  if problem:
    _tell(f'{step_directory}: {problem}: not among the best checkpoints')
  return metrics


def find_metrics(step_directory):
  """Returns (metrics of a checkpoint, '') or ({}, what is wrong with them).

  They are what the manifest says; those that no manifest names, of an older
  version, are taken as they are.
  """
  step_directory = Path(step_directory)
  path = step_directory / METRICS
  problem = manifest.find_damage_of(step_directory, METRICS)
  if problem:
    return {}, problem
  try:
    metrics = untrusted.read_object(path)
    for key, value in metrics.items():
      if key == SCORE_OF:
        untrusted.check(path, key, value, untrusted.TEXT)
      elif type(value) not in (int, float):
        shown = untrusted.show(value)
        raise InputError(
            f'{path}: {untrusted.visible(key)}={shown}: expected a number'
        )
    return metrics, ''
  except (FileNotFoundError, NotADirectoryError):
    return {}, ''
  except InputError as error:
    return {}, str(error).removeprefix(f'{step_directory}/')


@functools.lru_cache  # once, however often they are read
def _tell(line):
  if line:
    print(line, file=sys.stderr, flush=True)
