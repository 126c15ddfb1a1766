"""The steps of a run, and what happens between: lines, evaluations, saves.

With the state go into a checkpoint the numbers of the steps since the last line
of metrics, and whether an evaluation that was due is still to be done: a run
that was stopped anywhere writes the same lines as one that was not.

What goes wrong from outside costs no step that was taken:

- The state is saved before it is evaluated: whatever ends an evaluation, the
  run continues with it.
- SIGTERM, SIGINT: the step that runs is finished; waiting for data or an
  evaluation is broken off, and the evaluation done when the run continues;
  then the state is saved. With several processes an evaluation is finished.
- No room for a checkpoint: a line tells it, the run goes on, and the next
  checkpoint is tried. The last is tried for half an hour.
"""

import collections
import contextlib
import math
import time

import jax
import jax.numpy as jnp

from locost_jax import preemption
from locost_jax import sharding
from locost_jax import telemetry as telemetry_lib
from locost_jax.errors import InputError
from locost_jax.errors import Stopped

# When there is no room for the last state: how often it is tried again, and
# after how many seconds each time. Training is done: there is time to wait for
# somebody who makes room, though not for ever.
ATTEMPTS, PAUSE = 30, 60.0
_AGAIN = 'the next checkpoint tries again'


class Loop:
  """One process's loop over the steps of a run."""

  def __init__(
      self, settings, mesh, pad_id, step_function, train_batches, evaluate,
      checkpointer, telemetry, signals, watch,
  ):
    """Does nothing yet.

    Args:
      settings: config.train.
      mesh: of `sharding.make_mesh`, the context's.
      pad_id: the token of padding.
      step_function: `train.train_step`, compiled.
      train_batches, evaluate: as of `train.train`.
      checkpointer: a `checkpoint.Checkpointer`.
      telemetry: a `telemetry.Telemetry`.
      signals: a `preemption.Signals`.
      watch: a `watchdog.Watchdog`.
    """
    self._settings, self._mesh, self._pad_id = settings, mesh, pad_id
    self._step_function = step_function
    self._train_batches, self._evaluate = train_batches, evaluate
    self._checkpointer, self._telemetry = checkpointer, telemetry
    self._signals, self._watch = signals, watch

  def run(self, state, start, kept):
    """Takes the steps from `start` to train.steps and saves the last state.

    Args:
      state: the TrainState after `start` steps; its memory is taken.
      start: steps done.
      kept: what `_save` gave the checkpoint of `start`: window, the numbers of
        the steps since the last line of metrics; measured, False where the
        evaluation of `start` is still to be done. {}: there is none.

    Raises:
      InputError: too many steps were not finite, or no room for the last state.
      Stopped: a signal came.
    """
    self._state, self._done, self._measured = state, start, None
    self._skipped = int(state.nonfinite)
    self._window, self._running = list(kept.get('window', ())), (
        collections.deque())
    try:
      if not kept.get('measured', True):
        self._measure()
      self._take_steps(start)
      if self._done > start:
        self._save_last()
      self._signals.stop_here(self._mesh)
    except preemption.Interrupted:
      self._take_note(0)
      raise self._stop(start) from None

  def _take_steps(self, start):
    settings, seen = self._settings, set()
    batches = self._train_batches(start) if start < settings.steps else None
    for step in range(start + 1, settings.steps + 1):
      running = self._running[-1][1] if self._running else None
      with (
          self._watch.waiting_for('data'), self._signals.interrupting(),
          self._telemetry.waiting(running),
      ):
        batch = next(batches)
      shapes = (
          batch['encoder_input_tokens'].shape,
          batch['decoder_target_tokens'].shape,
      )
      batch = sharding.global_batch(batch, self._mesh, self._pad_id)
      if shapes in seen:
        self._state, metrics = self._step_function(self._state, batch)
      else:
        seen.add(shapes)
        (rows, *read), (_, written) = shapes
        with self._telemetry.aside(
            f'compiling for {rows} x {math.prod(read)} -> {written} tokens',
            running,
        ):
          self._state, metrics = self._step_function(self._state, batch)
      self._running.append((step, metrics, self._signals.ask(self._mesh)))
      self._done, self._measured = step, None

      # The numbers of a step are fetched while the next one runs, so that the
      # devices never wait for the host; a checkpoint wants them all.
      self._take_note(0 if self._is_save(step) else 1)
      if self._is_save(step):
        self._save()
      elif problem := self._checkpointer.check():
        self._telemetry.note(f'{problem}; {_AGAIN}')
      if self._is_eval(step):
        self._measure()

  # A line of metrics is the mean since the line before.
  def _is_line(self, step):
    return self._is_eval(step) or _is_due(step, self._settings.log_every)

  def _is_eval(self, step):
    return step == self._settings.steps or (
        _is_due(step, self._settings.eval_every))

  def _is_save(self, step):
    return self._is_eval(step) or (
        _is_due(step, self._settings.checkpoint_every))

  def _take_note(self, most):
    """Fetches the numbers of all but the last `most` steps."""
    others = ' or other hosts' if jax.process_count() > 1 else ''
    while len(self._running) > most:
      step, metrics, asked = self._running.popleft()
      with self._watch.waiting_for(f'the devices{others}'):
        metrics = jax.device_get(metrics)
      culprit = int(metrics.pop('culprit'))
      self._skipped += int(metrics['nonfinite'])
      if self._skipped > self._settings.max_nonfinite_steps:
        raise InputError(
            f'step {step}: '
            + _not_finite(metrics, culprit, self._state.params)
            + f' (train.max_nonfinite_steps='
            f'{self._settings.max_nonfinite_steps}); {self._kept()}'
        )
      self._window.append({key: metrics[key].item() for key in metrics})
      self._telemetry.progress(
          step, metrics['loss'], metrics['tokens'], metrics['samples'],
          metrics.get('flops', 0.0))
      if self._is_line(step):
        row = telemetry_lib.mean_of_finite(self._window)
        row |= self._telemetry.measured(
            sum(int(numbers['tokens']) for numbers in self._window))
        self._telemetry.log(step, {f'train/{key}': row[key] for key in row})
        self._window.clear()
      self._signals.check(asked)

  def _measure(self):
    """Evaluates the state there is, which has been saved without."""
    with (
        self._telemetry.aside('evaluating'),
        self._watch.waiting_for('the evaluation'),
        self._signals.interrupting(),
    ):
      measured = dict(self._evaluate(self._state.params, self._done))
    self._telemetry.log(self._done, measured)
    self._telemetry.note(_summary(self._done, measured))
    self._measured = measured
    if not self._is_saved(
        _AGAIN if self._done < self._settings.steps else ''):
      return
    with self._at_the_disk():
      self._telemetry.sync()
      problem = self._checkpointer.measure(self._done, measured)
    if problem:
      self._telemetry.note(problem)

  @contextlib.contextmanager
  def _at_the_disk(self):
    """Around what waits for it; not a part of the step's time."""
    with self._telemetry.aside('saving'), self._watch.waiting_for('the disk'):
      yield

  def _save(self, otherwise=_AGAIN):
    """Begins to save; a line tells if this or the save before had no room."""
    with self._at_the_disk():
      self._telemetry.sync()
      problem = self._checkpointer.save(
          self._done, self._state, self._measured, {
              'window': list(self._window),
              'measured': self._measured is not None or (
                  not self._is_eval(self._done)),
          })
    if problem:
      self._telemetry.note(f'{problem}; {otherwise}')

  def _is_saved(self, otherwise=''):
    """Waits for the last save; whether the state there is, is on disk."""
    with self._at_the_disk():
      problem = self._checkpointer.wait()
      saved = self._checkpointer.latest_step() == self._done
    if problem:
      self._telemetry.note('; '.join(filter(None, [problem, otherwise])))
    return saved

  def _save_last(self):
    """Returns when the last state is on disk; tries for a while."""
    for attempt in range(ATTEMPTS + 1):
      if self._is_saved():
        return
      if attempt < ATTEMPTS:
        self._telemetry.note(
            f'saving step {self._done} again in {PAUSE:g} seconds, '
            f'{ATTEMPTS - attempt} times at most: please make room')
        for _ in range(10):
          with self._signals.interrupting(), self._watch.waiting_for('room'):
            time.sleep(PAUSE / 10)
        self._save('it is the last')
    raise InputError(
        f'step {self._done}, the last, could not be saved; {self._kept()}: '
        'make room and give the same command again')

  def _stop(self, start):
    """Saves the state after a signal; returns what then is to be raised."""
    received = self._signals.received
    if self._done > start and not self._is_saved():
      self._save('there is no time to try again')
    said = f'{received.name}: stopped after step {self._done}, '
    if not self._done:
      said = f'{received.name}: stopped before the first step'
    elif self._done == start or self._is_saved():
      said += 'which is saved; the same command continues'
    else:
      said += f'which could not be saved; {self._kept()}'
    return Stopped(said, 128 + received)

  def _kept(self):
    last = self._checkpointer.latest_step()
    if last is None:
      return 'no checkpoint was written yet'
    return f'the checkpoint of step {last} is kept'


def _not_finite(metrics, culprit, params):
  """Returns what is not finite, naming the first path."""
  paths = [
      jax.tree_util.keystr(path, simple=True, separator='/')
      for path, _ in jax.tree_util.tree_leaves_with_path(params)
  ]
  sound = jax.jit(
      lambda params: [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]
  )(params)
  broken = [path for path, is_sound in zip(paths, sound) if not is_sound]
  if broken:
    where = f'the parameter {broken[0]} is not finite'
  elif culprit >= 0:
    where = f'first in the gradient of {paths[culprit]}'
  else:
    where = 'the square of the gradient overflows float32'
  return (f"loss {metrics['loss']:g}, gradient norm {metrics['grad_norm']:g}: "
          f'{where}')


def _is_due(step, every):
  return every > 0 and step % every == 0


def _summary(step, measured):
  """Returns 'step 9: eval/x: loss 2.1  rouge1 30.5', each prefix once."""
  parts, before = [], ''
  for name, value in measured.items():
    prefix, _, last = name.rpartition('/')
    if prefix != before:
      parts.append(f'{prefix}:')
    parts.append(f'{last} {value:.4g}')
    before = prefix
  return f'step {step}: ' + ('  '.join(parts) or 'nothing was measured')
