"""Reads checkpoints: finds steps, compares and loads their parameters.

Reading changes no file and never falls back to another checkpoint:
`load_params` checks the parameters against the manifest and raises an error if
they are damaged. `checkpointer.py` writes checkpoints.
"""

import functools
import math
import os
from pathlib import Path
import sys

import jax
import numpy as np

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.workdir import manifest

# Keys in a checkpoint's metrics: the number that selects the best checkpoint,
# and the config.checkpoint.metric it was computed for.
SCORE, SCORE_OF = 'score', 'score_of'
METRICS = 'metrics/metrics'  # where Orbax puts them
UNFINISHED = '.orbax-checkpoint-tmp'  # in the name of a step being written
# The name of a step whose removal began: the next start of the run removes it
# like an unfinished one.
REMOVED = f'{UNFINISHED}-removed'
TRIES = 20  # how often `choose_again` chooses a checkpoint


class Pruned(InputError):
  """A run that trains has removed the checkpoint since it was chosen."""


def choose_again(function):
  """Decorates a function that chooses a checkpoint and then reads it.

  If a run that trains prunes the checkpoint in between, it is called again.
  """

  @functools.wraps(function)
  def call(*args, **options):
    for _ in range(TRIES - 1):
      try:
        return function(*args, **options)
      except (Pruned, FileNotFoundError):
        continue
    return function(*args, **options)

  return call


def score(metrics, name, lower_is_better=('loss',)):
  """Returns the number that ranks checkpoints; larger is better.

  Args:
    metrics: name -> number, names like 'eval/arxiv/rouge_mean'.
    name: config.checkpoint.metric: a whole name or its last part; a metric of
      several tasks is averaged.
    lower_is_better: last parts of the names whose sign is reversed.

  Returns:
    A float, or None if the metric is missing or not finite.
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


def scored(metrics, name, lower_is_better):
  """Returns metrics with their `score`, if it exists."""
  own = SCORE, SCORE_OF
  metrics = {key: float(x) for key, x in metrics.items() if key not in own}
  best_by = score(metrics, name, lower_is_better)
  if best_by is None:
    return metrics
  return metrics | {SCORE: best_by, SCORE_OF: name}


def saver(finish, is_shared):
  """Returns Orbax's writer of steps.

  Args:
    finish: function, called when all files of a step are written, before they
      get their name.
    is_shared: whether all hosts write to one directory; else each has its own.
  """
  import orbax.checkpoint as ocp  # late, it takes a second

  hosts, host = ocp.options.MultiprocessingOptions(), jax.process_index()
  if not is_shared:
    hosts = ocp.options.MultiprocessingOptions(
        host, {host}, barrier_sync_key_prefix=f'host-{host}'
    )
  options = ocp.CompositeOptions(multiprocessing_options=hosts)
  return ocp.AsyncCheckpointer(
      ocp.CompositeCheckpointHandler(composite_options=options),
      async_options=ocp.options.AsyncOptions(post_finalization_callback=finish),
      multiprocessing_options=hosts,
  )


def latest_step(directory):
  """Returns the most recent finished step, or None."""
  directory = Path(directory)
  steps = list_steps(directory) if directory.is_dir() else []
  return steps[-1] if steps else None


def best_step(directory):
  """Returns the step with the largest score, or None; see `best_first`."""
  return next(iter(best_first(directory)), None)


def is_finished(directory, settings):
  """Whether a run took its last step, or stopped by train.patience."""
  latest = latest_step(directory)
  if latest is None:
    return False
  patience = settings.get('patience', 0)  # older runs have none
  if latest >= settings['steps'] or not patience:
    return latest >= settings['steps']
  every, best = settings['eval_every'], best_step(directory) or 0
  return latest // every - best // every >= patience


def find(directory):
  """Returns the best checkpoint, or the latest if none was evaluated.

  directory: a WORKDIR, its `checkpoints`, or a checkpoint, which is returned.
  """
  directory = Path(directory)
  if not directory.is_dir():
    raise Pruned(f'{directory}: no such directory')
  if (directory / 'params').is_dir():
    return directory
  if (directory / 'checkpoints').is_dir():
    directory = directory / 'checkpoints'
  # Twice: a run may prune all that were listed before they are looked at.
  steps = list_steps(directory) or list_steps(directory)
  if not steps:
    raise InputError(
        f'{directory}: holds no checkpoint; expected a WORKDIR with '
        'checkpoints/STEP/params in it'
    )
  best = best_step(directory)
  return directory / str(steps[-1] if best is None else best)


def step_of(path):
  """Returns the step of WORKDIR/checkpoints/STEP; None for other paths."""
  folder, name = os.path.split(os.path.abspath(path))
  is_step = os.path.basename(folder) == 'checkpoints' and name.isdecimal()
  return int(name) if is_step else None


def load_params(directory):
  """Returns the parameters of a checkpoint as numpy arrays.

  Needs neither the optimiser state nor the devices of the run.

  Raises:
    InputError: as in `find`, or the checkpoint is damaged; the message has the
      file, the damage, and the other steps.
  """
  path = find(directory)
  try:
    return _read_params(path)
  except (InputError, FileNotFoundError):
    if path.is_dir():
      raise
    raise Pruned(f'{path}: no such directory') from None


def _read_params(path):
  """Returns the parameters in a checkpoint's directory; see `load_params`."""
  damage = manifest.find_damage(path, 'params/')
  if damage:
    others = [
        other for other in list_steps(path.parent) if str(other) != path.name
    ]
    raise InputError(
        f'{path}: {damage}: damaged; the other checkpoints are of steps '
        f'{others}'
    )
  path = path / 'params'
  import orbax.checkpoint as ocp

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
  """Writes a checkpoint with parameters only; the directory must not exist."""
  import orbax.checkpoint as ocp

  directory = Path(directory).absolute()
  with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
    checkpointer.save(directory / 'params', params)
  manifest.write(directory)


