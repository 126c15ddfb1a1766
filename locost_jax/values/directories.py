"""Checks that files can be written to a directory, which may not exist yet."""

import os

from locost_jax.errors import InputError

_MAX_NAME = 255  # bytes of a file name, on nearly every file system


def check(name, path):
  """Raises an InputError unless a directory is writable or can be created.

  Creates nothing.

  Args:
    name: the flag or key, for the error message.
  """
  where = f'{name}={path}'
  path = os.path.abspath(path)
  for part in path.split(os.sep):
    if len(os.fsencode(part)) > _MAX_NAME:
      raise InputError(
          f'{name}={part[:20]}...: a name in it is longer than {_MAX_NAME} '
          'bytes: expected a shorter path'
      )
  existing = path
  while not os.path.lexists(existing):
    existing = os.path.dirname(existing)
  if not os.path.isdir(existing):
    raise InputError(
        f'{where}: {os.path.relpath(existing)} is not a directory: expected a '
        'directory, or one that can be created'
    )
  # For root, os.access allows /proc, where no directory can be created.
  if not os.access(existing, os.W_OK | os.X_OK) or existing.startswith('/proc'):
    raise InputError(
        f'{where}: {existing} is not writable: expected a writable directory'
    )
