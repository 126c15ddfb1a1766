"""A time limit for tests that may hang."""

import contextlib
import signal

import pytest


@contextlib.contextmanager
def within(seconds=300):
  """Fails the test if the context takes longer than a number of seconds.

  The failure is not an `Exception`, so code under test cannot catch it by
  accident.
  """

  def fail(*_):
    pytest.fail(f'not done within {seconds} s')

  before = signal.signal(signal.SIGALRM, fail)
  signal.setitimer(signal.ITIMER_REAL, seconds)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
