"""Whether files can be written into a directory that may not exist yet."""

import os

from locost_jax.errors import InputError

_NAME = 255  # bytes of a name, on nearly every file system


def check(name, path):
  """Raises an InputError unless a directory is there or can be made.

  Nothing is made.

  Args:
    name: the flag or key, to name it.
    path: of the directory.
  """
  where = f'{name}={path}'
  path = os.path.abspath(path)
  for part in path.split(os.sep):
    if len(os.fsencode(part)) > _NAME:
      raise InputError(
          f'{name}={part[:20]}...: a name in it is longer than {_NAME} bytes: '
          'expected a shorter path'
      )
  there = path
  while not os.path.lexists(there):
    there = os.path.dirname(there)
  if not os.path.isdir(there):
    raise InputError(
        f'{where}: {os.path.relpath(there)} is no directory: expected a '
        'directory, or one that can be made'
    )
  # Root may write anywhere by its rights, but /proc takes no directory.
  if not os.access(there, os.W_OK | os.X_OK) or there.startswith('/proc'):
    raise InputError(
        f'{where}: {there} cannot be written to: expected a directory to '
        'write to'
    )
