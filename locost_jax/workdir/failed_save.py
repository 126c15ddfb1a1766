"""Cleans up after a failed save: partial files, and tracebacks.

Orbax and TensorStore raise the error, and `checkpointer.py` reports it in one
line. But Orbax also logs it from each of its threads. TensorStore writes that
fail later find Orbax's event loop closed, which Python prints as an unraisable
exception, and asyncio logs abandoned writes.
"""

import functools
import logging
import shutil
import sys
import time

from locost_jax.errors import disk_error

UNFINISHED = '.orbax-checkpoint-tmp'  # in the name of a step being written


def remove_unfinished(directory):
  """Removes the partial files of unfinished steps.

  Args:
    directory: WORKDIR/checkpoints; no save may be in progress.
  """
  # Pending writes may make their directories again for a moment.
  clean = 0
  for _ in range(30):
    unfinished = list(directory.glob(f'*{UNFINISHED}*'))
    for path in unfinished:
      shutil.rmtree(path, ignore_errors=True)
    clean = 0 if unfinished else clean + 1
    if clean == 3:
      return
    time.sleep(0.1)


def silence_logs():
  """Filters the logs and tracebacks of failed saves; may be called repeatedly."""
  logging.getLogger('absl').addFilter(_is_no_orbax_error)
  logging.getLogger('asyncio').addFilter(_is_no_write)
  if getattr(sys.unraisablehook, 'func', None) is not _print:
    sys.unraisablehook = functools.partial(_print, sys.unraisablehook)


def _is_no_orbax_error(record):
  return record.levelno < logging.ERROR or 'orbax' not in record.pathname


def _is_no_write(record):
  return not (record.exc_info and disk_error(record.exc_info[1]))


def _print(otherwise, unraisable):
  if str(unraisable.exc_value) != 'Event loop is closed':
    otherwise(unraisable)
