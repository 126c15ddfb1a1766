"""The progress line of a run: step, loss, rate and time left."""

import contextlib
import math

from locost_jax.command_line.progress import duration

# The line shows the time spent waiting for data above this share.
MIN_DATA_WAIT = 0.05


class ProgressLine:
  """Shows 'step 12/99  ━━╌╌╌╌╌  loss 3.210  1,234 tokens/s  1:02 left'."""

  def __init__(self, line, step_times, steps, start_step, is_shown=True):
    """Shows nothing yet.

    Args:
      line: a `progress.Line`.
      step_times: a `step_times.StepTimes`.
      start_step: the step that the run resumes from.
      is_shown: False: never shows anything, as on all hosts but the first.
    """
    self._line, self._times = line, step_times
    self._steps, self._step = steps, start_step
    self._loss, self._activity, self._is_shown = math.nan, '', is_shown

  def update(self, step, loss):
    """Shows a finished step, unless a line was shown a moment ago."""
    self._step, self._loss = step, float(loss)
    self.show(now=step >= self._steps)

  @contextlib.contextmanager
  def during(self, activity):
    """Context in which the line shows an activity instead of the time left.

    Yields:
      (whether this context is inside another activity, whether the activity was
      shown).
    """
    outer, self._activity = self._activity, activity
    is_shown = self.show(now=self._line.live)
    try:
      yield bool(outer), is_shown
    finally:
      self._activity = outer

  def show(self, now=False):
    """Shows the line, unless one was shown a moment ago and `now` is False.

    Returns:
      Whether it was shown.
    """
    if not self._is_shown:
      return False
    digits = len(str(self._steps))
    parts = [f'step {self._step:>{digits}}/{self._steps}']
    if math.isfinite(self._loss):
      parts.append(f'loss {self._loss:.3f}')
    if self._times.tokens_per_second():
      parts.append(f'{self._times.tokens_per_second():,.0f} tokens/s')
    if self._times.data_wait() > MIN_DATA_WAIT:
      parts.append(f'{self._times.data_wait():.0%} waiting for data')
    if self._activity or self._time_left():
      parts.append(self._activity or self._time_left())
    return self._line.show(parts, self._step / max(self._steps, 1), 1, now)

  def _time_left(self):
    seconds = self._times.step_seconds()
    if not seconds or self._step >= self._steps:
      return ''
    return f'{duration((self._steps - self._step) * seconds)} left'
