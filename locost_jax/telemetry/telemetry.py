"""Reports on a run: metrics (`metrics_log`) and a line of progress.

There is a line of metrics every train.log_every steps, and before every
evaluation. It has means of the steps since the line before, those that were not
finite left out:

  train/loss                nats per target token, with smoothing and z-loss
  train/accuracy            share of the target tokens that were the likeliest
  train/grad_norm           of the gradients of what is trained, before clipping
  train/grad_norm/GROUP     of a group of parameters: token_embedding,
                            encoder/layers/mixer, ... (optim.norms_by_group)
  train/learning_rate
  train/weight              weight of the target tokens of a step
  train/tokens              input and target tokens of a step, no padding
  train/samples             documents of a step
  train/flops               operations of a step (models/flops.py)

A count since the line before, and sums over the run:

  train/nonfinite           steps that were skipped
  train/total_tokens        tokens of all steps; the same after a resume
  train/total_joules        energy of the machine of the first host (`energy`),
                            evaluations and work lost by kills included
  train/total_kg_co2        its emissions, with --carbon_intensity

The last 64 steps at most, without compiling, evaluating and saving:

  train/tokens_per_second   train/samples_per_second
  train/step_seconds        of a step, waiting for data included
  train/data_wait           share of it in which the devices had no data
  train/mfu                 utilisation: train/flops per step_seconds and device
                            over the device's peak (`peak_flops`, --peak_tflops)

And:

  train/peak_bytes          most memory taken so far: of the first device, on a
                            CPU of the process
  eval/TASK/NAME            after an evaluation, in a line of their own
  eval/TASK/signature/NAME  text: how the metric NAME was computed

A number that cannot be had on a machine is absent.
"""

import contextlib
from pathlib import Path
import time
from typing import NamedTuple

import jax
import numpy as np

from locost_jax.command_line.progress import Line
from locost_jax.devices import memory
from locost_jax.devices import peak_flops
from locost_jax.telemetry import energy
from locost_jax.telemetry import metrics_log
from locost_jax.telemetry import weights_and_biases
from locost_jax.telemetry.progress_line import ProgressLine
from locost_jax.telemetry.step_times import StepTimes

# These depend on the clock and the machine. All other numbers are the same
# whenever a run is repeated.
OF_THE_MACHINE = tuple(
    f'train/{name}'
    for name in (
        'tokens_per_second',
        'samples_per_second',
        'step_seconds',
        'data_wait',
        'mfu',
        'peak_bytes',
        'total_joules',
        'total_kg_co2',
    )
)
# Seconds between looks at the energy counters: nvidia-smi is a process.
ENERGY_SECONDS = 5.0


class Options(NamedTuple):
  """Options of one call that change no result.

  wandb: a project of W&B; '': none.
  carbon_intensity: of the electricity, in g CO2 per kWh; None: no emissions.
  peak_tflops: of one device; None: `peak_flops` by its name.
  profile: how many steps are traced.
  labels: {beginning of names: {name: text}}, see `MetricsLog`.
  """

  wandb: str = ''
  carbon_intensity: float | None = None
  peak_tflops: float | None = None
  profile: int = 0
  labels: dict = {}


