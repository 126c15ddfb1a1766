"""A lock on WORKDIR: one process trains in it at a time.

The operating system holds the lock (flock) and releases it whenever the process
ends, also after a crash. WORKDIR/run.lock only names the holder: the existence
of the file is not the lock.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
import socket
import sys

from locost_jax.errors import InputError

FILE = 'run.lock'
# Errors of a file system without locks.
_NO_LOCKS = errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP


@contextlib.contextmanager
def hold(workdir):
  """A context that holds the lock.

  Args:
    workdir: WORKDIR; made if missing.

  Raises:
    InputError: another process holds the lock (the message names it), or
      WORKDIR cannot be written.
  """
  path = Path(workdir) / FILE
  try:
    file = _open(path)
  except (FileExistsError, NotADirectoryError):
    raise InputError(f'{workdir}: not a directory') from None
  except OSError as error:
    raise InputError(
        f'{workdir}: cannot be written: {error.strerror}'
    ) from None
  with file:
    file.truncate(0)
    file.write(f'{os.getpid()} {socket.gethostname()}')
    file.flush()
    try:
      yield
    finally:
      path.unlink(missing_ok=True)


def _open(path):
  """Returns the file at `path`, locked."""
  while True:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, 'a+', encoding='utf-8', errors='replace')
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      if _is_at(file, path):
        return file
      # The holder ended and removed the file after this process opened it.
      file.close()
    except BlockingIOError:
      raise InputError(
          f'{path.parent}: {_holder(file)} is training here: wait for its end, '
          'or use another --workdir'
      ) from None
    except OSError as error:
      if error.errno not in _NO_LOCKS:
        raise
      print(
          f'{path.parent}: its file system has no locks: nothing prevents '
          'another process from training here',
          file=sys.stderr,
      )
      return file


def _is_at(file, path):
  """Whether a path still leads to an open file."""
  try:
    return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
  except FileNotFoundError:
    return False


def _holder(file):
  """Returns 'process PID on HOST' from the lock's file, and closes the file."""
  with file:
    file.seek(0)
    pid, _, host = file.read(300).partition(' ')
  known = pid.isdecimal() and host.isprintable()
  return f'process {pid} on {host}' if known else 'another process'
