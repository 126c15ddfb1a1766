"""Writes a run's checkpoints: WORKDIR/checkpoints/STEP/.

  params     the tree of parameters, the only item that inference reads
  training   the rest of the state by path: step, optimiser, random key
  loop       the training loop's state on the host
  metrics    the metrics of this step

A thread writes a step under a temporary name, adds a manifest of checksums, and
renames the directory when it is complete. Older steps are removed when the loop
next waits for it. A run killed at any moment therefore has a checkpoint that
restores.

Disks also fail in other ways, so a continued run checks every step against its
manifest and renames a damaged one to STEP.damaged. Nothing is deleted.
`checkpoint.py` reads checkpoints.
"""

import contextlib
import functools
import json
from pathlib import Path
import shutil

import jax
import orbax.checkpoint as ocp

from locost_jax import files
from locost_jax.devices import collective
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.errors import silence_failed_saves
from locost_jax.errors import Stopped
from locost_jax.models import parameters
from locost_jax.workdir import bucket_run
from locost_jax.workdir import checkpoint
from locost_jax.workdir import manifest

_LOOP = 'loop/metadata'  # where Orbax puts JSON
# Of a file of arrays; writing one to a bucket takes thrice its memory.
_FILE_BYTES = 1 << 28


class Checkpointer:
  """Saves, prunes and restores the checkpoints of one run.

  It keeps the `keep_latest` most recent checkpoints and the `keep_best` with
  the largest score (see `checkpoint.score`); one without a score is never among
  the best. If config.checkpoint.metric has changed, the scores are computed
  again from the stored metrics.
  """

  def __init__(self, directory, config, lower_is_better=('loss',)):
    """Opens or makes WORKDIR/checkpoints; removes partially written steps."""
    self._directory = Path(directory).absolute()
    self._config = config
    self._scored = functools.partial(
        checkpoint.scored, name=config.metric, lower_is_better=lower_is_better
    )
    self._saving = None  # the step that may not be on disk yet
    self._failed = None  # an error that `check` raised
    self._mirror = bucket_run.mirror_of(self._directory)
    files.check_directory('checkpoints', self._directory)
    self._directory.mkdir(parents=True, exist_ok=True)
    self._unfinished = checkpoint.list_unfinished(self._directory)
    if collective.is_first_host():
      for path in self._directory.glob(f'*{checkpoint.UNFINISHED}*'):
        shutil.rmtree(path, ignore_errors=True)
    silence_failed_saves()
    self._orbax = checkpoint.saver(self._finish, self._mirror.is_shared)

  def save(self, step, state, loop):
    """Copies the state off the devices and writes it in the background.

    Args:
      state: a NamedTuple of pytrees with a field `params`.
      loop: a dict for JSON, which `loop` returns.

    Raises:
      InputError: the disk has no room for this step or, as in all methods that
        wait for the last save, for that step.
    """
    self.wait()
    self._saving = step
    items = _items(state)
    if not self._mirror.is_shared:
      items = collective.gather_arrays(items)
    with collective.raising_together(), self._explaining_disk_errors():
      if items is not None:  # else the first host writes
        save = functools.partial(
            ocp.args.PyTreeSave, ocdbt_target_data_file_size=_FILE_BYTES
        )
        args = {name: save(item) for name, item in items.items()}
        args = ocp.args.Composite(loop=ocp.args.JsonSave(loop), **args)
        self._orbax.save(self._directory / str(step), args=args)

  def wait(self):
    """Waits for the last save; then removes the steps that are not kept.

    All hosts call this, and the methods that wait; they get the first host's
    answer, and the error of any.
    """
    with collective.raising_together():
      if self._failed:
        raise self._failed
      self._wait()

  def _wait(self):
    with self._explaining_disk_errors():
      self._orbax.wait_until_finished()
    if self._saving is not None:
      self._saving = None
      self._prune()

  def check(self):
    """Raises the error of a save that has failed, without waiting."""
    try:
      self._mirror.check()
      with self._explaining_disk_errors():
        self._orbax.check_for_errors()
    except (InputError, Stopped) as error:
      self._failed = error  # Orbax raises it once
      raise

  def close(self):
    """Waits for this host's last save and ends its threads."""
    self._wait()
    self._orbax.close()

  def latest_step(self):
    """Returns the most recent step, or None."""
    return self._ask(checkpoint.latest_step)

  def set_damaged_aside(self):
    """Renames damaged steps and reports them on stderr.

    The other steps get scores for the current metric.

    Returns:
      The most recent intact step, or None if nothing was saved.
    """
    with collective.raising_together():
      if collective.is_first_host():
        self._set_damaged_aside()
    step = self._ask(checkpoint.latest_step)
    self._mirror.share(self._directory / str(step))
    then = 'starting anew' if step is None else f'continuing from {step}'
    for unfinished in self._unfinished:
      collective.log(
          f'checkpoint {unfinished} was not finished (the run was stopped while '
          f'it was saved): {then}'
      )
    self._unfinished = []
    if step is None and any(self._directory.glob('*.damaged*')):
      raise InputError(
          f'{self._directory}: all checkpoints are damaged; remove this '
          'directory to start anew, or use another --workdir'
      )
    return step

  def measure(self, step, metrics):
    """Adds metrics to a step."""
    self.wait()
    with collective.raising_together():
      if collective.is_first_host():
        directory = self._directory / str(step)
        scored = json.dumps(self._scored(metrics))
        with self._explaining_disk_errors(f'the metrics of step {step}'):
          manifest.replace(directory, checkpoint.METRICS, scored)
          loop = json.dumps(self.loop(step) | {'measured': True})
          manifest.replace(directory, _LOOP, loop)
          self._mirror.commit(directory)
        self._prune()

  def loop(self, step):
    """Returns the `loop` dict saved with a step."""
    return files.read_object(self._directory / str(step) / _LOOP)

  def best_step(self):
    """Returns the step with the largest score, or None."""
    return self._ask(checkpoint.best_step)

  def is_finished(self, settings):
    """See `checkpoint.is_finished`; settings: config.train."""
    return self._ask(checkpoint.is_finished, settings)

  def restore(self, step, abstract_state):
    """Restores the state of a step with the given shardings.

    Raises:
      InputError: the saved paths, shapes or dtypes differ. (Orbax would cast to
        another dtype silently.)
    """
    directory = self._directory / str(step)
    args = {}
    for name, item in _items(abstract_state).items():
      checkpoint.compare(checkpoint.metadata(directory / name), item, directory)
      restore_args = ocp.checkpoint_utils.construct_restore_args(item)
      args[name] = ocp.args.PyTreeRestore(item, restore_args)
    restored = self._orbax.restore(directory, args=ocp.args.Composite(**args))
    rest = abstract_state._replace(params=())
    leaves = [restored.training[name] for name in parameters.flatten(rest)]
    state = jax.tree.unflatten(jax.tree.structure(rest), leaves)
    return state._replace(params=restored.params)

  def _ask(self, function, *arguments):
    """Returns what a function says of the first host's directory."""
    self.wait()
    return collective.gather_rows([function(self._directory, *arguments)])[0]

  def _set_damaged_aside(self):
    found = [x for x in checkpoint.numbered(self._directory) if x.is_dir()]
    for path in sorted(found, key=lambda path: int(path.name)):
      if damage := checkpoint.find_damage(path):
        collective.log(manifest.set_aside(path, damage))
        self._mirror.remove(path)
    for step in checkpoint.list_steps(self._directory):
      self._score_again(self._directory / str(step))
      self._mirror.commit(self._directory / str(step))

  def _score_again(self, directory):
    """Rewrites a step's score if it is for another metric."""
    stored = checkpoint.read_metrics(directory)
    scored = self._scored(stored)
    keys = checkpoint.SCORE, checkpoint.SCORE_OF
    if any(stored.get(key) != scored.get(key) for key in keys):
      manifest.replace(directory, checkpoint.METRICS, json.dumps(scored))

  def _prune(self):
    """Removes steps that are neither among the best nor the latest."""
    if not collective.is_first_host():
      return
    steps = checkpoint.list_steps(self._directory)
    kept = (
        steps[-self._config.keep_latest :]
        + checkpoint.best_first(self._directory)[: self._config.keep_best]
    )
    for step in set(steps).difference(kept):
      _remove(self._directory / str(step))
      self._mirror.remove(self._directory / str(step))

  def _finish(self):
    for path in self._directory.glob(f'{self._saving}{checkpoint.UNFINISHED}*'):
      metrics = path / checkpoint.METRICS
      metrics.parent.mkdir(exist_ok=True)
      metrics.write_text('{}')
      manifest.write(path)
      self._mirror.commit(self._directory / str(self._saving), path)

  def describe_kept(self):
    """Returns which checkpoint a run continues from, for messages."""
    last = checkpoint.latest_step(self._directory)
    if last is None:
      return 'no checkpoint was written yet'
    return f'the checkpoint of step {last} is kept'

  @contextlib.contextmanager
  def _explaining_disk_errors(self, what=''):
    """A context in which a full disk is one line, an InputError."""
    try:
      yield
    except Exception as error:  # of any type, from Orbax's threads
      reason = disk_error(error)
      if reason is None:
        raise
      raise InputError(
          f'{what or f"step {self._saving}"} could not be saved: {reason}; '
          f'{self.describe_kept()}: make room and run the same command again'
      ) from error


def _items(state):
  """Returns the parts of a state as a step stores them."""
  rest = state._replace(params=())
  return dict(params=state.params, training=parameters.flatten(rest))


def _remove(path):
  """Removes a checkpoint; a kill never leaves one half removed."""
  with contextlib.suppress(FileNotFoundError):
    path = path.rename(f'{path}{checkpoint.REMOVED}')
  shutil.rmtree(path, ignore_errors=True)
