"""Stores the generated tokens of an evaluation until it has finished.

Generating summaries takes nearly all of an evaluation's time. After an
interruption, an evaluation reuses the stored batches and generates only the
rest. Each host has a JSONL file: first the key, everything the tokens depend
on; then {'tokens': lists of ids} for each batch, in order. The file is removed
when the results are complete.
"""

import json
import os
from pathlib import Path

from locost_jax import files
from locost_jax import untrusted
from locost_jax.config import kinds
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.hosts import collective

_ROWS = kinds.list_of(kinds.list_of(kinds.integer(0, 10**7)))


class GeneratedBatches:
  """The batches generated so far with one model on one split."""

  def __init__(self, path, key):
    """Reads the stored batches, if they have the same key.

    From a truncated line on, batches are generated again.

    Args:
      path: this host's file; its directory is created.
      key: everything the tokens depend on, a JSON object.
    """
    self._path, self._file = Path(path), None
    found = _read(self._path, key)
    # Hosts generate together, so all start at the first batch missing on any.
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

  def get(self, number, generate):
    """Returns the tokens of a batch, a list of lists.

    Args:
      generate: makes them, if they are not stored; then they are. A write error
        is only logged.
    """
    if number < len(self._found):
      return self._found[number]
    tokens = generate()
    if self._file is not None:
      try:
        self._file.write(json.dumps({'tokens': tokens}) + '\n')
        self._file.flush()
      except OSError as error:
        self._give_up(error)
    return tokens

  def remove(self):
    """Removes the file, when the results are complete."""
    if self._file is not None:
      self._file.close()
    self._path.unlink(missing_ok=True)

  def _give_up(self, error):
    self._file = None
    collective.log(
        f'{self._path}: {disk_error(error)}: if this evaluation is stopped, it '
        'starts again from the beginning'
    )


def _read(path, key):
  """Returns the tokens of all complete lines; [] if the key differs."""
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
