"""Ends a process that hangs, and prints what it was waiting for.

A process can wait forever for a dead file server, device or host, while the
scheduler still sees it running. The watchdog is a thread that measures the time
since the last heartbeat. After the time limit it prints the stacks of all
threads to stderr and ends the process with AGAIN, so that its caller can start
it again.
"""

import contextlib
import faulthandler
import os
import sys
import threading
import time

from locost_jax.errors import AGAIN

# JAX waits here for XLA to compile, which can take long but ends.
_COMPILER = os.path.join('jax', '_src', 'compiler.py')

_running = []


def heartbeat():
  """Resets the time of every running watchdog; cheap, from any thread."""
  for watchdog in _running:
    watchdog.heartbeat()


def is_compiling(thread):
  """Whether a thread, given by its identifier, waits for the compiler."""
  frame = sys._current_frames().get(thread)
  while frame is not None:
    if frame.f_code.co_filename.endswith(_COMPILER):
      return True
    frame = frame.f_back
  return False


class Watchdog:
  """Context that ends the process after too long without a heartbeat."""

  def __init__(self, seconds):
    """Takes the limit, train.timeout; 0: none."""
    self._seconds = seconds
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

  def heartbeat(self):
    """Resets the time without a heartbeat."""
    self._silent, self._since = 0.0, time.time()

  @contextlib.contextmanager
  def waiting_for(self, what):
    """Context that names the current wait; entering it is a heartbeat."""
    before, self._what = self._what, what
    self.heartbeat()
    try:
      yield
    finally:
      self._what = before
      self.heartbeat()

  def _watch(self):
    # Add at most two ticks a round: time in which the machine slept or the
    # process was stopped does not count.
    tick = min(self._seconds / 10, 1.0)
    last = time.monotonic()
    while not self._ended.wait(tick):
      now = time.monotonic()
      self._silent += min(now - last, 2 * tick)
      last = now
      if is_compiling(self._watched):
        self.heartbeat()
      if self._silent >= self._seconds:
        reporter = threading.Thread(target=self._report, daemon=True)
        reporter.start()
        reporter.join(10)  # stderr itself may hang
        os._exit(AGAIN)

  def _report(self):
    since = time.strftime('%H:%M:%S', time.localtime(self._since))
    _write(
        f'\nerror: waiting for {self._what} since {since}, longer than '
        f'train.timeout={self._seconds} seconds; the stacks of all threads:\n'
    )
    faulthandler.dump_traceback(file=2, all_threads=True)
    _write(
        f'ended with status {AGAIN}; the same command continues from the last '
        'checkpoint\n'
    )


def _write(text):
  os.write(2, text.encode())


def end(reason):
  """Ends the process at once, with one line."""
  _write(f'error: {reason}; ended with status {AGAIN}\n')
  os._exit(AGAIN)


@contextlib.contextmanager
def ending_after(seconds, what):
  """Context that ends the process with a message if it takes too long.

  For waits inside JAX before a run begins, whose stacks show nothing.
  """

  timer = threading.Timer(seconds, end, [f'waited {seconds:g} s for {what}'])
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()
