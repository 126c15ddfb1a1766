"""How long the steps of a run take, and how long they wait for data.

The devices work on one step while the host prepares the next, so the host's
clock alone does not show how long a step took. Time that is no training
(compiling, evaluating, saving) is left out, except while a step still ran.
Waiting for data counts only while no step ran.
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
  """Rates over the last steps, 64 at most."""

  def __init__(self, clock, start_step):
    """Begins to count.

    Args:
      clock: seconds since whenever.
      start_step: the step that the run continues from.
    """
    self._clock, self._watch = clock, _Watch(clock)
    self._aside = self._waited = 0.0
    self._marks = collections.deque([_Mark(clock(), start_step)], maxlen=64)

  def add(self, step, tokens, samples, flops):
    """Counts a step that is done.

    Args:
      step: the number of steps done.
      tokens: in it.
      samples: documents in it.
      flops: operations in it.
    """
    last = self._marks[-1]
    self._marks.append(
        _Mark(
            self._clock() - self._aside,
            step,
            last.tokens + int(tokens),
            last.samples + int(samples),
            last.flops + float(flops),
            self._waited,
        )
    )

  @contextlib.contextmanager
  def aside(self, running):
    """In this context there is no training, except a step that still runs.

    Args:
      running: arrays of that step, or None.
    """
    start, done = self._clock(), self._watch.when(running)
    try:
      yield
    finally:
      self._aside += self._idle(start, done)

  @contextlib.contextmanager
  def waiting(self, running):
    """In this context the host waits for data; `running` as in `aside`."""
    start, done = self._clock(), self._watch.when(running)
    yield
    self._waited += self._idle(start, done)

  def _idle(self, start, done):
    """Returns the seconds since `start` without a step.

    Args:
      start: time.
      done: of `_Watch.when`.
    """
    now = self._clock()
    since = start if done is None else done[0] if done else now
    return max(now - max(start, since), 0.0)

  def _span(self):
    """Returns the marks before and after the last steps, and the seconds."""
    first, last = self._marks[0], self._marks[-1]
    return first, last, max(last.seconds - first.seconds, 0.0)

  def tokens_per_second(self):
    """Returns the rate, 0.0 before the first step."""
    first, last, seconds = self._span()
    return (last.tokens - first.tokens) / seconds if seconds else 0.0

  def data_wait(self):
    """Returns the share of the time without data to work on."""
    first, last, seconds = self._span()
    return min((last.waited - first.waited) / seconds, 1.0) if seconds else 0.0

  def step_seconds(self):
    """Returns the time of a step, 0.0 before the first."""
    first, last, seconds = self._span()
    return seconds / max(last.step - first.step, 1)

  def rates(self, peak):
    """Returns the rates that are known: name -> number.

    Args:
      peak: FLOP/s of all devices together, or None.
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
    """Ends its thread."""
    self._watch.end()


class _Watch:
  """Records when steps are done, in one thread, made when it is first needed.

  The main thread cannot look: it waits for data or compiles.
  """

  def __init__(self, clock):
    self._clock, self._queue, self._thread = clock, None, None

  def when(self, arrays):
    """Returns a list that gets the time at which the arrays are there.

    None for arrays that are None.
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

    Python at its own end aborts a process in which a thread drops arrays.
    """
    if self._queue is not None:
      self._queue.put((None, None))
      self._thread.join(5)  # not for ever: the devices may hang

  def _run(self):
    while True:
      arrays, done = self._queue.get()
      if done is None:
        return
      try:
        jax.block_until_ready(arrays)
      except Exception:  # pylint: disable=broad-exception-caught
        pass  # whoever reads the arrays gets it too
      done.append(self._clock())
