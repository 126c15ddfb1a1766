"""A lock on WORKDIR: one process trains in it at a time.

WORKDIR/run.lock only names the holder: the existence of the file is not the
lock, see `files.open_locked`.
"""

import contextlib
import os
from pathlib import Path
import socket
import sys

from locost_jax import files
from locost_jax.errors import InputError

FILE = 'run.lock'


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
    file = files.open_locked(path, parents=True)
  except BlockingIOError:
    raise InputError(
        f'{workdir}: {_holder(path)} is training here: wait for its end, or use '
        'another --workdir'
    ) from None
  except (FileExistsError, NotADirectoryError):
    raise InputError(f'{workdir}: not a directory') from None
  except OSError as error:
    if error.errno not in files.NO_LOCKS:
      raise InputError(
          f'{workdir}: cannot be written: {error.strerror}'
      ) from None
    print(
        f'{workdir}: its file system has no locks: nothing prevents another '
        'process from training here',
        file=sys.stderr,
    )
    file = open(path, 'a+b', buffering=0)
  with file:
    file.truncate(0)
    file.write(f'{os.getpid()} {socket.gethostname()}'.encode())
    try:
      yield
    finally:
      path.unlink(missing_ok=True)


def _holder(path):
  """Returns 'process PID on HOST' from the lock's file."""
  try:
    with open(path, encoding='utf-8', errors='replace') as file:
      pid, _, host = file.read(300).partition(' ')
  except OSError:  # the holder has ended
    return 'another process'
  known = pid.isdecimal() and host.isprintable()
  return f'process {pid} on {host}' if known else 'another process'
