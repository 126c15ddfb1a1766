"""What a run tells: metrics.jsonl, TensorBoard events, a line of progress.

metrics.jsonl has one JSON object per line, `step` and the numbers measured
after that many steps: {"step": 100, "train/loss": 3.21, ...}. A run that
continues drops the lines after the step it continues from, so each step is told
once. TensorBoard gets the same numbers, and W&B if asked (`tracking`). While
the disk has no room, what is to be written waits in memory.

A line every train.log_every steps, and before every evaluation. Means of the
steps since the line before, those that were not finite left out:

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
                            over the device's peak (`peaks`, --peak_tflops)

And:

  train/peak_bytes          most memory taken so far: of the first device, on a
                            CPU of the process
  eval/TASK/NAME            after an evaluation, in a line of their own

A number that cannot be had on a machine is absent. null stands for one that is
not finite.
"""

import contextlib
import json
import math
from pathlib import Path
import time
from typing import NamedTuple

import jax
import numpy as np

from locost_jax import appended
from locost_jax import energy
from locost_jax import memory
from locost_jax import peaks
from locost_jax import tracking
from locost_jax.errors import InputError
from locost_jax.pace import Pace
from locost_jax.progress import Line
from locost_jax.progress import duration


# From this share of the time on, waiting for data is shown.
STARVED = 0.05
# What depends on the clock and the machine: all else is the same numbers
# whenever a run is repeated.
OF_THE_MACHINE = tuple(f'train/{name}' for name in (
    'tokens_per_second', 'samples_per_second', 'step_seconds', 'data_wait',
    'mfu', 'peak_bytes', 'total_joules', 'total_kg_co2'))
# Seconds between looks at the energy counters: nvidia-smi is a process.
ENERGY_SECONDS = 5.0


class Options(NamedTuple):
  """What is asked of one call and changes no result.

  wandb: a project of W&B; '': none.
  carbon_intensity: of the electricity, in g CO2 per kWh; None: not told.
  peak_tflops: of one device; None: `peaks` by its name.
  profile: how many steps are traced.
  """
  wandb: str = ''
  carbon_intensity: float | None = None
  peak_tflops: float | None = None
  profile: int = 0


def check(options):
  """Raises an InputError for options no run can have."""
  tracking.check(options.wandb)
  if options.profile < 0:
    raise InputError(f'--profile={options.profile}: expected 1 or more steps')


