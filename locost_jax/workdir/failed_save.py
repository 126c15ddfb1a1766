"""Cleans up after a failed save: half-written files, and tracebacks.

Orbax and TensorStore raise what went wrong, and `checkpoint.py` says it in a
line. But Orbax also logs it from each of its threads; writes of TensorStore
that fail a moment later find Orbax's event loop closed, which Python prints, as
there is nobody to raise it to; and asyncio logs those that nobody waits for any
more.
"""

import functools
import logging
import shutil
import sys
import time

from locost_jax.errors import disk_error

UNFINISHED = '.orbax-checkpoint-tmp'  # in the name of a step being written


def remove_unfinished(directory):
  """Removes what is there of steps that are not whole.

  Args:
    directory: of the checkpoints, in which nothing is being saved.
  """
  # Writes that were under way make their directories anew for a moment.
  clean = 0
  for _ in range(30):
    unfinished = list(directory.glob(f'*{UNFINISHED}*'))
    for path in unfinished:
      shutil.rmtree(path, ignore_errors=True)
    clean = 0 if unfinished else clean + 1
    if clean == 3:
      return
    time.sleep(0.1)


def quieten():
  """Filters what is logged and printed, from now on; again: nothing more."""
  logging.getLogger('absl').addFilter(_is_told)
  logging.getLogger('asyncio').addFilter(_is_no_write)
  if getattr(sys.unraisablehook, 'func', None) is not _print:
    sys.unraisablehook = functools.partial(_print, sys.unraisablehook)


def _is_told(record):
  return record.levelno < logging.ERROR or 'orbax' not in record.pathname


def _is_no_write(record):
  return not (record.exc_info and disk_error(record.exc_info[1]))


def _print(otherwise, unraisable):
  if str(unraisable.exc_value) != 'Event loop is closed':
    otherwise(unraisable)
