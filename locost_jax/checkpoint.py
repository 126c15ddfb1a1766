"""Checkpoints: WORKDIR/checkpoints/STEP/{params,training,loop,metrics}.

`params` is the tree of parameters and all that inference reads; `training` is
everything else of the state, by path: step, optimiser, random key; `loop` is
what the training loop keeps on the host. A step is written under a temporary
name by a thread, gets a manifest of its files' checksums, and is renamed when
it is whole, and old steps go only after that, so a run killed at any moment
leaves a latest checkpoint that restores.

Disks fail otherwise, too. A run that continues checks every step it finds
against its manifest and renames a damaged one to STEP.damaged, deleting
nothing. Who only reads, renames nothing and gets no other checkpoint than the
one meant: `load_params` checks the parameters and raises.
"""

import json
import math
from pathlib import Path
import shutil
import sys

import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from locost_jax import failed_save
from locost_jax import manifest
from locost_jax.errors import disk_error
from locost_jax.errors import InputError

_SCORE = 'score'
_LOOP = 'loop/metadata'  # where Orbax puts JSON


class Checkpointer:
  """Saves, prunes and restores the checkpoints of one run.

  Kept are the `keep_latest` most recent and the `keep_best` with the largest
  score (see `score`); a checkpoint without a score is never a best one.
  """

  def __init__(self, directory, config):
    """Opens the directory, making it if need be, and clears half-written steps.

    Args:
      directory: WORKDIR/checkpoints.
      config: config.checkpoint.
    """
    if config.keep_latest < 1:
      raise InputError(
          f'checkpoint.keep_latest={config.keep_latest}: expected 1 or more'
      )
    self._directory = Path(directory).absolute()
    self._config = config
    # Without the policy, best_fn would delete the newest checkpoint when it
    # has no score; without best_fn, Orbax does not write the metrics.
    best = lambda metrics: metrics.get(_SCORE, -math.inf)
    self._saving = None  # the step of the last save
    failed_save.quieten()
    self._manager = ocp.CheckpointManager(
        self._directory,
        options=ocp.CheckpointManagerOptions(
            best_fn=best,
            preservation_policy=checkpoint_managers.AnyPreservationPolicy([
                checkpoint_managers.LatestN(config.keep_latest),
                checkpoint_managers.BestN(
                    get_metric_fn=best, n=config.keep_best
                ),
            ]),
            cleanup_tmp_directories=True,
            async_options=ocp.options.AsyncOptions(
                post_finalization_callback=self._write_manifest
            ),
        ),
    )

  def save(self, step, state, metrics=None, loop=None):
    """Copies the state off the devices and writes it in the background.

    Args:
      step: the number of steps done.
      state: a NamedTuple of pytrees with a field `params`.
      metrics: what was measured at this step, name -> number, or None.
      loop: what else is to be kept, as JSON holds it.

    Returns:
      None, or in a few words which step had no room on the disk, the one before
      or this one. What was written of it is removed; saving goes on.
    """
    problem = self.wait()
    metrics = self._scored(metrics or {})
    self._saving = step
    try:
      self._manager.save(
          step,
          args=ocp.args.Composite(
              params=ocp.args.StandardSave(state.params),
              training=ocp.args.StandardSave(_training(state)),
              loop=ocp.args.JsonSave(loop or {}),
          ),
          metrics=metrics,
      )
    except Exception as error:  # raised again if it is not the disk's
      return self._give_up(error)
    return problem

  def wait(self):
    """Returns when the last save is over; what it returns is as of `save`."""
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      return self._give_up(error)

  def check(self):
    """Returns the same of the last save, without waiting, if it is over."""
    return None if self._manager.is_saving_in_progress() else self.wait()

  def close(self):
    """Waits for the last save and ends its threads."""
    self.wait()
    try:
      self._manager.close()
    except Exception as error:  # Orbax may raise an error a second time
      self._give_up(error)

  def latest_step(self):
    """Returns the most recent step there is, or None."""
    self.wait()
    return latest_step(self._directory)

  def set_damaged_aside(self):
    """Renames every step that is not what was written, and says so on stderr.

    Returns:
      The most recent step that is intact, or None where nothing was saved.

    Raises:
      InputError: only damaged ones are left.
    """
    if jax.process_index() == 0:
      for step in _steps(self._directory):
        problem = manifest.set_damaged_aside(self._directory / str(step))
        if problem:
          print(problem, file=sys.stderr, flush=True)
    step = latest_step(self._directory)
    if jax.process_count() > 1:  # also: the others wait until it is renamed
      known = multihost_utils.broadcast_one_to_all(
          np.int32(-1 if step is None else step))
      step = None if known < 0 else int(known)
    self._manager.reload()
    if step is None and any(self._directory.glob('*.damaged*')):
      raise InputError(
          f'{self._directory}: all checkpoints are damaged; remove this '
          'directory to start anew, or use another --workdir')
    return step

  def measure(self, step, metrics):
    """Adds what was measured at a step that was saved without.

    Args:
      step: a step that was saved.
      metrics: name -> number.

    Returns:
      None, or in a few words that there was no room for it on the disk.
    """
    self.wait()
    problem = None
    if jax.process_index() == 0:
      try:
        self._add_metrics(self._directory / str(step), metrics)
      except OSError as error:
        problem = (f'what was measured at step {step} could not be saved: '
                   f'{disk_error(error)}')
      self._prune()
    if jax.process_count() > 1:  # the others read what is there now
      multihost_utils.sync_global_devices(f'{self._directory} {step} measured')
    self._manager.reload()
    return problem

  def loop(self, step):
    """Returns the `loop` that was saved with a step."""
    return json.loads((self._directory / str(step) / _LOOP).read_text())

  def best_step(self):
    """Returns the step with the largest score, or None if none has one."""
    self.wait()
    return best_step(self._directory)

  def metrics(self, step):
    """Returns the metrics saved with a step: name -> number."""
    self.wait()
    metrics = _read_metrics(self._directory / str(step))
    metrics.pop(_SCORE, None)
    return metrics

  def restore(self, step, abstract_state):
    """Returns the state saved at a step, born with the shardings asked for.

    Args:
      step: a step that was saved.
      abstract_state: the state as jax.ShapeDtypeStructs with shardings.

    Raises:
      InputError: paths, shapes or dtypes differ from what was saved. (Orbax
        would cast a wrong dtype silently.)
    """
    directory = self._directory / str(step)
    training = _training(abstract_state)
    compare(_metadata(directory / 'params'), abstract_state.params, directory)
    compare(_metadata(directory / 'training'), training, directory)
    restored = self._manager.restore(
        step,
        args=ocp.args.Composite(
            params=ocp.args.StandardRestore(abstract_state.params),
            training=ocp.args.StandardRestore(training),
        ),
    )
    rest = abstract_state._replace(params=())
    leaves = [restored.training[name] for name in _by_path(rest)]
    state = jax.tree.unflatten(jax.tree.structure(rest), leaves)
    return state._replace(params=restored.params)

  def _add_metrics(self, directory, metrics):
    manifest.replace(
        directory, 'metrics/metrics', json.dumps(self._scored(metrics)))
    record = json.loads((directory / _LOOP).read_text())
    manifest.replace(directory, _LOOP, json.dumps(record | {'measured': True}))

  def _prune(self):
    """Removes what is the best no longer. Orbax looks only when it saves."""
    steps = _steps(self._directory)
    kept = steps[-self._config.keep_latest:] + _best_first(
        self._directory)[:self._config.keep_best]
    for step in set(steps).difference(kept):
      # Under a name that is cleared later, should this be killed.
      path = (self._directory / str(step)).rename(
          self._directory / f'{step}{failed_save.UNFINISHED}-removed')
      shutil.rmtree(path, ignore_errors=True)

  def _scored(self, metrics):
    metrics = {key: float(value) for key, value in metrics.items()}
    best_by = score(metrics, self._config.metric)
    return metrics if best_by is None else metrics | {_SCORE: best_by}

  def _write_manifest(self):
    # Called by the first host when all files are written, before the rename.
    name = f'{self._saving}{failed_save.UNFINISHED}*'
    for path in self._directory.glob(name):
      manifest.write(path)

  def _give_up(self, error):
    """Makes room again after a save without; other errors are raised."""
    reason = disk_error(error)
    if reason is None:
      raise error
    if jax.process_index() == 0:
      failed_save.remove_unfinished(self._directory)
    self._manager.reload()  # it has forgotten what this save would have removed
    return f'step {self._saving} could not be saved: {reason}'


