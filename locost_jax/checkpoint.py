"""Checkpoints: WORKDIR/checkpoints/STEP/{params,training,metrics}.

`params` is the tree of parameters and all that inference reads; `training` is
everything else of the state, by path: step, optimiser, random key. A step is
written under a temporary name by a thread and renamed when it is whole, and
old steps go only after that, so a run killed at any moment leaves a latest
checkpoint that restores.
"""

import json
import math
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from locost_jax.errors import InputError

_SCORE = 'score'


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
    self._metric = config.metric
    # Without the policy, best_fn would delete the newest checkpoint when it
    # has no score; without best_fn, Orbax does not write the metrics.
    best = lambda metrics: metrics.get(_SCORE, -math.inf)
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
        ),
    )

  def save(self, step, state, metrics=None):
    """Copies the state off the devices and writes it in the background.

    Args:
      step: the number of steps done.
      state: a NamedTuple of pytrees with a field `params`.
      metrics: what was measured at this step, name -> number, or None.

    Raises:
      Whatever the save before this one failed with.
    """
    metrics = {key: float(value) for key, value in (metrics or {}).items()}
    best_by = score(metrics, self._metric)
    if best_by is not None:
      metrics[_SCORE] = best_by
    self._manager.save(
        step,
        args=ocp.args.Composite(
            params=ocp.args.StandardSave(state.params),
            training=ocp.args.StandardSave(_training(state)),
        ),
        metrics=metrics,
    )

  def wait(self):
    """Returns when everything saved is on disk; raises if it failed."""
    self._manager.wait_until_finished()

  def close(self):
    """Waits for the last save and ends its threads."""
    self._manager.close()

  def latest_step(self):
    """Returns the most recent step there is, or None."""
    return self._manager.latest_step()

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
  """Returns the step with the largest score (a tie: the later), or None.

  Args:
    directory: WORKDIR/checkpoints.
  """
  scored = []
  for step in _steps(directory):
    metrics = _read_metrics(Path(directory) / str(step))
    if _SCORE in metrics:
      scored.append((metrics[_SCORE], step))
  return max(scored)[1] if scored else None


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
    InputError: as `find`, or the checkpoint is damaged.
  """
  path = find(directory, step) / 'params'
  try:
    to_numpy = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), _metadata(path)
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
      return checkpointer.restore(path.absolute(), restore_args=to_numpy)
  except (OSError, ValueError, KeyError) as error:
    reason = str(error).strip().split('\n')[0]
    raise InputError(f'{path}: cannot be restored: {reason}') from error


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


def _read_metrics(step_directory):
  path = Path(step_directory) / 'metrics' / 'metrics'
  return json.loads(path.read_text()) if path.is_file() else {}
