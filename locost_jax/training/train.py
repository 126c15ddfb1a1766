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
- If the disk has no room, the run ends, and continues from the last checkpoint
  that was complete.
"""

import collections
import contextlib
import math
from pathlib import Path

import jax

from locost_jax.devices import collective
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
from locost_jax.training import warm_start
from locost_jax.workdir import checkpointer as checkpointer_lib


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
      labels: {name: text}, logged with each evaluation;
      lower_is_better: see `checkpoint.score`.

  Raises:
    InputError: a checkpoint that does not fit, more than
      train.max_nonfinite_steps non-finite steps, or a full disk.
    errors.Stopped: after SIGTERM or SIGINT; the state is saved.
  """
  with (
      preemption.Signals() as signals,
      watchdog.Watchdog(run.config.train.timeout) as watch,
      jax.set_mesh(run.mesh),
      contextlib.ExitStack() as files,
  ):
    Loop(run, options, signals, watch, files).run()


class Loop:
  """One process's loop over the steps of a run."""

  def __init__(self, run, options, signals, watch, files):
    """Restores or makes the first state; takes no step yet.

    Args:
      run, options: as in `train`; run.mesh is the context's.
      files: an ExitStack that closes checkpoints and logs.
    """
    config, workdir = run.config, Path(run.directory)
    self._run, self._settings = run, config.train
    self._signals, self._watch = signals, watch
    # Shapes first, so that errors come before any memory is allocated.
    programs = objectives.make_programs(config, run.model, run.mesh)
    given, report = warm_start.load(config, programs.shapes, workdir)
    self._checkpointer = checkpointer_lib.Checkpointer(
        workdir / 'checkpoints', config.checkpoint, run.lower_is_better
    )
    files.callback(self._checkpointer.close)
    # Its memory is reused by each step.
    self._state = self._first_state(programs, given)
    self._done, self._skipped = map(
        int, (self._state.step, self._state.nonfinite)
    )
    kept = self._checkpointer.loop(self._done) if self._done else {}
    # Whether the evaluation of the last step is still due.
    self._must_measure = not kept.get('measured', True)
    # Numbers of the steps since the last metrics line.
    self._window = list(kept.get('window', ()))
    # (step, metrics, signal request) of steps whose numbers are still on the
    # devices.
    self._running = collections.deque()
    start = telemetry_lib.Start(
        self._done,
        is_evaluated=not self._must_measure,
        logged=self._done - len(self._window),
        devices=run.mesh.size,
    )
    self._telemetry = telemetry_lib.Telemetry(
        workdir, config.train.steps, start, options
    )
    files.callback(self._telemetry.close)
    self._step = files.enter_context(
        step_times.trace_steps(
            programs.step, workdir / 'profile', options.profile, self._telemetry
        )
    )
    if report:
      self._telemetry.note(report)
    if 0 < self._done < config.train.steps:
      self._telemetry.note(f'continues from step {self._done}')

  def _first_state(self, programs, given):
    """Returns the run's latest state, or a new one.

    Args:
      given: {path: array} from `warm_start.load`; emptied.
    """
    rng = jax.random.key(self._settings.seed)
    done = self._checkpointer.set_damaged_aside()
    if done is None:
      with compiling.describe(compiling.INITIAL):
        state = jax.jit(programs.init, out_shardings=programs.shardings)(rng)
      return state._replace(params=warm_start.put(state.params, given))
    abstract = sharding.abstract_arrays(
        jax.eval_shape(programs.init, rng), programs.shardings
    )
    with self._watch.waiting_for(f'the checkpoint of step {done}'):
      return self._checkpointer.restore(done, abstract)

  def run(self):
    """Trains up to train.steps, or until train.patience ends."""
    start = self._done
    try:
      if self._must_measure:
        self._measure()
      if not self._is_out_of_patience():
        self._take_steps(start)
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
      is_save = self._is_eval(step) or (
          _is_due(step, self._settings.checkpoint_every)
      )
      self._collect_metrics(pending=0 if is_save else 1)
      if is_save:
        self._save()
      else:
        with self._signals.stopping_all():
          self._checkpointer.check()
      if self._is_eval(step):
        self._measure()
        if self._is_out_of_patience():
          return

  def _next(self, batches):
    """Returns the next batch; a signal interrupts the wait."""
    running = self._running[-1][1] if self._running else None
    with (
        self._watch.waiting_for('data'),
        self._signals.interrupting(),
        self._telemetry.waiting(running),
    ):
      return next(batches)

  def _take_step(self, step, batch, shapes):
    """Starts a step on the devices; its numbers are collected later."""
    read = batch['encoder_input_tokens'].shape
    written = batch['decoder_target_tokens'].shape
    compiles = contextlib.nullcontext()
    if (read, written) not in shapes:
      shapes.add((read, written))
      self._collect_metrics(pending=0)  # its time is not a step's
      rows, *lengths = read
      compiles = self._telemetry.compiling(
          f'{rows} x {math.prod(lengths):,} -> {written[1]:,} tokens'
      )
    batch = sharding.global_batch(
        batch, self._run.mesh, self._run.model.config.pad_id
    )
    with compiles:
      self._state, metrics = self._step(self._state, batch)
    self._running.append(
        (step, metrics, self._signals.start_sum(self._run.mesh))
    )
    self._done = step

  def _is_eval(self, step):
    return step == self._settings.steps or (
        _is_due(step, self._settings.eval_every)
    )

  def _is_out_of_patience(self):
    """Whether the last train.patience evaluations did not reach the best."""
    settings = self._settings
    is_finished = self._checkpointer.is_finished(settings)
    if self._done >= settings.steps or not is_finished:
      return False
    best = self._checkpointer.best_step()
    self._telemetry.note(
        f'step {self._done}: stopped, {settings.patience} evaluations did '
        f'not reach that of step {best} (train.patience)'
    )
    return True

  def _collect_metrics(self, pending):
    """Fetches and logs the numbers of all but the last `pending` steps."""
    others = ' or other hosts' if jax.process_count() > 1 else ''
    while len(self._running) > pending:
      step, metrics, asked = self._running.popleft()
      with self._watch.waiting_for(f'the devices{others}'):
        metrics = jax.device_get(metrics)
      self._count_skipped(step, metrics)
      self._window.append({key: metrics[key].item() for key in metrics})
      self._telemetry.progress(step, metrics)
      if self._is_eval(step) or _is_due(step, self._settings.log_every):
        self._telemetry.log_steps(step, self._window)
        self._window.clear()
      self._signals.check(asked)

  def _count_skipped(self, step, metrics):
    """Counts a non-finite step; ends the run after too many."""
    culprit = int(metrics.pop('culprit'))
    self._skipped += int(metrics['nonfinite'])
    limit = self._settings.max_nonfinite_steps
    if self._skipped > limit:
      self._checkpointer.wait()
      with collective.raising_together():  # the first host knows what is kept
        raise InputError(
            f'step {step}: '
            + _not_finite(metrics, culprit, self._state.params)
            + f' (train.max_nonfinite_steps={limit}); '
            + self._checkpointer.describe_kept()
        )

  def _measure(self):
    """Evaluates the current state and adds the metrics to its checkpoint."""
    with (
        self._telemetry.activity('evaluating'),
        self._watch.waiting_for('the evaluation'),
        self._signals.interrupting(),
    ):
      params = lora.merge(self._state.params, self._settings.lora.alpha)
      measured = dict(self._run.evaluate(params, self._done))
    self._telemetry.log_evaluation(self._done, measured, self._run.labels)
    with self._using_disk():
      self._telemetry.sync()
      self._checkpointer.measure(self._done, measured)

  @contextlib.contextmanager
  def _using_disk(self):
    """A context of waiting for the disk, not counted in the step's time."""
    with (
        self._telemetry.activity('saving'),
        self._watch.waiting_for('the disk'),
    ):
      yield

  def _save(self):
    """Starts to save the current state."""
    is_measured = not self._is_eval(self._done)
    loop = {'window': list(self._window), 'measured': is_measured}
    with self._using_disk():
      self._telemetry.sync()
      self._checkpointer.save(self._done, self._state, loop)

  def _stop(self, start):
    """Saves the state after a signal; returns the exception to raise."""
    with self._using_disk():
      is_saved = self._done in (start, self._checkpointer.latest_step())
    if not is_saved:
      self._save()
      with self._using_disk():
        self._checkpointer.wait()
    message = (
        f'after step {self._done}, which is saved; the same command continues'
    )
    if not self._done:
      message = 'before the first step'
    received = self._signals.received
    return Stopped(f'{received.name}: stopped {message}', 128 + received)


def _not_finite(metrics, culprit, params):
  """Describes what is not finite and names the first parameter."""
  if broken := parameters.find_not_finite(params):
    where = f'the parameter {broken} is not finite'
  elif culprit >= 0:
    where = (
        f'first in the gradient of {list(parameters.flatten(params))[culprit]}'
    )
  else:
    where = 'the square of the gradient overflows float32'
  return (
      f"loss {metrics['loss']:g}, gradient norm {metrics['grad_norm']:g}: "
      f'{where}'
  )


def _is_due(step, every):
  return every > 0 and step % every == 0
