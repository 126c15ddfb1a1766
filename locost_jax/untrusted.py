"""Reads untrusted files, with limits on type, size and contents.

Configs, vocabularies, manifests and weights come from downloads and from other
people's disks. Only regular files are opened, so that a pipe never blocks a
command. JSON is limited in size (before it is read) and in depth, and every
value that is used is checked against a `config.kinds.Kind`. An error is one line: file, key,
value, and what was expected.
"""

import contextlib
import json
import os
import re

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.errors import visible

MOST_BYTES = 1 << 22  # of a config or another small file of a run
# Of a vocabulary's files: the largest in use have about 40 MB.
MOST_TOKENIZER_BYTES = 1 << 28
MOST_DEPTH = 16
_SHOWN = 60  # characters of a value in a message


def check(where, key, value, kind):
  """Raises an InputError unless the value of a key is of a `config.kinds.Kind`."""
  if problem := kind.problem(key.rpartition('.')[2], value):
    raise InputError(f'{where}: {key}={show(value)}: {problem}')


def show(value):
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
    InputError: it is not a regular file, or cannot be opened.
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
    files.check_mode(os.fstat(descriptor).st_mode, path)
  except InputError:
    os.close(descriptor)
    raise
  return os.fdopen(descriptor, 'rb')


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
  """Returns the JSON object of a file; errors of `read_bytes` and the parser."""
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
    raise InputError(f'{where}: not a JSON object: {show(value)}')
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
