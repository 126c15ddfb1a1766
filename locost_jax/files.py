"""Atomic writes: a file on disk is complete or does not exist."""

import fcntl
import hashlib
import os
from pathlib import Path
import stat

from locost_jax.errors import InputError

_BLOCK = 1 << 22  # bytes read at once
_KINDS = {
    stat.S_IFDIR: 'a directory',
    stat.S_IFIFO: 'a named pipe',
    stat.S_IFSOCK: 'a socket',
    stat.S_IFCHR: 'a device',
    stat.S_IFBLK: 'a device',
}


def check_regular(path, name=None):
  """Raises an InputError if a path exists and is not a regular file.

  Args:
    path: the file; links are followed.
    name: the file's name in the message; None: the path.
  """
  try:
    mode = os.stat(path).st_mode
  except FileNotFoundError:
    return
  except (OSError, ValueError) as error:
    reason = getattr(error, 'strerror', None) or str(error)
    raise InputError(f'{name or path}: {reason}') from None
  check_mode(mode, name or path)


def check_mode(mode, name):
  """Raises an InputError unless a mode is that of a regular file.

  Reading a pipe may wait for ever, and a device may never end. Replacing one
  would break other programs that use it.

  Args:
    mode: `st_mode`.
  """
  if not stat.S_ISREG(mode):
    kind = _KINDS.get(stat.S_IFMT(mode), 'no file')
    raise InputError(f'{name}: is {kind}, expected a regular file')


def open_locked(path):
  """Opens a file to read and append bytes, locked until it is closed.

  The operating system holds the lock (flock), and releases it whenever the
  process ends, also after a crash.

  Raises:
    BlockingIOError: another process holds the lock.
    OSError: the file cannot be opened, or its file system has no locks.
  """
  while True:
    file = open(path, 'a+b', buffering=0)
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      # The former holder may have removed the file after this process opened it.
      if os.fstat(file.fileno()).st_nlink:
        file.seek(0)
        return file
    except OSError:
      file.close()
      raise
    file.close()


def write(path, content):
  """Writes a file so that a crash leaves the old one or the new one.

  Args:
    path: the file; missing directories are created.
    content: bytes; or str, written as UTF-8 with unchanged line ends.

  Raises:
    InputError: the path exists and is not a regular file.
    OSError: the file cannot be written; `filename` is the path.
  """
  data = content.encode() if isinstance(content, str) else content
  path = Path(path)
  check_regular(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  # A name has at most 255 bytes, so shorten it before adding a suffix.
  temporary = path.with_name(f'{path.name[:60]}.tmp{os.getpid()}')
  try:
    with open(temporary, 'wb') as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  except OSError as error:
    error.filename = str(path)
    error.filename2 = None
    raise
  finally:
    temporary.unlink(missing_ok=True)
  sync(path.parent)


def sync(path):
  """Syncs a file, or the names in a directory, to disk (fsync)."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def describe(file):
  """Returns 'SIZE SHA-256' of an open binary file, or of bytes.

  Takes 0.8 s per GiB on a core with SHA instructions.
  """
  if isinstance(file, bytes):
    return f'{len(file)} {hashlib.sha256(file).hexdigest()}'
  digest, size = hashlib.sha256(), 0
  while block := file.read(_BLOCK):
    digest.update(block)
    size += len(block)
  return f'{size} {digest.hexdigest()}'


_MAX_NAME = 255  # bytes of a file name, on nearly every file system


def check_directory(name, path):
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
