"""Trains a model: from a config and batches to the last checkpoint.

`step.py` defines one step; the loop here takes steps, logs metrics, evaluates
and saves.

A checkpoint also stores the numbers of the steps since the last metrics line,
and whether its evaluation is still due: an interrupted run writes the same
lines as an uninterrupted one. Failures outside the program lose no finished
step:

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
import functools
import math
from pathlib import Path
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.config import schema
from locost_jax.devices import compiling
from locost_jax.devices import preemption
from locost_jax.devices import sharding
from locost_jax.devices import watchdog
from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.telemetry import step_times
from locost_jax.telemetry import telemetry as telemetry_lib
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import step as step_lib
from locost_jax.training import warm_start
from locost_jax.workdir import checkpoint
from locost_jax.workdir import checkpointer as checkpointer_lib

# Retries, and seconds between them, when the disk has no room for the last
# state: training is done, so the run can wait for somebody to make room.
ATTEMPTS, PAUSE = 30, 60.0
_AGAIN = 'the next checkpoint tries again'


def train(run, options=telemetry_lib.Options()):
  """Runs or continues a training run to config.train.steps.

  Args:
    run: an `assemble.Setup`, or an object with its
      config, directory, model, mesh;
      train_batches: start_step -> endless iterator of numpy batches, this
        host's rows of the steps start_step, start_step + 1, ... (from 0);
      evaluate: (params, step) -> dict of name -> number. Called on every host,
        in the run's mesh, every train.eval_every steps and after the last; it
        must not keep `params`, because the next step reuses their memory;
      lower_is_better: see `checkpoint.score`.

  Raises:
    InputError: a checkpoint that does not fit, more than
      train.max_nonfinite_steps non-finite steps, or no room for the last state.
    errors.Stopped: after SIGTERM or SIGINT; the state is saved.
  """
  config, workdir = run.config, Path(run.directory)
  with (
      preemption.Signals() as signals,
      watchdog.Watchdog(config.train.timeout) as watch,
      jax.set_mesh(run.mesh),
  ):
    # Shapes first, so that errors come before any memory is allocated.
    programs = make_programs(config, run.model, run.mesh)
    given, report = read_warm_start(config, programs, workdir)
    with contextlib.closing(
        checkpointer_lib.Checkpointer(
            workdir / 'checkpoints', config.checkpoint, run.lower_is_better
        )
    ) as checkpointer:
      position = first_position(config, programs, checkpointer, given, watch)
      with (
          contextlib.closing(
              telemetry_lib.Telemetry(
                  workdir,
                  config.train.steps,
                  telemetry_lib.Start(
                      position.done,
                      is_evaluated=not position.is_due,
                      logged=position.done - len(position.window),
                      devices=run.mesh.size,
                  ),
                  options,
              )
          ) as telemetry,
          step_times.trace_steps(
              programs.step, workdir / 'profile', options.profile, telemetry
          ) as step,
      ):
        if report:
          telemetry.note(report)
        if 0 < position.done < config.train.steps:
          telemetry.note(f'continues from step {position.done}')
        programs = programs._replace(step=step)
        services = Services(checkpointer, telemetry, signals, watch)
        Loop(run, programs, services, position).run()


def read_warm_start(config, programs, workdir):
  """Reads the initial parameters of a new run from train.init_from.

  Returns:
    ({path: numpy array}, a line that reports what was loaded); ({}, None) if
    the run has a checkpoint or train.init_from is empty.
  """
  if not config.train.init_from or (
      checkpoint.latest_step(workdir / 'checkpoints') is not None
  ):
    return {}, None
  key = jax.random.key(config.train.seed)
  shapes = lora.without(jax.eval_shape(programs.init, key).params)
  return warm_start.load(config, shapes)


def first_position(config, programs, checkpointer, given, watch):
  """Returns the Position of the run's latest state, or of a new one.

  Args:
    given: {path: array} from `read_warm_start`; emptied.
  """
  rng = jax.random.key(config.train.seed)
  start = checkpointer.set_damaged_aside()
  if start is None:
    with compiling.describe(compiling.INITIAL):
      state = jax.jit(programs.init, out_shardings=programs.shardings)(rng)
    params = warm_start.put(state.params, given)
    return Position.after(state._replace(params=params), 0, {})
  abstract = sharding.abstract_arrays(
      jax.eval_shape(programs.init, rng), programs.shardings
  )
  with watch.waiting_for(f'the checkpoint of step {start}'):
    state = checkpointer.restore(start, abstract)
  return Position.after(state, start, checkpointer.loop(start))


class Programs(NamedTuple):
  """The compiled functions of a run, except evaluation."""

  init: Any  # key -> TrainState; not compiled
  merge: Any  # TrainState.params -> the model's parameters; not compiled
  shardings: Any  # a TrainState of shardings
  step: Any  # (state, batch) -> (state, metrics); donates the state


def make_programs(config, model, mesh):
  """Returns the Programs of a run; nothing is computed or compiled yet."""
  key = jax.eval_shape(lambda: jax.random.key(config.train.seed))
  shapes = jax.eval_shape(
      functools.partial(step_lib.init_params, model=model), key
  )
  objective = objectives.make(config, model, shapes)
  shardings = sharding.state_shardings(
      mesh, jax.eval_shape(objective.init, key)
  )
  return Programs(
      objective.init,
      functools.partial(lora.merge, alpha=config.train.lora.alpha),
      shardings,
      jax.jit(
          objective.step,
          donate_argnums=0,
          out_shardings=(shardings, sharding.replicated(mesh)),
      ),
  )


class Services(NamedTuple):
  """The run's checkpoints, logs, signals and watchdog."""

  checkpointer: Any  # checkpointer.Checkpointer
  telemetry: Any  # telemetry.Telemetry
  signals: Any  # preemption.Signals
  watch: Any  # watchdog.Watchdog


