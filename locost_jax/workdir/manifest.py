"""A manifest per checkpoint: what each of its files must be, to find damage.

A flipped bit or a page of zeros in an array restores without an error, with
wrong numbers. So DIRECTORY/manifest.json tells the size and the SHA-256 of
every file in DIRECTORY's subdirectories:

  {"params/d/3a0f...": ["8192 5e88...", ...], ...}

a list, as a file that is being replaced may for a moment be either of two.
Making and checking cost one pass over the bytes: 0.8 s per GiB on a core with
SHA instructions, beside reading the disk.
"""

import hashlib
import json
import os
from pathlib import Path

from locost_jax import files

FILE = 'manifest.json'
_BLOCK = 1 << 22  # bytes read at once


def write(directory):
  """Makes the manifest of a directory whose files are all written.

  Args:
    directory: of a checkpoint.
  """
  directory = Path(directory)
  _write(
      directory,
      {name: [_describe(directory / name)] for name in _list(directory)},
  )


def find_damage(directory, only=''):
  """Returns what is wrong with a directory in a few words; '': nothing.

  Args:
    directory: of a checkpoint.
    only: look only at files whose names begin so, 'params/' for example.
  """
  directory = Path(directory)
  try:
    entries = json.loads((directory / FILE).read_bytes())
    entries = {str(name): list(known) for name, known in entries.items()}
  except FileNotFoundError:
    return f'{FILE} is missing'
  except (ValueError, TypeError, AttributeError):
    return f'{FILE} is not a manifest'
  except OSError as error:
    return f'{FILE} cannot be read: {error.strerror}'
  names = [name for name in entries if name.startswith(only)]
  if not names:
    return f'{FILE} names no file {only}...'
  for name in names:
    try:
      found = _describe(directory / name)
    except FileNotFoundError:
      return f'{name} is missing'
    except OSError as error:
      return f'{name} cannot be read: {error.strerror}'
    if found not in entries[name]:
      size, expected = found.split()[0], entries[name][0].split()[0]
      if size != expected:
        return f'{name} has {size} bytes, expected {expected}'
      return f'{name} has other contents than were written'
  return ''


def set_damaged_aside(directory):
  """Renames a directory that is not what was written to DIRECTORY.damaged.

  Args:
    directory: of a checkpoint.

  Returns:
    One line that tells of it; '': the directory is intact.
  """
  directory = Path(directory)
  damage = find_damage(directory)
  if not damage:
    return ''
  number, aside = 1, directory.with_name(f'{directory.name}.damaged')
  while aside.exists():
    number += 1
    aside = directory.with_name(f'{directory.name}.damaged{number}')
  directory.rename(aside)
  return f'{directory}: {damage}: damaged, set aside as {aside.name}'


def replace(directory, name, text):
  """Replaces a file; directory and manifest agree at every moment.

  Args:
    directory: of a checkpoint.
    name: of a file in the manifest, relative to the directory.
    text: the new contents.
  """
  directory = Path(directory)
  entries = json.loads((directory / FILE).read_bytes())
  temporary = directory / 'replacement.tmp'
  try:
    temporary.write_text(text, encoding='utf-8')
    new = _describe(temporary)
    _write(directory, entries | {name: [new, *entries[name]]})
    os.replace(temporary, directory / name)
  finally:
    temporary.unlink(missing_ok=True)
  _write(directory, entries | {name: [new]})


def _list(directory):
  """The files in subdirectories; those beside them are Orbax's own notes."""
  return sorted(
      path.relative_to(directory).as_posix()
      for path in directory.rglob('*')
      if path.is_file() and path.parent != directory
  )


def _describe(path):
  digest, size = hashlib.sha256(), 0
  with open(path, 'rb') as file:
    while block := file.read(_BLOCK):
      digest.update(block)
      size += len(block)
  return f'{size} {digest.hexdigest()}'


def _write(directory, entries):
  files.write(directory / FILE, json.dumps(entries, indent=0))
