"""Ends a test that waits: for findings that were hangs."""

import contextlib
import signal

import pytest


@contextlib.contextmanager
def time_limit(seconds=60):
  """Fails the test of this process if its context takes longer."""

  def end(*_):
    # No Exception, which the code under test might take for its own.
    pytest.fail(f'took longer than {seconds} seconds')

  before = signal.signal(signal.SIGALRM, end)
  signal.alarm(seconds)
  try:
    yield
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