@dataclasses.dataclass
class Position:
  """The progress of a run."""

  state: Any  # the TrainState; the next step reuses its memory
  done: int  # steps
  measured: Any  # metrics of the evaluation at `done`; None: not evaluated
  is_due: bool  # whether the evaluation at `done` is still due
  skipped: int  # non-finite steps
  window: list  # numbers of the steps since the last metrics line
  # (step, metrics, signal request) of steps whose numbers are still on the
  # devices.
  running: Any

  @classmethod
  def after(cls, state, done, kept):
    """Returns the position after `done` steps.

    Args:
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

  def __init__(self, run, programs, services, position):
    """Takes no step yet; `run` as in `train`, its mesh the context's."""
    self._run, self._settings = run, run.config.train
    self._programs, self._at = programs, position
    self._checkpointer, self._telemetry, self._signals, self._watch = services

  def run(self):
    """Trains up to train.steps or until train.patience ends; saves the last state."""
    start = self._at.done
    try:
      if self._at.is_due:
        self._measure()
      if not self._is_out_of_patience():
        self._take_steps(start)
      if self._at.done > start:
        self._save_last()
      self._signals.stop_here(self._run.mesh)
    except preemption.Interrupted:
      self._collect_metrics(pending=0)
      raise self._stop(start) from None

  def _take_steps(self, start):
    """Takes the steps after `start`; logs, saves and evaluates when due."""
    steps, shapes = self._settings.steps, set()
    batches = self._run.train_batches(start) if start < steps else None
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
    """Starts a step on the devices; its numbers are collected later."""
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
    batch = sharding.global_batch(
        batch, self._run.mesh, self._run.model.config.pad_id
    )
    with compiling:
      self._at.state, metrics = self._programs.step(self._at.state, batch)
    self._at.running.append(
        (step, metrics, self._signals.start_sum(self._run.mesh))
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
      self._telemetry.progress(step, metrics)
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
      params = self._programs.merge(self._at.state.params)
      measured = dict(self._run.evaluate(params, self._at.done))
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
    with (
        self._telemetry.activity('saving'),
        self._watch.waiting_for('the disk'),
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


def check(config, mesh):
  """Raises an InputError for values of the config that training cannot use."""
  schema.check_config(config)
  optim.check_name(config.optim)
  objectives.check(config)
  settings = config.train
  for key, value in (
      ('train.eval_every', settings.eval_every),
      ('checkpoint.keep_best', config.checkpoint.keep_best),
  ):
    if settings.patience and not value:
      raise InputError(
          f'train.patience={settings.patience} counts evaluations since '
          f'the best one: expected {key} above 0'
      )
  sharding.check_batch_size(settings.batch_size, mesh, 'train.batch_size')
  rows = settings.batch_size // sharding.batch_parts(mesh)
  if rows % settings.accumulate:
    raise InputError(
        f'train.accumulate={settings.accumulate}: expected a divisor of {rows},'
        ' the documents of a step on each device (train.batch_size='
        f'{settings.batch_size})'
    )
