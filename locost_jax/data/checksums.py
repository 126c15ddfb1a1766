"""Checksums of a token cache: damage is found before it is trained on.

CACHE/checksums.json names every other file of the cache, each with its size and
SHA-256. The small ones are compared when the cache is opened, the records by a
thread at 0.8 s per GiB while the first of them are being read. A cache of an
older version has no checksums, and is read without.
"""

import json
import pathlib
import threading

from locost_jax import files
from locost_jax import untrusted
from locost_jax.errors import InputError

FILE = 'checksums.json'


def write(directory):
  """Writes the checksums of a cache whose files are all written."""
  directory = pathlib.Path(directory)
  found = {}
  for path in sorted(directory.iterdir()):
    with open(path, 'rb') as file:
      found[path.name] = files.describe(file)
  (directory / FILE).write_text(json.dumps(found, indent=2))


def read(directory, names):
  """Returns {name: 'BYTES SHA-256'} of a cache; {} of one without checksums.

  Args:
    directory: of the cache.
    names: of the files that a cache may have.

  Raises:
    InputError: they are damaged.
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
      untrusted.check(path, name, known, untrusted.TEXT)
    return found
  except FileNotFoundError:
    return {}
  except InputError as error:
    raise damaged(directory, error) from None


def check(directory, name, known):
  """Raises an InputError unless a file of a cache is what was written.

  Args:
    directory: of the cache.
    name: of the file.
    known: of `read`; a file that it does not name is not compared.
  """
  if name not in known:
    return
  with open_file(directory, name) as file:
    is_same = files.describe(file) == known[name]
  if not is_same:
    path = pathlib.Path(directory) / name
    raise damaged(directory, f'{path}: has other contents than were written')


def open_file(directory, name):
  """Returns a file of a cache, opened; InputError: it is none."""
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
    directory: of the cache.
    what: the file, and what is wrong with it.
  """
  return InputError(f'{what}; remove {directory}, and it is made again')


class Background:
  """Compares one file in a thread of its own.

  Attributes:
    error: the InputError of a file that is not what was written, once known.
  """

  def __init__(self, directory, name, known):
    """Starts the comparison; for the arguments see `check`."""
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
    """Returns when the file is compared."""
    self._thread.join()
