"""Writes a run's checkpoints: WORKDIR/checkpoints/STEP/.

  params     the tree of parameters: all that inference reads
  training   the rest of the state by path: step, optimiser, random key
  loop       what the training loop keeps on the host
  metrics    what was measured at this step

A thread writes a step under a temporary name, adds a manifest of its files'
checksums, and renames it when it is complete; older steps are removed only
after that. A run killed at any moment therefore has a latest checkpoint that
restores.

Disks fail in other ways too: a run that continues checks every step against
its manifest and renames a damaged one to STEP.damaged. Nothing is deleted.
`checkpoint.py` reads checkpoints.
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

from locost_jax import untrusted
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.workdir import checkpoint
from locost_jax.workdir import damage
from locost_jax.workdir import failed_save
from locost_jax.workdir import manifest


class _Manager(ocp.CheckpointManager):
  """Orbax's manager, which sees only metrics that were checked."""

  def metrics(self, step):
    return checkpoint.find_metrics(Path(self.directory) / str(step))[0]


class Checkpointer:
  """Saves, prunes and restores the checkpoints of one run.

  Kept are the `keep_latest` most recent and the `keep_best` with the largest
  score (see `checkpoint.score`); one without a score is never a best one. The
  metric may be another than when the run was begun: scores are made anew from
  the numbers that are stored.
  """

  def __init__(self, directory, config, lower_is_better=('loss',)):
    """Opens the directory, making it if need be, and clears half-written steps.

    Args:
      directory: WORKDIR/checkpoints.
      config: config.checkpoint.
      lower_is_better: see `checkpoint.score`.
    """
    if config.keep_latest < 1:
      raise InputError(
          f'checkpoint.keep_latest={config.keep_latest}: expected 1 or more'
      )
    self._directory = Path(directory).absolute()
    self._config, self._lower_is_better = config, lower_is_better
    # Without the policy, best_fn would delete the newest checkpoint when it
    # has no score; without best_fn, Orbax does not write the metrics.
    best = lambda metrics: self._scored(metrics).get(
        checkpoint.SCORE, -math.inf
    )
    self._saving = None  # the step of the last save
    failed_save.quieten()
    self._manager = _Manager(
        self._directory,
        options=ocp.CheckpointManagerOptions(
            best_fn=best,
            preservation_policy=checkpoint_managers.AnyPreservationPolicy(
                [
                    checkpoint_managers.LatestN(config.keep_latest),
                    checkpoint_managers.BestN(
                        get_metric_fn=best, n=config.keep_best
                    ),
                ]
            ),
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
    """Waits until the last save is over; returns as `save` does."""
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
    return checkpoint.latest_step(self._directory)

  def set_damaged_aside(self):
    """Renames every step that is not what was written, and says so on stderr.

    See `damage.set_aside`. The steps that stay get scores of this metric.

    Returns:
      The most recent step that is intact, or None where nothing was saved.

    Raises:
      InputError: only damaged ones are left.
    """
    if jax.process_index() == 0:
      for line in damage.set_aside(self._directory):
        print(line, file=sys.stderr, flush=True)
      for step in checkpoint.list_steps(self._directory):
        self._score_again(self._directory / str(step))
    step = checkpoint.latest_step(self._directory)
    if jax.process_count() > 1:  # also: the others wait until it is renamed
      known = multihost_utils.broadcast_one_to_all(
          np.int32(-1 if step is None else step)
      )
      step = None if known < 0 else int(known)
    self._manager.reload()
    if step is None and any(self._directory.glob('*.damaged*')):
      raise InputError(
          f'{self._directory}: all checkpoints are damaged; remove this '
          'directory to start anew, or use another --workdir'
      )
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
        problem = (
            f'what was measured at step {step} could not be saved: '
            f'{disk_error(error)}'
        )
      self._prune()
    if jax.process_count() > 1:  # the others read what is there now
      multihost_utils.sync_global_devices(f'{self._directory} {step} measured')
    self._manager.reload()
    return problem

  def loop(self, step):
    """Returns the `loop` that was saved with a step."""
    return untrusted.read_object(self._directory / str(step) / damage.LOOP)

  def best_step(self):
    """Returns the step with the largest score, or None if none has one."""
    self.wait()
    return checkpoint.best_step(self._directory)

  def is_finished(self, settings):
    """See `checkpoint.is_finished`; settings: config.train."""
    self.wait()
    return checkpoint.is_finished(self._directory, settings)

  def metrics(self, step):
    """Returns the metrics saved with a step: name -> number."""
    self.wait()
    return _numbers(checkpoint.read_metrics(self._directory / str(step)))

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
    checkpoint.compare(
        checkpoint.metadata(directory / 'params'),
        abstract_state.params,
        directory,
    )
    checkpoint.compare(
        checkpoint.metadata(directory / 'training'), training, directory
    )
    restored = self._manager.restore(
        step,
        args=ocp.args.Composite(
            params=ocp.args.StandardRestore(abstract_state.params),
            training=ocp.args.StandardRestore(training),
        ),
    )
    rest = abstract_state._replace(params=())
    leaves = [restored.training[name] for name in parameters.flatten(rest)]
    state = jax.tree.unflatten(jax.tree.structure(rest), leaves)
    return state._replace(params=restored.params)

  def _add_metrics(self, directory, metrics):
    manifest.replace(
        directory, checkpoint.METRICS, json.dumps(self._scored(metrics))
    )
    damage.set_measured(directory, True)

  def _score_again(self, directory):
    """Writes the score of this metric where another is stored."""
    stored = checkpoint.read_metrics(directory)
    scored = self._scored(stored)
    keys = checkpoint.SCORE, checkpoint.SCORE_OF
    if any(stored.get(key) != scored.get(key) for key in keys):
      manifest.replace(directory, checkpoint.METRICS, json.dumps(scored))

  def _prune(self):
    """Removes what is the best no longer. Orbax looks only when it saves."""
    steps = checkpoint.list_steps(self._directory)
    kept = (
        steps[-self._config.keep_latest :]
        + checkpoint.best_first(self._directory)[: self._config.keep_best]
    )
    for step in set(steps).difference(kept):
      # Under a name that is cleared later, should this be killed.
      path = (self._directory / str(step)).rename(
          self._directory / f'{step}{failed_save.UNFINISHED}-removed'
      )
      shutil.rmtree(path, ignore_errors=True)

  def _scored(self, metrics):
    """Metrics, of which scores are left out, with the score of this metric."""
    metrics, name = _numbers(metrics), self._config.metric
    best_by = checkpoint.score(metrics, name, self._lower_is_better)
    if best_by is None:
      return metrics
    return metrics | {checkpoint.SCORE: best_by, checkpoint.SCORE_OF: name}

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


def _numbers(metrics):
  """Returns the measured metrics, without the score."""
  return {
      key: float(value)
      for key, value in metrics.items()
      if key not in (checkpoint.SCORE, checkpoint.SCORE_OF)
  }


def _training(state):
  return parameters.flatten(state._replace(params=()))
