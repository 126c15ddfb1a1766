"""Handles stdin, stdout and stderr that are closed or have no reader."""

import contextlib
import os
import select
import sys


def open_closed():
  """Opens closed streams on the null device, so that no output goes elsewhere.

  A file opened while a stream is closed would get the stream's number, and the
  stream's output. If stderr is closed, Python prints its output on stdout.
  `sys.stdout` stays None if it is closed. Characters that a stream's encoding
  lacks are written as escapes.
  """
  for number in range(3):
    try:
      os.fstat(number)
    except OSError:
      os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
  if sys.stderr is None:
    sys.stderr = open(os.devnull, 'w', encoding='utf-8')
  for stream in sys.stdout, sys.stderr:
    if hasattr(stream, 'reconfigure'):
      stream.reconfigure(errors='backslashreplace')


@contextlib.contextmanager
def end_with_the_reader():
  """Ends the program quietly, as SIGPIPE would, when `| head` stops reading."""
  try:
    try:
      yield
    finally:
      _flush()
  except BrokenPipeError:
    if not _silence_broken():
      raise
    sys.exit(141)


def _flush():
  for stream in sys.stdout, sys.stderr:
    if stream is not None and not stream.closed:
      stream.flush()


def _silence_broken():
  """Drops the buffers of streams without a reader; returns if there are any."""
  found = False
  for stream in sys.stdout, sys.stderr:
    if stream is not None and _has_no_reader(stream.fileno()):
      found = True
      os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
  return found


def _has_no_reader(number):
  poll = select.poll()
  poll.register(number, 0)  # poll reports errors even for an empty mask
  return any(event & select.POLLERR for _, event in poll.poll(0))