class Telemetry:
  """Writes metrics and shows progress; on hosts other than the first, nothing.

  On a terminal progress is one line that is drawn over; elsewhere a line is
  printed every `seconds`.
  """

  def __init__(
      self,
      workdir,
      steps,
      start_step=0,
      stream=None,
      seconds=30.0,
      clock=time.monotonic,
      measured=True,
      options=Options(),
      devices=1,
  ):
    """Opens WORKDIR/metrics.jsonl and WORKDIR/tensorboard for appending.

    Args:
      workdir: of the run; made if it is not there.
      steps: of the whole run.
      start_step: the step it continues from; later lines are cut.
      stream: where progress goes; None: stderr.
      seconds: between lines when the stream is no terminal.
      clock: seconds since whenever.
      measured: whether start_step has been evaluated, if that is due.
      options: Options.
      devices: that a step runs on.

    Raises:
      InputError: W&B is asked for and refuses.
    """
    self._quiet = jax.process_index() != 0
    self._line = Line(stream, seconds, clock, at_once=True)
    self._step_times = StepTimes(clock, start_step)
    self._progress = ProgressLine(
        self._line, self._step_times, steps, start_step, not self._quiet
    )
    if self._quiet:
      return
    peak = peak_flops.lookup(jax.devices()[0].device_kind)
    if options.peak_tflops:
      peak = options.peak_tflops * 1e12
    self._peak = peak and peak * devices
    self._intensity = options.carbon_intensity
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    # Asking a service or nvidia-smi takes seconds, which are no step's.
    with self._step_times.aside(None):
      tracker = None
      if options.wandb:
        tracker = weights_and_biases.Tracker(options.wandb, workdir, self.note)
      self._meter = energy.Meter(seconds=ENERGY_SECONDS)
    self._meter.start()
    self._total_tokens, kept, self._joules_before = metrics_log.read_totals(
        workdir / 'metrics.jsonl', start_step
    )
    self._metrics = metrics_log.MetricsLog(
        workdir, start_step, measured, tracker, self.note, options.labels
    )
    if self._joules_before > kept:  # for steps whose lines are gone
      self.log(start_step, {'train/total_joules': self._joules_before})
    if self._intensity is not None and self._meter.joules is None:
      self.note(f'--carbon_intensity: energy is {self._meter.source}')

  def log(self, step, metrics):
    """Writes the numbers measured after `step` steps, see `MetricsLog.log`."""
    if not self._quiet:
      self._metrics.log(step, metrics)

  def sync(self):
    """Returns when all that was logged is on disk, if there is room."""
    if not self._quiet:
      self._metrics.sync()

  def progress(self, step, loss, tokens, samples=0, flops=0.0):
    """Counts a step that is done, and shows it.

    Args:
      step: the number of steps done.
      loss: of that step, nats per token.
      tokens: input and target tokens in it, without padding.
      samples: documents in it.
      flops: operations in it; 0: unknown.
    """
    self._step_times.add(step, tokens, samples, flops)
    self._progress.update(step, loss)

  @contextlib.contextmanager
  def aside(self, text, running=None):
    """In this context something else than a training step is going on.

    It is shown. Its time does not count in the rate of the steps, except the
    time in which a step still runs.

    Args:
      text: what is going on.
      running: arrays of a step that may still run; None: there is no such step.
    """
    with self._progress.during(text) as is_inside:
      # The time inside another activity is counted there.
      counted = contextlib.nullcontext()
      if not is_inside:
        counted = self._step_times.aside(running)
      with counted:
        yield

  def waiting(self, running=None):
    """Returns a context that counts its time in which the devices are idle.

    Args:
      running: arrays of the last step; the time it still runs counts as no
        wait. None: there is no such step.
    """
    return self._step_times.waiting(running)

  def note(self, text):
    """Prints a line that stays."""
    if self._quiet:
      return
    self._line.note(text)
    if self._line.live:
      self._progress.show(now=True)

  def measured(self, tokens):
    """Returns the numbers that depend on the clock or the machine.

    Args:
      tokens: of the steps since the line before.

    Returns:
      name -> number; the module's docstring explains the names.
    """
    if self._quiet:
      return {}
    row = self._step_times.rates(self._peak)
    row['peak_bytes'] = int(memory.peak_bytes())
    if self._total_tokens is not None:
      self._total_tokens += int(tokens)
      row['total_tokens'] = self._total_tokens
    if self._meter.joules is not None:
      joules = self._joules_before + round(self._meter.joules)
      row['total_joules'] = joules
      if self._intensity is not None:
        row['total_kg_co2'] = energy.grams_co2(joules, self._intensity) / 1000
    return row

  def close(self):
    """Ends the line of progress and the files."""
    self._step_times.end()
    if self._quiet:
      return
    self._meter.stop()
    if self._line.drawn:
      self._progress.show(now=True)
    self._line.end()
    self._metrics.close()


def mean_of_finite(rows):
  """Returns the mean of each number over the steps that were not skipped.

  Args:
    rows: list of dicts of scalars, as `train_step` returns them.

  Returns:
    dict of floats; `nonfinite` is a count, not a mean; the others are nan
    when all steps were skipped.
  """
  kept = [row for row in rows if not row['nonfinite']]
  means = {
      key: float(np.mean([row[key] for row in kept], dtype=np.float64))
      if kept
      else float('nan')
      for key in rows[0]
  }
  means['nonfinite'] = len(rows) - len(kept)
  return means
