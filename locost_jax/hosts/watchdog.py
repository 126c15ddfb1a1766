"""Ends a process that hangs, and prints what it was waiting for.

A read from a dead file server, a device or another host that answers no more:
such a wait has no end, and a scheduler sees a process that runs. The watchdog
is a thread that counts the time without a sign of life; after too much of it
the stacks of all threads go to stderr and the process ends with STATUS, so that
whoever started it can start it again.
"""

import contextlib
import faulthandler
import os
import sys
import threading
import time

STATUS = 75  # EX_TEMPFAIL of sysexits.h: try again
# Where JAX waits for XLA to compile: a wait that may be long and does end.
_COMPILER = os.path.join('jax', '_src', 'compiler.py')

_running = []


def alive():
  """A sign of life, from any thread: something was done. Costs nothing."""
  for watchdog in _running:
    watchdog.alive()


class Watchdog:
  """Counts the seconds without a sign of life while it is entered."""

  def __init__(self, seconds, key='train.timeout'):
    """Starts nothing yet.

    Args:
      seconds: without a sign of life that end the process; 0: never.
      key: the config key it comes from, to name it.
    """
    self._seconds, self._key = seconds, key
    self._what, self._since = 'the start', time.time()
    self._silent = 0.0
    self._ended = threading.Event()
    self._watched = threading.get_ident()

  def __enter__(self):
    _running.append(self)
    if self._seconds:
      threading.Thread(target=self._watch, name='watchdog', daemon=True).start()
    return self

  def __exit__(self, *_):
    _running.remove(self)
    self._ended.set()

  def alive(self):
    """Resets the time without a sign of life."""
    self._silent, self._since = 0.0, time.time()

  @contextlib.contextmanager
  def waiting_for(self, what):
    """Says what is waited for in this context; entering is a sign of life."""
    before, self._what = self._what, what
    self.alive()
    try:
      yield
    finally:
      self._what = before
      self.alive()

  def _watch(self):
    # Ticks are counted, not the clock: a machine that slept or a process that
    # was stopped has not been waiting, however late it is now.
    tick = min(self._seconds / 10, 1.0)
    last = time.monotonic()
    while not self._ended.wait(tick):
      now = time.monotonic()
      self._silent += min(now - last, 2 * tick)
      last = now
      if self._is_compiling():
        self.alive()
      if self._silent >= self._seconds:
        teller = threading.Thread(target=self._tell, daemon=True)
        teller.start()
        teller.join(10)  # stderr itself may be what hangs
        os._exit(STATUS)

  def _is_compiling(self):
    frame = sys._current_frames().get(self._watched)
    while frame is not None:
      if frame.f_code.co_filename.endswith(_COMPILER):
        return True
      frame = frame.f_back
    return False

  def _tell(self):
    since = time.strftime('%H:%M:%S', time.localtime(self._since))
    os.write(
        2,
        (
            f'\nerror: waiting for {self._what} since {since}, longer than '
            f'{self._key}={self._seconds} seconds; the stacks of all threads:\n'
        ).encode(),
    )
    faulthandler.dump_traceback(file=2, all_threads=True)
    os.write(
        2,
        f'ended with status {STATUS}; the same command continues from '
        'the last checkpoint\n'.encode(),
    )


@contextlib.contextmanager
def ending_after(seconds, what):
  """Ends the process with a line if this context takes longer.

  For waits inside JAX before there is a run, whose stacks show nothing.

  Args:
    seconds: that it may take.
    what: it waits for, to say so.
  """

  def end():
    os.write(
        2,
        (
            f'error: waited {seconds:g} s for {what}; ended with status '
            f'{STATUS}\n'
        ).encode(),
    )
    os._exit(STATUS)

  timer = threading.Timer(seconds, end)
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()
