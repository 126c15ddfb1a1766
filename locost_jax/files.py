"""Files on disk: read with limits, written whole, appended to, and locked.

Configs, vocabularies, manifests and weights come from downloads and from other
people's disks. Only regular files are opened, so that a pipe never blocks a
command. JSON is limited in size (before it is read) and in depth, and every
value that is used is checked against a `config.kinds.Kind`. An error is one
line: file, key, value, and what was expected.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path
import re
import stat

from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.errors import visible

# Errors of a file system without locks.
NO_LOCKS = errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP
_MAX_NAME = 255  # bytes of a file name, on nearly every file system
_KINDS = {
    stat.S_IFDIR: 'a directory',
    stat.S_IFIFO: 'a named pipe',
    stat.S_IFSOCK: 'a socket',
    stat.S_IFCHR: 'a device',
    stat.S_IFBLK: 'a device',
}
MOST_BYTES = 1 << 22  # of a config or another small file of a run
# Of a vocabulary's files: the largest in use have about 40 MB.
MOST_TOKENIZER_BYTES = 1 << 28
MOST_DEPTH = 16
_POINTER = b'version https://git-lfs.'  # what a clone without Git LFS has
_SHOWN = 60  # characters of a value in a message


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
  digest = hashlib.file_digest(file, 'sha256').hexdigest()
  return f'{file.tell()} {digest}'


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


class Journal:
  """A JSONL file that is written row by row, and continued after a kill.

  Bytes that a full disk cannot take stay in memory; the next write continues
  with them. With a header, the first line is a JSON object: everything that the
  rows depend on. A file with another header begins anew.

  Attributes:
    problem: why the last write failed, in a few words, or ''.
    lines: the complete lines of an earlier process, bytes without the header.
    torn: bytes after the last of them.
  """

  def __init__(self, file, header=None):
    """Reads the file, and changes nothing before `keep`.

    Args:
      file: unbuffered and opened in mode 'a+b', as by `open_locked`.
    """
    self._file, self._pending, self.problem = file, b'', ''
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


def check_value(where, key, value, kind):
  """Raises an InputError unless a key's value is of a `config.kinds.Kind`."""
  if problem := kind.problem(key.rpartition('.')[2], value):
    raise InputError(f'{where}: {key}={show_value(value)}: {problem}')


def show_value(value):
  """Returns a value as JSON, on one line and short, for a message."""
  try:
    text = json.dumps(value)
  except (TypeError, ValueError, RecursionError):
    text = f'<{type(value).__name__}>'
  return visible(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...')


def open_regular(path, follow=True):
  """Opens a regular file for reading bytes; never waits for a writer.

  Args:
    follow: whether the file may be a link, as in the Hub's cache.

  Raises:
    FileNotFoundError, NotADirectoryError: the file does not exist.
    InputError: it is no regular file, a pointer to one, or cannot be opened.
  """
  flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
  if not follow:
    flags |= os.O_NOFOLLOW
    if os.path.islink(path):
      raise InputError(f'{path}: is a link, expected a regular file')
  try:
    descriptor = os.open(path, flags)
  except (FileNotFoundError, NotADirectoryError):
    raise
  except (OSError, ValueError) as error:
    reason = getattr(error, 'strerror', None) or str(error)
    raise InputError(f'{path}: cannot be opened: {reason}') from None
  try:
    check_mode(os.fstat(descriptor).st_mode, path)
  except InputError:
    os.close(descriptor)
    raise
  file = os.fdopen(descriptor, 'rb')
  if file.peek(len(_POINTER)).startswith(_POINTER):
    file.close()
    raise InputError(
        f'{path}: a pointer of Git LFS; `git lfs pull` gets the file'
    )
  return file


def read_bytes(path, most=MOST_BYTES):
  """Returns the bytes of a regular file, at most `most`.

  Raises:
    FileNotFoundError, NotADirectoryError: the file does not exist.
    InputError: as in `open_regular`, or the file is larger or cannot be read.
  """
  with open_regular(path) as file:
    size = os.fstat(file.fileno()).st_size
    try:
      # Python allocates as much memory as `read` asks for.
      data = file.read(min(size, most) + 1)
    except OSError as error:
      raise InputError(f'{path}: cannot be read: {error.strerror}') from None
  if len(data) > most:
    raise InputError(f'{path}: has {size:,} bytes; expected at most {most:,}')
  return data


def read_object(path, most=MOST_BYTES):
  """Returns the JSON object of a file; errors of both functions called."""
  return parse_object(read_bytes(path, most), path)


def parse_object(data, where, depth=MOST_DEPTH):
  """Parses bytes as a JSON object, or raises an InputError.

  Numbers may be NaN or infinite, as Python writes them; a key's Kind rejects
  them.

  Args:
    where: their source, for messages.
    depth: largest depth of nested objects and lists; None: Python's own limit.
  """
  try:
    value = json.loads(data)
  except RecursionError:
    raise InputError(f'{where}: not JSON: nested too deep') from None
  except ValueError as error:
    reason = visible(str(error))
    raise InputError(f'{where}: not JSON: {reason}') from None
  if not isinstance(value, dict):
    raise InputError(f'{where}: not a JSON object: {show_value(value)}')
  if depth is not None and not _is_flat(value, depth):
    raise InputError(
        f'{where}: nested too deep; expected at most {depth} levels'
    )
  return value


@contextlib.contextmanager
def named(where):
  """A context that puts a file's name in front of InputErrors raised in it."""
  try:
    yield
  except InputError as error:
    if str(where) in str(error):
      raise
    raise InputError(f'{where}: {error}') from None


def is_name(text):
  """Returns whether a text is a plain file name, without directories."""
  return bool(re.fullmatch(r'[^/\0]+', text)) and text not in ('.', '..')


def _is_flat(value, depth):
  """Whether lists and objects are nested at most `depth` levels deep."""
  level = [value]
  for _ in range(depth):
    level = [
        inner
        for outer in level
        for inner in (outer.values() if isinstance(outer, dict) else outer)
        if isinstance(inner, (dict, list))
    ]
    if not level:
      return True
  return False
