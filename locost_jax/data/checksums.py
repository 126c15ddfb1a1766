"""Checksums of a token cache, to find damage before training on it.

CACHE/checksums.json has the size and SHA-256 of every other file of the cache.
The small files are verified when the cache is opened. A thread verifies the
records (0.8 s per GiB) while the first of them are read. Caches of older
versions have no checksums and are not verified.
"""

import json
import pathlib
import threading

from locost_jax import files
from locost_jax import untrusted
from locost_jax.config import kinds
from locost_jax.errors import InputError

FILE = 'checksums.json'


def write(directory):
  """Writes checksums.json, after all other files of the cache."""
  directory = pathlib.Path(directory)
  found = {}
  for path in sorted(directory.iterdir()):
    with open(path, 'rb') as file:
      found[path.name] = files.describe(file)
  (directory / FILE).write_text(json.dumps(found, indent=2))


def read(directory, names):
  """Returns {name: 'BYTES SHA-256'} of a cache; {} if it has no checksums.

  Raises:
    InputError: checksums.json is damaged.
  """
  path = pathlib.Path(directory) / FILE
  try:
    found = untrusted.read_object(path)
    for name, known in found.items():
      if name not in names:
        raise InputError(
            f'{path}: names {untrusted.show(name)}; expected some of '
            f'{", ".join(names)}'
        )
      untrusted.check(path, name, known, kinds.TEXT)
    return found
  except FileNotFoundError:
    return {}
  except InputError as error:
    raise damaged(directory, error) from None


def check(directory, name, known):
  """Raises an InputError if a file of a cache differs from its checksum.

  Args:
    known: see `read`; a file that it does not name is not verified.
  """
  if name not in known:
    return
  with open_file(directory, name) as file:
    is_same = files.describe(file) == known[name]
  if not is_same:
    path = pathlib.Path(directory) / name
    raise damaged(directory, f'{path}: has other contents than were written')


def open_file(directory, name):
  """Opens a file of a cache; InputError: it is missing or not a file."""
  path = pathlib.Path(directory) / name
  try:
    return untrusted.open_regular(path)
  except OSError as error:
    raise damaged(directory, f'{path}: {error.strerror}') from None
  except InputError as error:
    raise damaged(directory, error) from None


def damaged(directory, what):
  """Returns the InputError of a damaged cache.

  Args:
    what: the file and its fault.
  """
  return InputError(f'{what}; remove {directory} to have it made again')


class Background:
  """Verifies one file in a thread.

  Attributes:
    error: the InputError if the file is damaged; None until that is known.
  """

  def __init__(self, directory, name, known):
    """Starts the thread; for the arguments see `check`."""
    self.error = None
    self._thread = threading.Thread(
        target=self._run, args=(directory, name, known), daemon=True
    )
    self._thread.start()

  def _run(self, *arguments):
    try:
      check(*arguments)
    except InputError as error:
      self.error = error

  def wait(self):
    """Waits until the file is verified."""
    self._thread.join()
