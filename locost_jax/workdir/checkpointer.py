"""Writes a run's checkpoints: WORKDIR/checkpoints/STEP/.

  params     the tree of parameters, the only item that inference reads
  training   the rest of the state by path: step, optimiser, random key
  loop       the training loop's state on the host
  metrics    the metrics of this step

A thread writes a step under a temporary name, adds a manifest of checksums, and
renames the directory when it is complete; only then are older steps removed. A
run killed at any moment therefore has a checkpoint that restores.

Disks also fail in other ways, so a continued run checks every step against its
manifest and renames a damaged one to STEP.damaged. Nothing is deleted.
`checkpoint.py` reads checkpoints.
"""

import json
import math
from pathlib import Path
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
from locost_jax.workdir import removal


class _Manager(ocp.CheckpointManager):
  """Orbax's manager; it reads only checked metrics and removes safely."""

  def __init__(self, directory, options):
    super().__init__(directory, options=options)
    self._checkpoint_deleter = removal.Deleter(directory)

  def metrics(self, step):
    return checkpoint.find_metrics(Path(self.directory) / str(step))[0]


class Checkpointer:
  """Saves, prunes and restores the checkpoints of one run.

  It keeps the `keep_latest` most recent checkpoints and the `keep_best` with
  the largest score (see `checkpoint.score`); one without a score is never among
  the best. If config.checkpoint.metric has changed, the scores are computed
  again from the stored metrics.
  """

  def __init__(self, directory, config, lower_is_better=('loss',)):
    """Opens the directory and removes partially written steps.

    Args:
      directory: WORKDIR/checkpoints; made if missing.

    Raises:
      InputError: checkpoint.keep_latest is below 1.
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
    self._unfinished = removal.list_unfinished(self._directory)
    failed_save.silence_logs()
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
      metrics: the metrics of this step, name -> number, or None.
      loop: the loop's state, a dict for JSON, or None.

    Returns:
      None, or a message that the disk had no room for this step or the previous
      one. Its partial files are removed; later steps can be saved.
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
    except Exception as error:  # raised again unless the disk failed
      return self._give_up(error)
    return problem

  def wait(self):
    """Waits for the last save; returns None or a message, as `save` does."""
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      return self._give_up(error)

  def check(self):
    """Returns the last save's message or None, without waiting."""
    return None if self._manager.is_saving_in_progress() else self.wait()

  def close(self):
    """Waits for the last save and ends its threads."""
    self.wait()
    try:
      self._manager.close()
    except Exception as error:  # Orbax may raise an error a second time
      self._give_up(error)

  def latest_step(self):
    """Returns the most recent step, or None."""
    self.wait()
    return checkpoint.latest_step(self._directory)

  def set_damaged_aside(self):
    """Renames damaged steps and reports them on stderr; see `damage.set_aside`.

    The other steps get scores for the current metric.

    Returns:
      The most recent intact step, or None if nothing was saved.

    Raises:
      InputError: all steps are damaged.
    """
    if jax.process_index() == 0:
      for line in damage.set_aside(self._directory):
        print(line, file=sys.stderr, flush=True)
      for step in checkpoint.list_steps(self._directory):
        self._score_again(self._directory / str(step))
    step = checkpoint.latest_step(self._directory)
    if jax.process_count() > 1:  # the others also wait for the renaming
      known = multihost_utils.broadcast_one_to_all(
          np.int32(-1 if step is None else step)
      )
      step = None if known < 0 else int(known)
    self._manager.reload()
    if jax.process_index() == 0:
      self._report_unfinished(step)
    if step is None and any(self._directory.glob('*.damaged*')):
      raise InputError(
          f'{self._directory}: all checkpoints are damaged; remove this '
          'directory to start anew, or use another --workdir'
      )
    return step

  def _report_unfinished(self, start):
    """Reports on stderr which save a kill interrupted; `start`: step or None."""
    then = 'starting anew' if start is None else f'continuing from {start}'
    for step in self._unfinished:
      print(
          f'checkpoint {step} was not finished (the run was stopped while it '
          f'was saved): {then}',
          file=sys.stderr,
          flush=True,
      )
    self._unfinished = []

  def measure(self, step, metrics):
    """Adds metrics to a step that was saved without them.

    Args:
      step: a saved step.

    Returns:
      None, or a message that the disk had no room.
    """
    self.wait()
    problem = None
    if jax.process_index() == 0:
      try:
        self._add_metrics(self._directory / str(step), metrics)
      except OSError as error:
        problem = (
            f'the metrics of step {step} could not be saved: '
            f'{disk_error(error)}'
        )
      self._prune()
    if jax.process_count() > 1:  # before the other hosts read the directory
      multihost_utils.sync_global_devices(f'{self._directory} {step} measured')
    self._manager.reload()
    return problem

  def loop(self, step):
    """Returns the `loop` dict saved with a step."""
    return untrusted.read_object(self._directory / str(step) / damage.LOOP)

  def best_step(self):
    """Returns the step with the largest score, or None."""
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
    """Restores the state of a step with the given shardings.

    Args:
      step: a saved step.
      abstract_state: the state as jax.ShapeDtypeStructs with shardings.

    Raises:
      InputError: the saved paths, shapes or dtypes differ. (Orbax would cast to
        another dtype silently.)
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
    """Rewrites a step's score if it is for another metric."""
    stored = checkpoint.read_metrics(directory)
    scored = self._scored(stored)
    keys = checkpoint.SCORE, checkpoint.SCORE_OF
    if any(stored.get(key) != scored.get(key) for key in keys):
      manifest.replace(directory, checkpoint.METRICS, json.dumps(scored))

  def _prune(self):
    """Removes steps that are no longer among the best or the latest.

    Orbax does so only when it saves.
    """
    steps = checkpoint.list_steps(self._directory)
    kept = (
        steps[-self._config.keep_latest :]
        + checkpoint.best_first(self._directory)[: self._config.keep_best]
    )
    for step in set(steps).difference(kept):
      removal.remove(self._directory / str(step))

  def _scored(self, metrics):
    """Returns metrics with the score of the current metric."""
    metrics, name = _numbers(metrics), self._config.metric
    best_by = checkpoint.score(metrics, name, self._lower_is_better)
    if best_by is None:
      return metrics
    return metrics | {checkpoint.SCORE: best_by, checkpoint.SCORE_OF: name}

  def _write_manifest(self):
    # Called on the first host after all files are written, before the rename.
    name = f'{self._saving}{failed_save.UNFINISHED}*'
    for path in self._directory.glob(name):
      manifest.write(path)

  def _give_up(self, error):
    """Cleans up after a save without room, and returns a message.

    Other errors are raised.
    """
    reason = disk_error(error)
    if reason is None:
      raise error
    if jax.process_index() == 0:
      failed_save.remove_unfinished(self._directory)
    self._manager.reload()  # it has dropped the steps this save was to remove
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
