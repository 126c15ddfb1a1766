"""Ends a test that waits: for findings that were hangs."""

import contextlib
import signal


@contextlib.contextmanager
def time_limit(seconds=60):
  """Raises TimeoutError in this process if its context takes longer."""

  def end(*_):
    raise TimeoutError(f'took longer than {seconds} seconds')

  before = signal.signal(signal.SIGALRM, end)
  signal.alarm(seconds)
  try:
    yield
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
