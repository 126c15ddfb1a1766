"""The training loop: takes steps, logs metrics, evaluates and saves.

A checkpoint also stores the numbers of the steps since the last metrics line,
and whether its evaluation is still due: an interrupted run writes the same
lines as an uninterrupted one.

Failures outside the program lose no finished step:

- The state is saved before it is evaluated, so a run whose evaluation failed
  continues from that state.
- After SIGTERM or SIGINT the current step finishes. Waiting for data is
  interrupted; so is an evaluation, which runs again when the run continues
  (with several processes an evaluation finishes). Then the state is saved.
- If the disk has no room for a checkpoint, the run logs it, continues, and
  tries again at the next one. The last checkpoint is retried for half an hour.
"""

import collections
import contextlib
import dataclasses
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.hosts import preemption
from locost_jax.models import parameters
from locost_jax.telemetry import telemetry as telemetry_lib

# Retries, and seconds between them, when the disk has no room for the last
# state: training is done, so the run can wait for somebody to make room.
ATTEMPTS, PAUSE = 30, 60.0
_AGAIN = 'the next checkpoint tries again'


class Functions(NamedTuple):
  """The functions that the loop calls."""

  batches: Any  # start_step -> iterator of numpy batches; see `train.train`
  place: Any  # numpy batch -> arrays on the mesh
  step: Any  # (state, batch) -> (state, metrics), compiled
  evaluate: Any  # (state.params, step) -> {name: number}


class Services(NamedTuple):
  """The run's checkpoints, logs, signals and watchdog."""

  checkpointer: Any  # checkpointer.Checkpointer
  telemetry: Any  # telemetry.Telemetry
  signals: Any  # preemption.Signals
  watch: Any  # watchdog.Watchdog


@dataclasses.dataclass
class Position:
  """The progress of a run.

  Attributes:
    state: the TrainState; the next step reuses its memory.
    done: steps done.
    measured: metrics of the evaluation at step `done`; None: not evaluated.
    is_due: whether the evaluation at step `done` is still due.
    skipped: number of non-finite steps.
    window: numbers of the steps since the last metrics line.
    running: (step, metrics, signal request) of steps whose numbers are still on
      the devices.
  """

  state: Any
  done: int
  measured: Any
  is_due: bool
  skipped: int
  window: list
  running: Any

  @classmethod
  def after(cls, state, done, kept):
    """Returns the position after `done` steps.

    Args:
      state: the TrainState.
      done: steps done.
      kept: the dict that `Loop._save` stored in the checkpoint; {}: nothing.
    """
    return cls(
        state=state,
        done=done,
        measured=None,
        is_due=not kept.get('measured', True),
        skipped=int(state.nonfinite),
        window=list(kept.get('window', ())),
        running=collections.deque(),
    )


