"""Removes checkpoints so that a kill never leaves one half removed.

A step is renamed before its files are deleted. Its new name is that of an
unfinished step, so the next start of the run removes what a kill left.
"""

import contextlib
from pathlib import Path
import shutil

import jax

from locost_jax.workdir import failed_save

_REMOVED = f'{failed_save.UNFINISHED}-removed'


def remove(path):
  """Removes a checkpoint; does nothing if it does not exist."""
  path = Path(path)
  with contextlib.suppress(FileNotFoundError):
    path = path.rename(f'{path}{_REMOVED}')
  shutil.rmtree(path, ignore_errors=True)


def list_unfinished(directory):
  """Returns the steps whose save was interrupted, in order.

  Args:
    directory: WORKDIR/checkpoints; need not exist.
  """
  names = {
      path.name.partition(failed_save.UNFINISHED)[0]
      for path in Path(directory).glob(f'*{failed_save.UNFINISHED}*')
      if not path.name.endswith(_REMOVED)
  }
  return sorted(int(name) for name in names if name.isdigit())


class Deleter:
  """Removes steps for Orbax, whose own deleter deletes file by file in place."""

  def __init__(self, directory):
    """Removes nothing yet.

    Args:
      directory: WORKDIR/checkpoints.
    """
    self._directory = Path(directory)

  def delete(self, step):
    """Removes a step, on the first host."""
    if jax.process_index() == 0:
      remove(self._directory / str(step))

  def delete_steps(self, steps):
    """Removes several steps."""
    for step in steps:
      self.delete(step)

  def close(self):
    """Does nothing: nothing is pending."""
