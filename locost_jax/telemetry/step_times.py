"""Measures how long a run's steps take and how long they wait for data.

The devices run one step while the host prepares the next, so the host's clock
alone does not show how long a step takes. Time for other work (compiling,
evaluating, saving) counts only while a step still runs; waiting for data counts
only while no step runs.
"""

import collections
import contextlib
import queue
import threading
from typing import NamedTuple

import jax


class _Mark(NamedTuple):
  """Sums at the end of a step."""

  seconds: float  # spent on steps
  step: int
  tokens: int = 0
  samples: int = 0
  flops: float = 0.0
  waited: float = 0.0  # seconds


class StepTimes:
  """Rates over the last 64 steps, or fewer at the start."""

  def __init__(self, clock, start_step):
    """Starts to measure.

    Args:
      clock: function that returns seconds, like time.monotonic.
      start_step: the step that the run resumes from.
    """
    self._clock, self._watch = clock, _Watch(clock)
    self._excluded = self._waited = 0.0
    self._marks = collections.deque([_Mark(clock(), start_step)], maxlen=64)

  def add(self, step, tokens, samples, flops):
    """Counts a finished step."""
    last = self._marks[-1]
    self._marks.append(
        _Mark(
            self._clock() - self._excluded,
            step,
            last.tokens + int(tokens),
            last.samples + int(samples),
            last.flops + float(flops),
            self._waited,
        )
    )

  @contextlib.contextmanager
  def excluded(self, running):
    """Context whose time does not count, except while a step still runs.

    Args:
      running: output arrays of that step, or None.
    """
    start, done = self._clock(), self._watch.when(running)
    try:
      yield
    finally:
      self._excluded += self._idle(start, done)

  @contextlib.contextmanager
  def waiting(self, running):
    """Context in which the host waits for data; `running` as in `excluded`."""
    start, done = self._clock(), self._watch.when(running)
    yield
    self._waited += self._idle(start, done)

  def _idle(self, start, done):
    """Returns the seconds since `start` in which no step ran.

    Args:
      done: list from `_Watch.when`, or None.
    """
    now = self._clock()
    since = start if done is None else done[0] if done else now
    return max(now - max(start, since), 0.0)

  def _span(self):
    """Returns the first mark, the last mark and the seconds between them."""
    first, last = self._marks[0], self._marks[-1]
    return first, last, max(last.seconds - first.seconds, 0.0)

  def tokens_per_second(self):
    """Returns tokens per second, 0.0 before the first step."""
    first, last, seconds = self._span()
    return (last.tokens - first.tokens) / seconds if seconds else 0.0

  def data_wait(self):
    """Returns the share of the time in which the devices waited for data."""
    first, last, seconds = self._span()
    return min((last.waited - first.waited) / seconds, 1.0) if seconds else 0.0

  def step_seconds(self):
    """Returns the mean seconds per step, 0.0 before the first step."""
    first, last, seconds = self._span()
    return seconds / max(last.step - first.step, 1)

  def rates(self, peak):
    """Returns the known rates: name -> number.

    Args:
      peak: peak FLOP/s of all devices together, or None.
    """
    first, last, seconds = self._span()
    if not seconds:
      return {}
    row = dict(
        tokens_per_second=self.tokens_per_second(),
        samples_per_second=(last.samples - first.samples) / seconds,
        step_seconds=self.step_seconds(),
        data_wait=self.data_wait(),
    )
    if peak and last.flops > first.flops:
      row['mfu'] = (last.flops - first.flops) / seconds / peak
    return row

  def end(self):
    """Ends the thread that watches the steps."""
    self._watch.end()


class _Watch:
  """Records when steps finish, in a thread that starts when first needed.

  The main thread cannot do this, because it waits for data or compiles.
  """

  def __init__(self, clock):
    self._clock, self._queue, self._thread = clock, None, None

  def when(self, arrays):
    """Returns a list that gets the time at which the arrays are ready.

    Args:
      arrays: output of a step; None: the result is None.
    """
    if arrays is None:
      return None
    if self._queue is None:
      self._queue = queue.SimpleQueue()
      self._thread = threading.Thread(target=self._run, daemon=True)
      self._thread.start()
    done = []
    self._queue.put((arrays, done))
    return done

  def end(self):
    """Ends the thread.

    If a thread frees arrays while Python exits, the process aborts.
    """
    if self._queue is not None:
      self._queue.put((None, None))
      self._thread.join(5)  # with a limit, because the devices may hang

  def _run(self):
    while True:
      arrays, done = self._queue.get()
      if done is None:
        return
      try:
        jax.block_until_ready(arrays)
      except Exception:  # pylint: disable=broad-exception-caught
        pass  # the reader of the arrays gets the same error
      done.append(self._clock())
