"""Keeps what an evaluation generates, batch by batch, until it is done.

Generating summaries is nearly all of an evaluation's time. One that was killed
takes the batches that are there and generates the others. A host's file has an
object in each line: first what the tokens depend on, then {'tokens': lists of
ids} for each batch, in order. It is removed when the results are there.
"""

import json
import os
from pathlib import Path

from locost_jax import files
from locost_jax import untrusted
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.hosts import collective

_ROWS = untrusted.list_of(untrusted.list_of(untrusted.integer(0, 10**7)))


class GeneratedBatches:
  """The batches of one model and one split that were generated so far."""

  def __init__(self, path, key):
    """Reads what is there of the same key.

    A line that was cut off, and all behind it, is generated again.

    Args:
      path: of this host's file; its directory is made.
      key: what the tokens depend on, as JSON has it.
    """
    self._path, self._file = Path(path), None
    found = _read(self._path, key)
    # Hosts generate together: all begin with the first batch that one lacks.
    count = min(collective.gather_rows([len(found)]))
    self._found = found[:count]
    if count:
      collective.log(f'{count:,} batches were generated before ({path})')
    try:
      lines = [key, *({'tokens': tokens} for tokens in self._found)]
      files.write(self._path, ''.join(json.dumps(x) + '\n' for x in lines))
      self._file = open(self._path, 'a', encoding='utf-8')
    except OSError as error:
      self._give_up(error)

  def get(self, number):
    """Returns the tokens of a batch, a list of lists; None: not generated."""
    return self._found[number] if number < len(self._found) else None

  def add(self, tokens):
    """Keeps the tokens of the next batch. If the disk is full, a line says so.

    Args:
      tokens: list of lists of ids.
    """
    if self._file is None:
      return
    try:
      self._file.write(json.dumps({'tokens': tokens}) + '\n')
      self._file.flush()
    except OSError as error:
      self._give_up(error)

  def remove(self):
    """Removes the file: there are results now."""
    if self._file is not None:
      self._file.close()
    self._path.unlink(missing_ok=True)

  def _give_up(self, error):
    self._file = None
    collective.log(
        f'{self._path}: {disk_error(error)}: if this evaluation is stopped, it '
        'begins again'
    )


def _read(path, key):
  """Returns the tokens of all whole lines behind the key; [] of another key."""
  if not os.path.exists(path):
    return []
  with untrusted.open_regular(path) as file:
    lines = file.read().split(b'\n')[:-1]
  found = []
  try:
    if not lines or untrusted.parse_object(lines[0], path) != key:
      return []
    for line in lines[1:]:
      tokens = untrusted.parse_object(line, path).get('tokens')
      untrusted.check(path, 'tokens', tokens, _ROWS)
      found.append(tokens)
  except InputError:
    pass  # damaged from here on
  return found
