"""What a run tells: metrics.jsonl, TensorBoard events, a line of progress.

metrics.jsonl has one object per line, `step` and the numbers measured after
that many steps: {"step": 100, "train/loss": 3.21, ...}. A run that continues
drops the lines after the step it continues from, so each step is told once.
"""

import collections
import contextlib
import json
import math
import os
from pathlib import Path
import threading
import time

import jax
import numpy as np
from tensorboardX import SummaryWriter

from locost_jax.progress import Line
from locost_jax.progress import duration


# From this share of the time on, waiting for data is shown.
STARVED = 0.05


class Telemetry:
  """Writes metrics and shows progress; on hosts other than the first, nothing.

  On a terminal progress is one line that is drawn over; elsewhere a line is
  printed every `seconds`.
  """

  def __init__(
      self, workdir, steps, start_step=0, stream=None, seconds=30.0,
      clock=time.monotonic,
  ):
    """Opens WORKDIR/metrics.jsonl and WORKDIR/tensorboard for appending.

    Args:
      workdir: of the run; made if it is not there.
      steps: of the whole run.
      start_step: the step it continues from; what was written after is cut.
      stream: where progress goes; None: stderr.
      seconds: between lines when the stream is no terminal.
      clock: seconds since whenever.
    """
    self._quiet = jax.process_index() != 0
    self._steps, self._step = steps, start_step
    self._line = Line(stream, seconds, clock, at_once=True)
    self._clock, self._state = clock, ''
    self._loss, self._tokens, self._aside = math.nan, 0, 0.0
    self._waited = 0.0
    # (seconds spent on steps, step, tokens, seconds waited for data) of the
    # last steps.
    self._window = collections.deque([(clock(), start_step, 0, 0.0)], maxlen=64)
    if self._quiet:
      return
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / 'metrics.jsonl'
    cut_metrics(path, start_step)
    self._file = open(path, 'a', encoding='utf-8')
    # Everything at purge_step and later that an earlier process wrote is
    # hidden by TensorBoard.
    self._events = SummaryWriter(
        str(workdir / 'tensorboard'), purge_step=start_step + 1
    )

  def log(self, step, metrics):
    """Writes the numbers measured after `step` steps.

    Args:
      step: int.
      metrics: name -> number (anything float() takes); a number that is not
        finite becomes null in metrics.jsonl.
    """
    if self._quiet:
      return
    row = {'step': int(step)}
    for name, value in metrics.items():
      # The shortest digits that tell every float32 apart: 0.003, not
      # 0.003000000026077032.
      value = float(str(np.float32(value)))
      row[name] = value if math.isfinite(value) else None
      self._events.add_scalar(name, value, int(step))
    self._file.write(json.dumps(row) + '\n')
    self._file.flush()

  def sync(self):
    """Returns when all that was logged is on disk."""
    if not self._quiet:
      os.fsync(self._file.fileno())
      self._events.flush()

  def progress(self, step, loss, tokens):
    """Tells that a step is done.

    Args:
      step: the number of steps done.
      loss: of that step, nats per token.
      tokens: input and target tokens in it, without padding.
    """
    self._step, self._loss = step, float(loss)
    self._tokens += float(tokens)
    self._window.append(
        (self._clock() - self._aside, step, self._tokens, self._waited))
    self._show(now=step >= self._steps)

  @contextlib.contextmanager
  def aside(self, text):
    """Tells what is going on that is no training step, while it lasts.

    What it takes does not count in the rate of the steps.
    """
    self._state = text
    self._show(now=self._line.live)
    start = self._clock()
    try:
      yield
    finally:
      self._aside += self._clock() - start
      self._state = ''

  @contextlib.contextmanager
  def waiting(self, running=None):
    """Counts the time in it in which the devices have nothing to do.

    Args:
      running: arrays of the last step; what they still work counts as no wait.
        None: there is no such step.
    """
    start, idle = self._clock(), []
    if running is not None:
      def wait():
        jax.block_until_ready(running)
        idle.append(self._clock())
      threading.Thread(target=wait, daemon=True).start()
    yield
    now = self._clock()
    since = start if running is None else idle[0] if idle else now
    self._waited += max(now - max(start, since), 0.0)

  def note(self, text):
    """Prints a line that stays."""
    if self._quiet:
      return
    self._line.note(text)
    if self._line.live:
      self._show(now=True)

  def tokens_per_second(self):
    """Returns the rate over the last steps, 0.0 before the first."""
    (then, _, few, _), (now, _, many, _) = self._window[0], self._window[-1]
    return (many - few) / (now - then) if now > then else 0.0

  def data_wait(self):
    """Returns the share of the last steps' time without data to work on."""
    (then, *_, before), (now, *_, after) = self._window[0], self._window[-1]
    return min((after - before) / (now - then), 1.0) if now > then else 0.0

  def close(self):
    """Ends the line of progress and the files."""
    if self._quiet:
      return
    if self._line.drawn:
      self._show(now=True)
    self._line.end()
    self.sync()
    self._file.close()
    self._events.close()

  def _show(self, now=False):
    """Shows 'step 12/99  ━━╌╌╌╌╌  loss 3.210  1,234 tokens/s  1:02 left'."""
    if self._quiet:
      return
    digits = len(str(self._steps))
    parts = [f'step {self._step:>{digits}}/{self._steps}']
    if math.isfinite(self._loss):
      parts.append(f'loss {self._loss:.3f}')
    if self.tokens_per_second():
      parts.append(f'{self.tokens_per_second():,.0f} tokens/s')
    if self.data_wait() > STARVED:
      parts.append(f'{self.data_wait():.0%} waiting for data')
    if self._state or self._time_left():
      parts.append(self._state or self._time_left())
    self._line.show(parts, self._step / max(self._steps, 1), 1, now)

  def _time_left(self):
    (then, few, *_), (now, many, *_) = self._window[0], self._window[-1]
    if many <= few or self._step >= self._steps:
      return ''
    left = (self._steps - self._step) * (now - then) / (many - few)
    return f'{duration(left)} left'


def cut_metrics(path, step):
  """Drops the lines after a step, and a last line that was cut off.

  The file is replaced in one move: there is no moment without it.

  Args:
    path: of metrics.jsonl; may not exist.
    step: the last step whose lines stay.
  """
  path = Path(path)
  if not path.exists():
    return
  kept = []
  for line in path.read_bytes().split(b'\n')[:-1]:
    try:
      row = json.loads(line)
    except ValueError:
      continue
    if row['step'] <= step:
      kept.append(line + b'\n')
  temporary = path.with_suffix('.tmp')
  temporary.write_bytes(b''.join(kept))
  temporary.replace(path)


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