def score(metrics, name):
  """Returns the number by which checkpoints compare, larger is better.

  Args:
    metrics: name -> number, names like 'eval/arxiv/rouge_mean'.
    name: config.checkpoint.metric: a whole name or its last part; several
      tasks that have it are averaged. A loss counts negatively.

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
  return -mean if name.endswith('loss') else mean


def latest_step(directory):
  """Returns the most recent finished step, or None. Makes no directory.

  Args:
    directory: WORKDIR/checkpoints; may not exist.
  """
  directory = Path(directory)
  steps = _steps(directory) if directory.is_dir() else []
  return steps[-1] if steps else None


def best_step(directory):
  """Returns the step with the largest score, or None; see `_best_first`.

  Args:
    directory: WORKDIR/checkpoints.
  """
  return next(iter(_best_first(directory)), None)


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
  steps = _steps(directory)
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
    others = [other for other in _steps(path.parent) if str(other) != path.name]
    raise InputError(
        f'{path}: {damage}: damaged; the other checkpoints are of steps '
        f'{others}')
  path = path / 'params'
  try:
    to_numpy = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), _metadata(path)
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
  found, expected = _by_path(found), _by_path(expected)
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


def _by_path(tree):
  return {
      jax.tree_util.keystr(path, simple=True, separator='/'): leaf
      for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def _training(state):
  return _by_path(state._replace(params=()))


def _metadata(item):
  # The handler itself: a Checkpointer warns about a file only a step has.
  handler = ocp.PyTreeCheckpointHandler()
  try:
    return handler.metadata(item.absolute()).tree
  finally:
    handler.close()


def _steps(directory):
  """Returns the finished steps; an unfinished one has another name."""
  return sorted(
      int(path.name)
      for path in Path(directory).iterdir()
      if path.name.isdigit() and (path / 'params').is_dir()
  )


def _best_first(directory):
  """Returns the steps that have a score, of a tie the later one first."""
  scores = {step: _read_metrics(Path(directory) / str(step)).get(_SCORE)
            for step in _steps(directory)}
  scored = [step for step in scores if scores[step] is not None]
  return sorted(scored, key=lambda step: (scores[step], step), reverse=True)


def _read_metrics(step_directory):
  path = Path(step_directory) / 'metrics' / 'metrics'
  return json.loads(path.read_text()) if path.is_file() else {}
