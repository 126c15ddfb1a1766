"""A guard of tests against hanging."""

import contextlib
import signal

import pytest


@contextlib.contextmanager
def within(seconds=60):
  """In this context the test fails after a number of seconds.

  The failure is no `Exception`: code under test that catches those does not
  catch it.
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