class Telemetry:
  """Writes metrics and shows progress; on hosts other than the first, nothing.

  On a terminal progress is one line that is drawn over; elsewhere a line is
  printed every `seconds`.
  """

  def __init__(
      self, workdir, steps, start_step=0, stream=None, seconds=30.0,
      clock=time.monotonic, measured=True, options=Options(), devices=1,
  ):
    """Opens WORKDIR/metrics.jsonl and WORKDIR/tensorboard for appending.

    Args:
      workdir: of the run; made if it is not there.
      steps: of the whole run.
      start_step: the step it continues from; what was written after is cut.
      stream: where progress goes; None: stderr.
      seconds: between lines when the stream is no terminal.
      clock: seconds since whenever.
      measured: whether start_step has been evaluated, where that is due.
      options: Options.
      devices: that a step runs on.

    Raises:
      InputError: W&B is asked for and refuses.
    """
    self._quiet = jax.process_index() != 0
    self._steps, self._step = steps, start_step
    self._line = Line(stream, seconds, clock, at_once=True)
    self._pace, self._loss, self._state = Pace(clock, start_step), math.nan, ''
    if self._quiet:
      return
    peak = peaks.of(jax.devices()[0].device_kind)
    if options.peak_tflops:
      peak = options.peak_tflops * 1e12
    self._peak = peak and peak * devices
    self._intensity = options.carbon_intensity
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    # Asking a service or nvidia-smi takes seconds, which are no step's.
    with self._pace.aside(None):
      self._tracker = None
      if options.wandb:
        self._tracker = tracking.Tracker(options.wandb, workdir, self.note)
      self._meter = energy.Meter(seconds=ENERGY_SECONDS)
    self._meter.start()
    path = workdir / 'metrics.jsonl'
    self._total_tokens, kept, spent = read_totals(path, start_step)
    cut_metrics(path, start_step, measured)
    self._file = appended.File(path)
    self._events = appended.Events(workdir / 'tensorboard', start_step + 1)
    self._full = False
    if spent > kept:  # for steps whose lines are gone
      self.log(start_step, {'train/total_joules': spent})
    self._joules_before = spent
    if self._intensity is not None and self._meter.joules is None:
      self.note(f'--carbon_intensity: energy is {self._meter.source}')

  def log(self, step, metrics):
    """Writes the numbers measured after `step` steps.

    Args:
      step: int.
      metrics: name -> number (an int, which stays exact, or what float()
        takes); one that is not finite becomes null in metrics.jsonl.
    """
    if self._quiet:
      return
    row = {'step': int(step)}
    for name, value in metrics.items():
      if not isinstance(value, int):
        # The shortest digits that tell every float32 apart: 0.003, not
        # 0.003000000026077032.
        value = float(str(np.float32(value)))
      row[name] = value if math.isfinite(value) else None
      self._events.add_scalar(name, value, int(step))
    self._file.write((json.dumps(row) + '\n').encode())
    self._tell_if_full()
    if self._tracker:
      self._tracker.log(int(step), {
          name: value for name, value in row.items()
          if name != 'step' and value is not None})

  def sync(self):
    """Returns when all that was logged is on disk, if there is room."""
    if not self._quiet:
      self._file.sync()
      self._events.sync()
      self._tell_if_full()

  def _tell_if_full(self):
    """Says once that something could not be written, and once that it was."""
    problem = self._file.problem or self._events.problem
    if problem and not self._full:
      self.note(f'metrics could not be written and are kept: {problem}')
    elif self._full and not problem:
      self.note('metrics that had been kept are written')
    self._full = bool(problem)

  def progress(self, step, loss, tokens, samples=0, flops=0.0):
    """Tells that a step is done.

    Args:
      step: the number of steps done.
      loss: of that step, nats per token.
      tokens: input and target tokens in it, without padding.
      samples: documents in it.
      flops: operations in it; 0: no formula tells.
    """
    self._step, self._loss = step, float(loss)
    self._pace.add(step, tokens, samples, flops)
    self._show(now=step >= self._steps)

  @contextlib.contextmanager
  def aside(self, text, running=None):
    """Tells what is going on that is no training step, while it lasts.

    What it takes does not count in the rate of the steps, but for the time in
    which a step still runs beside it.

    Args:
      text: what is going on.
      running: arrays of a step that may still run; None: there is no such step.
    """
    outer, self._state = self._state, text
    self._show(now=self._line.live)
    try:
      # What is inside another one is counted there.
      with contextlib.nullcontext() if outer else self._pace.aside(running):
        yield
    finally:
      self._state = outer

  def waiting(self, running=None):
    """A context that counts the time in it in which the devices are idle.

    Args:
      running: arrays of the last step; what they still work counts as no wait.
        None: there is no such step.
    """
    return self._pace.waiting(running)

  def note(self, text):
    """Prints a line that stays."""
    if self._quiet:
      return
    self._line.note(text)
    if self._line.live:
      self._show(now=True)

  def measured(self, tokens):
    """Returns what the clock and the machine tell for a line: name -> number.

    The module's docstring tells the names.

    Args:
      tokens: of the steps since the line before.
    """
    if self._quiet:
      return {}
    row = self._pace.rates(self._peak)
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
    self._pace.end()
    if self._quiet:
      return
    self._meter.stop()
    if self._line.drawn:
      self._show(now=True)
    self._line.end()
    self.sync()
    self._file.close()
    self._events.close()
    if self._tracker:
      self._tracker.close()

  def _show(self, now=False):
    """Shows 'step 12/99  ━━╌╌╌╌╌  loss 3.210  1,234 tokens/s  1:02 left'."""
    if self._quiet:
      return
    digits = len(str(self._steps))
    parts = [f'step {self._step:>{digits}}/{self._steps}']
    if math.isfinite(self._loss):
      parts.append(f'loss {self._loss:.3f}')
    if self._pace.tokens_per_second():
      parts.append(f'{self._pace.tokens_per_second():,.0f} tokens/s')
    if self._pace.data_wait() > STARVED:
      parts.append(f'{self._pace.data_wait():.0%} waiting for data')
    if self._state or self._time_left():
      parts.append(self._state or self._time_left())
    self._line.show(parts, self._step / max(self._steps, 1), 1, now)

  def _time_left(self):
    seconds = self._pace.step_seconds()
    if not seconds or self._step >= self._steps:
      return ''
    return f'{duration((self._steps - self._step) * seconds)} left'


def read_totals(path, step):
  """Reads what a run has had up to a step.

  Args:
    path: of metrics.jsonl; may not exist.
    step: the step it continues from.

  Returns:
    (tokens, or None where no line tells; joules; joules spent in all, with
    those for steps after `step`, which are done again).
  """
  tokens, kept, spent = None if step else 0, 0, 0
  for _, row in _read_lines(path):
    joules = row.get('train/total_joules', 0)
    spent = max(spent, joules)
    if row['step'] <= step:
      tokens = row.get('train/total_tokens', tokens)
      kept = max(kept, joules)
  return tokens, kept, spent


def cut_metrics(path, step, measured=True):
  """Drops the lines after a step, and a last line that was cut off.

  The file is replaced in one move: there is no moment without it.

  Args:
    path: of metrics.jsonl; may not exist.
    step: the last step whose lines stay.
    measured: False: what was measured at it goes, but for that of training.
  """
  path = Path(path)
  if not path.exists():
    return
  kept = []
  for line, row in _read_lines(path):
    is_kept = row['step'] <= step
    if row['step'] == step and not measured:
      is_kept = 'train/loss' in row
    if is_kept:
      kept.append(line + b'\n')
  temporary = path.with_suffix('.tmp')
  temporary.write_bytes(b''.join(kept))
  temporary.replace(path)


def _read_lines(path):
  """Yields (line, row) of the whole lines of metrics.jsonl."""
  if not Path(path).exists():
    return
  for line in Path(path).read_bytes().split(b'\n')[:-1]:
    try:
      yield line, json.loads(line)
    except ValueError:
      pass


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