def compare(found, expected, source):
  """Raises an InputError unless trees have equal paths, shapes and dtypes."""
  found, expected = parameters.flatten(found), parameters.flatten(expected)
  for path in sorted(found.keys() | expected.keys()):
    if path not in expected:
      raise InputError(
          f'{source}: has {path}, which is not part of this config'
      )
    if path not in found:
      raise InputError(f'{source}: lacks {path}, which this config needs')
    have, want = _describe(found[path]), _describe(expected[path])
    if have != want:
      raise InputError(f'{source}: {path} is {have}; expected {want}')


def _describe(leaf):
  return f'{np.dtype(leaf.dtype).name}{list(leaf.shape)}'


def metadata(item):
  """Returns the tree of shapes and dtypes of a checkpoint's item."""
  import orbax.checkpoint as ocp

  # Not through a Checkpointer, which warns about a file only a step has.
  handler = ocp.PyTreeCheckpointHandler()
  try:
    return handler.metadata(item.absolute()).tree
  finally:
    handler.close()


def list_steps(directory):
  """Returns the finished steps in order; an unfinished step has another name."""
  found = numbered(directory)
  return sorted(int(path.name) for path in found if (path / 'params').is_dir())


def numbered(directory):
  """Returns the paths whose names are steps, whole or not."""
  if Path(directory).is_file():
    raise InputError(f'{directory}: is a file; expected a directory')
  return [path for path in Path(directory).iterdir() if is_step(path.name)]


def is_step(name):
  """Whether a name is a step: ASCII digits."""
  return name.isascii() and name.isdigit()


def list_unfinished(directory):
  """Returns the steps whose save was interrupted, in order."""
  names = [
      path.name.partition(UNFINISHED)[0]
      for path in directory.glob(f'*{UNFINISHED}*')
      if not path.name.endswith(REMOVED)
  ]
  return sorted({int(name) for name in names if is_step(name)})


def find_damage(path):
  """Returns a short description of a step's damage, or ''."""
  damage = manifest.find_damage(path) or find_metrics(path)[1]
  # Without `params`, it is no checkpoint, although Orbax would take it as one.
  is_whole = damage or (path / 'params').is_dir()
  return damage if is_whole else 'params is missing'


def best_first(directory):
  """Returns the steps that have a score, best first; of equal ones the later.

  Only scores of the same metric as the latest score are compared. A continued
  run rewrites the scores for its metric (`Checkpointer`).
  """
  scored = {}
  for step in list_steps(directory):
    metrics = read_metrics(Path(directory) / str(step))
    if metrics.get(SCORE) is not None:
      scored[step] = metrics[SCORE], metrics.get(SCORE_OF)
  if not scored:
    return []
  _, metric = scored[max(scored)]
  steps = [step for step in scored if scored[step][1] == metric]
  return sorted(steps, key=lambda step: (scored[step][0], step), reverse=True)


def read_metrics(step_directory):
  """Returns a checkpoint's metrics; if damaged, {} and a warning on stderr."""
  metrics, problem = find_metrics(step_directory)
  if problem:
    _warn_once(f'{step_directory}: {problem}: not among the best checkpoints')
  return metrics


def find_metrics(step_directory):
  """Returns (a checkpoint's metrics, '') or ({}, a description of the damage).

  The metrics are checked against the manifest; if it does not name them, as in
  older versions, they are not checked.
  """
  step_directory = Path(step_directory)
  path = step_directory / METRICS
  problem = manifest.find_damage_of(step_directory, METRICS)
  if problem:
    return {}, problem
  try:
    metrics = files.read_object(path)
    for key, value in metrics.items():
      if key == SCORE_OF:
        files.check_value(path, key, value, kinds.TEXT)
      elif type(value) not in (int, float):
        shown = files.show_value(value)
        raise InputError(
            f'{path}: {files.visible(key)}={shown}: expected a number'
        )
    return metrics, ''
  except (FileNotFoundError, NotADirectoryError):
    return {}, ''
  except InputError as error:
    return {}, str(error).removeprefix(f'{step_directory}/')


@functools.lru_cache  # once per line
def _warn_once(line):
  print(line, file=sys.stderr, flush=True)
