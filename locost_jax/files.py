"""Files on disk: written whole or not at all, appended to, and locked."""

import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path
import stat

from locost_jax.errors import disk_error
from locost_jax.errors import InputError

# Errors of a file system without locks.
NO_LOCKS = errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP
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

  Links are followed. The message has `name`, or else the path.
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
  """
  if not stat.S_ISREG(mode):
    kind = _KINDS.get(stat.S_IFMT(mode), 'no file')
    raise InputError(f'{name}: is {kind}, expected a regular file')


def write(path, content):
  """Writes a file so that a crash leaves the old one or the new one.

  Missing directories are created. A str is written as UTF-8 with unchanged line
  ends. The `filename` of an OSError is the path.
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

  Creates nothing. `name` is the flag or key, for the error message.
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


def open_locked(path, wait=False, parents=False):
  """Opens a file for appending, and locks it until it is closed.

  The operating system holds the lock (flock) and releases it whenever the
  process ends, also after a crash.

  Args:
    wait: whether to wait while another process holds the lock.
    parents: whether to make missing directories.

  Returns:
    An unbuffered binary file, at its beginning.

  Raises:
    BlockingIOError: another process holds the lock.
    OSError: the file cannot be opened; or its file system has no locks.
  """
  while True:
    if parents:
      Path(path).parent.mkdir(parents=True, exist_ok=True)
    file = open(path, 'a+b', buffering=0)
    try:
      fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
      if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
        file.seek(0)
        return file
    except FileNotFoundError:
      pass  # the former holder removed the file after it was opened here
    except BaseException:
      file.close()
      raise
    file.close()


class Appended:
  """A file of whole records, opened for appending, that survives a full disk.

  Bytes that cannot be written stay in memory; the next write continues with
  them.

  Attributes:
    problem: why the last write failed, in a few words, or ''.
  """

  def __init__(self, file):
    """Takes an unbuffered binary file."""
    self._file, self._pending, self.problem = file, b'', ''

  def write(self, record):
    """Appends pending bytes and the record; keeps what cannot be written."""
    self._pending += record
    try:
      while self._pending:
        written = self._file.write(self._pending)
        self._pending = self._pending[written:]
      self.problem = ''
    except OSError as error:
      self.problem = disk_error(error)

  def sync(self):
    """Writes pending bytes and flushes the file to disk, if possible."""
    self.write(b'')
    try:
      os.fsync(self._file.fileno())
    except OSError as error:
      self.problem = disk_error(error)

  def close(self):
    """Syncs and closes the file."""
    self.sync()
    self._file.close()


class Journal(Appended):
  """A JSONL file that is written row by row, and continued after a kill.

  With a header, its first line is a JSON object: everything that the rows
  depend on. A file with another header begins anew.

  Attributes:
    lines: the complete lines of an earlier process, bytes without the header.
    torn: bytes after the last of them.
  """

  def __init__(self, file, header=None):
    """Reads the file, and changes nothing before `keep`.

    Args:
      file: unbuffered and opened in mode 'a+b', as by `open_locked`.
    """
    super().__init__(file)
    file.seek(0)
    *self.lines, self.torn = file.read().split(b'\n')
    self._header, self._front = header, []
    if header is not None:
      try:
        is_same = bool(self.lines) and json.loads(self.lines[0]) == header
      except (ValueError, RecursionError):
        is_same = False
      self._front = self.lines[:is_same]
      self.lines = self.lines[1:] if is_same else []

  def keep(self, count=None):
    """Cuts the file after `count` of the lines; None: after all of them."""
    self.lines = self.lines[:count]
    kept = self._front + self.lines
    try:
      self._file.truncate(sum(len(line) + 1 for line in kept))
    except OSError as error:
      self.problem = disk_error(error)
      return
    if self._header is not None and not self._front:
      self.add(self._header)

  def add(self, row):
    """Appends a JSON object; `problem` says whether that failed."""
    self.write(json.dumps(row).encode() + b'\n')
