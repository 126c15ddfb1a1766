"""stdin, stdout and stderr that are closed, full, or without a reader."""

import contextlib
import os
import select
import sys


def open_closed():
  """Makes all three usable, so that no line lands where it does not belong.

  A file that is opened while one of them is closed takes its number, and is
  written by whoever writes to the stream; Python prints on stdout what is for a
  stderr that is not there. `sys.stdout` stays None if it is closed. Characters
  that a stream's encoding lacks are written as escapes.
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
  """Ends the program quietly, as SIGPIPE would, when `| head` has enough."""
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
  """Drops what streams without a reader still hold; whether there is one."""
  found = False
  for stream in sys.stdout, sys.stderr:
    if stream is not None and _has_no_reader(stream.fileno()):
      found = True
      os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
  return found


def _has_no_reader(number):
  poll = select.poll()
  poll.register(number, 0)  # errors are reported whatever is asked for
  return any(event & select.POLLERR for _, event in poll.poll(0))