class Loop:
  """One process's loop over the steps of a run."""

  def __init__(self, settings, mesh, functions, services, position):
    """Stores the arguments.

    Args:
      settings: config.train.
      mesh: from `sharding.make_mesh`; must be the context's mesh.
    """
    self._settings, self._mesh = settings, mesh
    self._functions, self._at = functions, position
    self._checkpointer, self._telemetry, self._signals, self._watch = services

  def run(self):
    """Trains up to train.steps or until train.patience ends; saves the last state.

    Raises:
      InputError: too many non-finite steps, or no room for the last state.
      Stopped: after a signal.
    """
    start = self._at.done
    try:
      if self._at.is_due:
        self._measure()
      if not self._is_out_of_patience():
        self._take_steps(start)
      if self._at.done > start:
        self._save_last()
      self._signals.stop_here(self._mesh)
    except preemption.Interrupted:
      self._collect_metrics(pending=0)
      raise self._stop(start) from None

  def _take_steps(self, start):
    """Takes the steps after `start`; logs, saves and evaluates when due."""
    steps, shapes = self._settings.steps, set()
    batches = self._functions.batches(start) if start < steps else None
    for step in range(start + 1, steps + 1):
      self._take_step(step, self._next(batches), shapes)
      # Fetch a step's numbers while the next one runs, so that the devices
      # never wait for the host; a checkpoint needs them all.
      is_save = self._is_save(step)
      self._collect_metrics(pending=0 if is_save else 1)
      if is_save:
        self._save()
      elif problem := self._checkpointer.check():
        self._telemetry.note(f'{problem}; {_AGAIN}')
      if self._is_eval(step):
        self._measure()
        if self._is_out_of_patience():
          return

  def _next(self, batches):
    """Returns the next batch; a signal interrupts the wait."""
    with (
        self._watch.waiting_for('data'),
        self._signals.interrupting(),
        self._telemetry.waiting(self._last_metrics()),
    ):
      return next(batches)

  def _take_step(self, step, batch, shapes):
    """Starts a step on the devices; its numbers are collected later.

    Args:
      step: its number, from 1.
      batch: numpy arrays.
      shapes: set of batch shapes seen so far; a new shape needs compiling.
    """
    read = batch['encoder_input_tokens'].shape
    written = batch['decoder_target_tokens'].shape
    compiling = contextlib.nullcontext()
    if (read, written) not in shapes:
      shapes.add((read, written))
      rows, *lengths = read
      compiling = self._telemetry.compiling(
          f'{rows} x {math.prod(lengths):,} -> {written[1]:,} tokens',
          self._last_metrics(),
      )
    batch = self._functions.place(batch)
    with compiling:
      self._at.state, metrics = self._functions.step(self._at.state, batch)
    self._at.running.append(
        (step, metrics, self._signals.start_sum(self._mesh))
    )
    self._at.done, self._at.measured = step, None

  def _last_metrics(self):
    """Returns the last step's numbers on the devices; None: all are fetched."""
    return self._at.running[-1][1] if self._at.running else None

  # A metrics line has the means since the previous line.
  def _is_line(self, step):
    return self._is_eval(step) or _is_due(step, self._settings.log_every)

  def _is_eval(self, step):
    return step == self._settings.steps or (
        _is_due(step, self._settings.eval_every)
    )

  def _is_save(self, step):
    return self._is_eval(step) or (
        _is_due(step, self._settings.checkpoint_every)
    )

  def _is_out_of_patience(self):
    """Whether the last train.patience evaluations did not reach the best."""
    settings = self._settings
    if not settings.patience or self._at.done == settings.steps:
      return False
    if not self._checkpointer.is_finished(settings):
      return False
    best = self._checkpointer.best_step()
    self._telemetry.note(
        f'step {self._at.done}: stopped, {settings.patience} evaluations did '
        f'not reach that of step {best} (train.patience)'
    )
    return True

  def _collect_metrics(self, pending):
    """Fetches and logs the numbers of all but the last `pending` steps."""
    others = ' or other hosts' if jax.process_count() > 1 else ''
    while len(self._at.running) > pending:
      step, metrics, asked = self._at.running.popleft()
      with self._watch.waiting_for(f'the devices{others}'):
        metrics = jax.device_get(metrics)
      self._count_skipped(step, metrics)
      self._at.window.append({key: metrics[key].item() for key in metrics})
      self._telemetry.progress(
          step,
          metrics['loss'],
          metrics['tokens'],
          metrics['samples'],
          metrics.get('flops', 0.0),
      )
      if self._is_line(step):
        self._log_line(step)
      self._signals.check(asked)

  def _count_skipped(self, step, metrics):
    """Counts a non-finite step; ends the run after too many."""
    culprit = int(metrics.pop('culprit'))
    self._at.skipped += int(metrics['nonfinite'])
    limit = self._settings.max_nonfinite_steps
    if self._at.skipped > limit:
      raise InputError(
          f'step {step}: '
          + _not_finite(metrics, culprit, self._at.state.params)
          + f' (train.max_nonfinite_steps={limit}); {self._describe_kept()}'
      )

  def _log_line(self, step):
    """Logs the means over the steps since the previous line."""
    window = self._at.window
    row = telemetry_lib.mean_of_finite(window)
    row |= self._telemetry.machine_metrics(
        sum(int(numbers['tokens']) for numbers in window)
    )
    self._telemetry.log(step, {f'train/{key}': row[key] for key in row})
    window.clear()

  def _measure(self):
    """Evaluates the current state and adds the metrics to its checkpoint."""
    with (
        self._telemetry.activity('evaluating'),
        self._watch.waiting_for('the evaluation'),
        self._signals.interrupting(),
    ):
      measured = dict(
          self._functions.evaluate(self._at.state.params, self._at.done)
      )
    self._telemetry.log(
        self._at.done, measured | self._telemetry.total_tokens()
    )
    self._telemetry.note(_summary(self._at.done, measured))
    self._at.measured = measured
    if not self._is_saved(
        _AGAIN if self._at.done < self._settings.steps else ''
    ):
      return
    with self._using_disk():
      self._telemetry.sync()
      problem = self._checkpointer.measure(self._at.done, measured)
    if problem:
      self._telemetry.note(problem)

  @contextlib.contextmanager
  def _using_disk(self):
    """A context of waiting for the disk, not counted in the step's time."""
    with self._telemetry.activity('saving'), self._watch.waiting_for(
        'the disk'
    ):
      yield

  def _save(self, otherwise=_AGAIN):
    """Starts saving; logs whether this or the previous save had no room."""
    with self._using_disk():
      self._telemetry.sync()
      problem = self._checkpointer.save(
          self._at.done,
          self._at.state,
          self._at.measured,
          {
              'window': list(self._at.window),
              'measured': self._at.measured is not None
              or (not self._is_eval(self._at.done)),
          },
      )
    if problem:
      self._telemetry.note(f'{problem}; {otherwise}')

  def _is_saved(self, otherwise=''):
    """Waits for the last save; returns whether the current state is on disk."""
    with self._using_disk():
      problem = self._checkpointer.wait()
      saved = self._checkpointer.latest_step() == self._at.done
    if problem:
      self._telemetry.note('; '.join(filter(None, [problem, otherwise])))
    return saved

  def _save_last(self):
    """Saves the last state, retrying while the disk has no room."""
    for attempt in range(ATTEMPTS + 1):
      if self._is_saved():
        return
      if attempt < ATTEMPTS:
        self._telemetry.note(
            f'saving step {self._at.done} again in {PAUSE:g} seconds, '
            f'{ATTEMPTS - attempt} retries left: please make room'
        )
        for _ in range(10):
          with self._signals.interrupting(), self._watch.waiting_for('room'):
            time.sleep(PAUSE / 10)
        self._save('it is the last')
    raise InputError(
        f'step {self._at.done}, the last, could not be saved; '
        f'{self._describe_kept()}: make room and run the same command again'
    )

  def _stop(self, start):
    """Saves the state after a signal; returns the exception to raise."""
    received = self._signals.received
    if self._at.done > start and not self._is_saved():
      self._save('there is no time to try again')
    message = f'{received.name}: stopped after step {self._at.done}, '
    if not self._at.done:
      message = f'{received.name}: stopped before the first step'
    elif self._at.done == start or self._is_saved():
      message += 'which is saved; the same command continues'
    else:
      message += f'which could not be saved; {self._describe_kept()}'
    return Stopped(message, 128 + received)

  def _describe_kept(self):
    last = self._checkpointer.latest_step()
    if last is None:
      return 'no checkpoint was written yet'
    return f'the checkpoint of step {last} is kept'


def _not_finite(metrics, culprit, params):
  """Describes what is not finite and names the first parameter."""
  paths = list(parameters.flatten(params))
  finite = jax.jit(
      lambda params: [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]
  )(params)
  broken = [path for path, is_finite in zip(paths, finite) if not is_finite]
  if broken:
    where = f'the parameter {broken[0]} is not finite'
  elif culprit >= 0:
    where = f'first in the gradient of {paths[culprit]}'
  else:
    where = 'the square of the gradient overflows float32'
  return (
      f"loss {metrics['loss']:g}, gradient norm {metrics['grad_norm']:g}: "
      f'{where}'
  )


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
