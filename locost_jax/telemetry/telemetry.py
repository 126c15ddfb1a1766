"""Reports on a run: metrics (`metrics_log`) and a progress line.

Metrics are logged every train.log_every steps and before every evaluation;
docs/training.md explains each. train/NAME is the mean of a number of
`step.train_step` over the steps since the last line, without skipped steps,
except train/nonfinite (the skipped steps) and train/total_tokens (of all steps,
including those before a resume). Rates (`step_times`) are over the last 64 steps
at most, without compiling, evaluating and saving. A number that the machine does
not provide is missing.
"""

import collections
import contextlib
import math
from pathlib import Path
import time
from typing import NamedTuple

import jax
import numpy as np

from locost_jax.config.progress import duration
from locost_jax.config.progress import Progress
from locost_jax.devices import compiling
from locost_jax.devices import memory
from locost_jax.telemetry import metrics_log
from locost_jax.telemetry import step_times

# The line shows the time spent waiting for data above this share.
MIN_DATA_WAIT = 0.05
# Steps after a compilation in which the time left is called one without it.
RECENT = 64


class Options(NamedTuple):
  """Options that do not change a run's result.

  peak_tflops: peak TFLOP/s of one device; None: from `step_times.peak_flops`.
  profile: number of steps to trace.
  """

  peak_tflops: float | None = None
  profile: int = 0


class Start(NamedTuple):
  """Where a run begins or resumes.

  step: lines after it are removed.
  is_evaluated: False if this step still has to be evaluated.
  logged: steps before it that earlier lines count; None: all.
  devices: number of devices that a step runs on.
  """

  step: int = 0
  is_evaluated: bool = True
  logged: int | None = None
  devices: int = 1


class Telemetry:
  """Writes metrics and shows progress, on the first host only."""

  def __init__(
      self,
      workdir,
      steps,
      start=Start(),
      options=Options(),
      progress=None,
      clock=time.monotonic,
  ):
    """Opens WORKDIR/metrics.jsonl and WORKDIR/tensorboard for appending."""
    self._quiet = jax.process_index() != 0
    self._progress = progress or Progress(at_once=True)
    self._step_times = step_times.StepTimes(clock, start.step)
    self._steps, self._step = steps, start.step
    self._loss, self._activity = math.nan, ''
    self._compiled = -math.inf  # the last step that compiled
    if self._quiet:
      return
    peak = step_times.peak_flops(jax.devices()[0].device_kind)
    if options.peak_tflops:
      peak = options.peak_tflops * 1e12
    self._peak = peak and peak * start.devices
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    # Steps that a resumed run repeats are no longer useful.
    self._total_tokens, *self._seconds = metrics_log.read_totals(
        workdir / 'metrics.jsonl',
        start.step,
        start.step if start.logged is None else start.logged,
    )
    self._metrics = metrics_log.MetricsLog(
        workdir, start.step, start.is_evaluated
    )

  def log(self, step, metrics, texts=()):
    """Writes the numbers measured after `step` steps, see `MetricsLog.log`."""
    if not self._quiet:
      self._metrics.log(step, metrics, texts)

  def log_steps(self, step, rows):
    """Writes the means of the numbers of the steps since the previous line."""
    means = mean_of_finite(rows)
    means |= self.machine_metrics(sum(int(row['tokens']) for row in rows))
    self.log(step, {f'train/{name}': means[name] for name in means})

  def log_evaluation(self, step, metrics, texts=()):
    """Writes and prints 'step 9: eval/x: loss 2.1  rouge1 30.5'."""
    if self._quiet:
      return
    tokens = self._total_tokens
    total = {} if tokens is None else {'train/total_tokens': tokens}
    self.log(step, metrics | total, texts if metrics else ())
    parts, before = [], ''
    for name, value in metrics.items():
      prefix, _, last = name.rpartition('/')
      if prefix != before:  # each prefix once
        parts.append(f'{prefix}:')
      parts.append(f'{last} {value:.4g}')
      before = prefix
    self.note(f'step {step}: ' + ('  '.join(parts) or 'nothing was measured'))

  def sync(self):
    """Flushes everything logged to disk."""
    if not self._quiet:
      self._metrics.sync()

  def progress(self, step, metrics):
    """Counts and shows a finished step."""
    counts = (metrics.get(key, 0) for key in ('tokens', 'samples', 'flops'))
    self._step_times.add(step, *counts)
    self._step, self._loss = step, float(metrics['loss'])
    self._show(now=step >= self._steps)

  @contextlib.contextmanager
  def activity(self, text):
    """Context for work other than training steps, such as saving.

    The progress line shows it; its time does not count in the rates. Yields
    whether the text was shown.
    """
    outer, self._activity = self._activity, text
    is_shown = self._show(now=self._progress.live)
    # The outer activity already excludes its time.
    excluded = contextlib.nullcontext()
    if not outer:
      excluded = self._step_times.excluded()
    try:
      with excluded:
        yield is_shown
    finally:
      self._activity = outer

  @contextlib.contextmanager
  def compiling(self, what):
    """Context for a step that compiles; a long compilation is reported."""
    self._compiled = self._step
    with (
        self.activity(f'compiling for {what}') as is_shown,
        compiling.describe(what, is_shown),
    ):
      yield

  def waiting(self, running=None):
    """Returns a context of waiting for data, see `StepTimes.waiting`."""
    return self._step_times.waiting(running)

  def note(self, text):
    """Prints a permanent line above the progress line."""
    if self._quiet:
      return
    self._progress.note(text)
    if self._progress.live:
      self._show(now=True)

  def _show(self, now=False):
    """Shows 'step 12/99  ━━╌╌╌╌╌  loss 3.210  1,234 tokens/s  1:02 left'."""
    if self._quiet:
      return False
    step, steps = self._step, self._steps
    rates = collections.defaultdict(float, self._step_times.rates())
    parts = [f'step {step:>{len(str(steps))}}/{steps}']
    if math.isfinite(self._loss):
      parts.append(f'loss {self._loss:.3f}')
    if rates['tokens_per_second']:
      parts.append(f'{rates["tokens_per_second"]:,.0f} tokens/s')
    if rates['data_wait'] > MIN_DATA_WAIT:
      parts.append(f'{rates["data_wait"]:.0%} waiting for data')
    if self._activity:
      parts.append(self._activity)
    elif rates['step_seconds'] and step < steps:
      left = (steps - step) * rates['step_seconds']
      # How many lengths are still to come is not known.
      more = ' without compiling' if step - self._compiled <= RECENT else ''
      parts.append(f'{duration(left)} left{more}')
    return self._progress.write(parts, step / max(steps, 1), 1, now)

  def machine_metrics(self, tokens):
    """Returns the rates, totals and memory so far: name -> number."""
    if self._quiet:
      return {}
    row = self._step_times.rates(self._peak)
    useful, total = map(sum, zip(self._seconds, self._step_times.seconds()))
    row |= dict(goodput=useful / max(total, 1e-9), run_seconds=total)
    row['peak_bytes'] = int(memory.peak_bytes())
    if self._total_tokens is not None:
      self._total_tokens += int(tokens)
      row['total_tokens'] = self._total_tokens
    return row

  def close(self):
    """Ends the progress line and closes the files."""
    if self._quiet:
      return
    if self._progress.drawn:
      self._show(now=True)
    self._progress.end()
    self._metrics.close()


def mean_of_finite(rows):
  """Returns the mean of each number over the steps, without skipped ones.

  `nonfinite` is the number of skipped steps; the others are nan if all steps
  were skipped.
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
