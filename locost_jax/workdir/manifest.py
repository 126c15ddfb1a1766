"""A manifest per checkpoint and token cache: checksums, to find damage.

A flipped bit or a page of zeros in an array restores without an error, with
wrong numbers. So DIRECTORY/manifest.json has the size and the SHA-256 of
every file in DIRECTORY's subdirectories or, for a token cache, in DIRECTORY:

  {"params/d/3a0f...": ["8192 5e88...", ...], ...}

Each entry is a list, because a file that is being replaced may be the old or
the new one. Writing and checking take one pass over the bytes.

A manifest is not trusted. It names regular files in subdirectories, or those
that its reader expects; links, pipes and names outside the directory count as
damage and are never opened.
"""

import json
import os
from pathlib import Path
import re

from locost_jax import files
from locost_jax.errors import InputError

FILE = 'manifest.json'
_MOST_BYTES = 1 << 26  # the largest manifest: about 500,000 files


def write(directory, names=None):
  """Writes the manifest of a directory whose files are complete.

  The files are synced to disk before the manifest that names them.

  Args:
    names: of its files; None: those in subdirectories.
  """
  directory = Path(directory)
  entries = {}
  for name in _list(directory) if names is None else names:
    entries[name] = [_describe(directory, name)]
    files.sync(directory / name)
  for parent in {(directory / name).parent for name in entries}:
    files.sync(parent)
  _write(directory, entries)


def find_damage(directory, only=''):
  """Returns a short description of a directory's damage; '' if it is intact."""
  directory = Path(directory)
  try:
    entries = read(directory)
  except InputError as error:
    return _within(directory, error)
  except (FileNotFoundError, NotADirectoryError):
    return f'{FILE} is missing'
  names = [name for name in entries if name.startswith(only)]
  if not names:
    return f'{FILE} names no file {only}...'
  damage = (_compare(directory, name, entries[name]) for name in names)
  return next(filter(None, damage), '')


def find_damage_of(directory, name):
  """Returns `find_damage` of one file; '' also if no manifest names it."""
  directory = Path(directory)
  try:
    known = read(directory).get(name)
  except (InputError, OSError):
    return ''
  return _compare(directory, name, known) if known else ''


def set_aside(directory, damage):
  """Renames a directory to DIRECTORY.damaged."""
  directory = Path(directory)
  number, aside = 1, directory.with_name(f'{directory.name}.damaged')
  while os.path.lexists(aside):
    number += 1
    aside = directory.with_name(f'{directory.name}.damaged{number}')
  directory.rename(aside)
  return f'{directory}: {damage}: damaged, set aside as {aside.name}'


def replace(directory, name, text):
  """Replaces a file; directory and manifest agree at every moment.

  Each step is synced to disk before the next, so that this also holds after a
  power cut.
  """
  directory = Path(directory)
  entries = read(directory)
  temporary = directory / 'replacement.tmp'
  try:
    data = text.encode()
    temporary.write_bytes(data)
    files.sync(temporary)
    new = files.describe(data)
    _write(directory, entries | {name: [new, *entries.get(name, [])]})
    os.replace(temporary, directory / name)
    files.sync((directory / name).parent)
  finally:
    temporary.unlink(missing_ok=True)
  _write(directory, entries | {name: [new]})


def read(directory, expected=None, file=FILE):
  """Returns the manifest of a directory: {name: ['BYTES SHA-256', ...]}.

  Args:
    expected: all names that it may have; None: those of files in
      subdirectories.
    file: its name. In old caches it has no lists, but one text a file.

  Raises:
    FileNotFoundError, NotADirectoryError: it is missing.
    InputError: it is invalid.
  """
  path = Path(directory) / file
  entries = files.parse_object(files.read_bytes(path, _MOST_BYTES), path)
  for name, known in entries.items():
    if file != FILE and isinstance(known, str):
      entries[name] = known = [known]
    *parents, last = name.split('/')
    if expected is not None and name not in expected:
      raise InputError(
          f'{path}: names {files.show_value(name)}; expected some of '
          f'{", ".join(expected)}'
      )
    is_inside = parents and all(map(files.is_name, (*parents, last)))
    if expected is None and not is_inside:
      raise InputError(
          f'{path}: names {files.show_value(name)}; expected files in '
          'subdirectories'
      )
    if not known or not (
        isinstance(known, list) and all(map(_is_description, known))
    ):
      raise InputError(
          f'{path}: {files.visible(name)}={files.show_value(known)}: expected '
          'a list of "BYTES SHA-256"'
      )
  return entries


def _is_description(text):
  return isinstance(text, str) and bool(re.fullmatch(r'\d+ [0-9a-f]{64}', text))


def _compare(directory, name, known):
  """Returns a description of one file's damage; '' if it is intact."""
  shown = files.visible(name)
  try:
    found = _describe(directory, name)
  except (FileNotFoundError, NotADirectoryError):
    return f'{shown} is missing'
  except InputError as error:
    return _within(directory, error)
  except OSError as error:
    return f'{shown} cannot be read: {error.strerror}'
  if found in known:
    return ''
  size, expected = found.split()[0], known[0].split()[0]
  if size != expected:
    return f'{shown} has {size} bytes, expected {expected}'
  return f'{shown} has other contents than were written'


def _within(directory, error):
  """Returns an InputError's message, with the path relative to the directory."""
  return files.visible(str(error).removeprefix(f'{directory}/'))


def _list(directory):
  """Returns the files in subdirectories; Orbax writes its own files outside."""
  found = []
  for parent, directories, names in os.walk(directory):
    links = [x for x in directories if os.path.islink(os.path.join(parent, x))]
    if parent != str(directory):
      found += [
          os.path.relpath(os.path.join(parent, name), directory)
          for name in (*names, *links)
      ]
  return sorted(found)


def _describe(directory, name):
  path = directory / name
  for parent in list(path.parents)[: name.count('/')]:
    if parent.is_symlink():
      raise InputError(f'{parent}: is a link, expected a directory')
  with files.open_regular(path, follow=False) as file:
    return files.describe(file)


def _write(directory, entries):
  files.write(directory / FILE, json.dumps(entries, indent=0))
