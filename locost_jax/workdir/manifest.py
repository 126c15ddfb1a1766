"""A manifest per checkpoint: what each of its files must be, to find damage.

A flipped bit or a page of zeros in an array restores without an error, with
wrong numbers. So DIRECTORY/manifest.json has the size and the SHA-256 of
every file in DIRECTORY's subdirectories:

  {"params/d/3a0f...": ["8192 5e88...", ...], ...}

a list, as a file that is being replaced may for a moment be either of two.
Making and checking cost one pass over the bytes.

A manifest may come from anybody. It names regular files in subdirectories;
links, pipes and names that lead elsewhere are damage, and never opened.
"""

import hashlib
import json
import os
from pathlib import Path
import re

from locost_jax import files
from locost_jax import untrusted
from locost_jax.errors import InputError

FILE = 'manifest.json'
_MOST_BYTES = 1 << 26  # of a manifest: that of some 500,000 files
_SHOWN = 3  # extra files that a line names


def write(directory):
  """Makes the manifest of a directory whose files are all written.

  The files are on the disk before the manifest that names them.

  Args:
    directory: of a checkpoint.
  """
  directory = Path(directory)
  entries = {}
  for name in _list(directory):
    entries[name] = [_describe(directory, name)]
    files.sync(directory / name)
  for parent in {(directory / name).parent for name in entries}:
    files.sync(parent)
  _write(directory, entries)


def find_damage(directory, only='', but=None):
  """Returns what is wrong with a directory in a few words; '': nothing.

  Args:
    directory: of a checkpoint.
    only: look only at files whose names begin so, 'params/' for example.
    but: pass over files whose names begin so; None: over none.
  """
  directory = Path(directory)
  try:
    entries = _read(directory)
  except InputError as error:
    return _within(directory, error)
  except (FileNotFoundError, NotADirectoryError):
    return f'{FILE} is missing'
  names = [
      name
      for name in entries
      if name.startswith(only) and not (but and name.startswith(but))
  ]
  if not names:
    return f'{FILE} names no file {only}...'
  damage = (_compare(directory, name, entries[name]) for name in names)
  return next(filter(None, damage), '')


def find_damage_of(directory, name):
  """Returns the same of one file; '' also where no manifest names it."""
  directory = Path(directory)
  known = known_of(directory, name)
  return _compare(directory, name, known) if known else ''


def known_of(directory, name):
  """Returns what a file may be, 'BYTES SHA-256' each; []: no manifest says."""
  try:
    return _read(Path(directory)).get(name, [])
  except (InputError, OSError):
    return []


def identify(directory, only=''):
  """Returns a SHA-256 in hex of the names, sizes and hashes of files.

  Args:
    directory: of a checkpoint, which is intact.
    only: as in `find_damage`.
  """
  known = sorted(_read(Path(directory)).items())
  lines = [f'{name} {found[0]}\n' for name, found in known]
  lines = [line for line in lines if line.startswith(only)]
  return hashlib.sha256(''.join(lines).encode()).hexdigest()


def find_extra(directory, only='', but=()):
  """Returns a line about files that the manifest does not name; '': none.

  Args:
    directory: of a checkpoint, which is intact.
    only: as in `find_damage`.
    but: names of files that an older manifest may lack.
  """
  directory = Path(directory)
  known = {*_read(directory), *but}
  extra = [name for name in _list(directory, only) if name not in known]
  if not extra:
    return ''
  shown = ', '.join(map(untrusted.visible, extra[:_SHOWN]))
  if len(extra) > _SHOWN:
    shown += f' and {len(extra) - _SHOWN} more'
  return (
      f'{directory}: {shown}: not named by {FILE}; not part of the checkpoint'
  )


def set_aside(directory, damage):
  """Renames a directory to DIRECTORY.damaged.

  Args:
    directory: of a checkpoint.
    damage: what is wrong with it.

  Returns:
    One line that reports it.
  """
  directory = Path(directory)
  number, aside = 1, directory.with_name(f'{directory.name}.damaged')
  while os.path.lexists(aside):
    number += 1
    aside = directory.with_name(f'{directory.name}.damaged{number}')
  directory.rename(aside)
  return f'{directory}: {damage}: damaged, set aside as {aside.name}'


def replace(directory, name, text):
  """Replaces a file; directory and manifest agree at every moment.

  Each step is on the disk before the next, so that a power cut is one of these
  moments, too.

  Args:
    directory: of a checkpoint.
    name: of the file, relative to the directory.
    text: the new contents.
  """
  directory = Path(directory)
  entries = _read(directory)
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


def _read(directory):
  """The manifest of a directory: {name: ['BYTES SHA-256', ...]}.

  Raises:
    FileNotFoundError, NotADirectoryError: it is missing.
    InputError: it is no manifest, or names what is not in the directory.
  """
  path = directory / FILE
  entries = untrusted.parse_object(
      untrusted.read_bytes(path, _MOST_BYTES), path
  )
  for name, known in entries.items():
    *parents, last = name.split('/')
    if not parents or not all(map(untrusted.is_name, (*parents, last))):
      raise InputError(
          f'{path}: names {untrusted.show(name)}; expected files in '
          'subdirectories'
      )
    if not known or not (
        isinstance(known, list) and all(map(_is_description, known))
    ):
      raise InputError(
          f'{path}: {untrusted.visible(name)}={untrusted.show(known)}: expected '
          'a list of "BYTES SHA-256"'
      )
  return entries


def _is_description(text):
  return isinstance(text, str) and bool(re.fullmatch(r'\d+ [0-9a-f]{64}', text))


def _compare(directory, name, known):
  """Returns what is wrong with one file; '': nothing."""
  shown = untrusted.visible(name)
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
  """An InputError's line about a file, named relative to the directory."""
  return untrusted.visible(str(error).removeprefix(f'{directory}/'))


def _list(directory, only=''):
  """The files in subdirectories; other files are Orbax's own notes."""
  found = []
  for parent, directories, names in os.walk(directory):
    links = [x for x in directories if os.path.islink(os.path.join(parent, x))]
    if parent != str(directory):
      found += [
          os.path.relpath(os.path.join(parent, name), directory)
          for name in (*names, *links)
      ]
  return sorted(name for name in found if name.startswith(only))


def _describe(directory, name):
  path = directory / name
  for parent in list(path.parents)[: name.count('/')]:
    if parent.is_symlink():
      raise InputError(f'{parent}: is a link, expected a directory')
  with untrusted.open_regular(path, follow=False) as file:
    return files.describe(file)


def _write(directory, entries):
  files.write(directory / FILE, json.dumps(entries, indent=0))
