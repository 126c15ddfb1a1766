"""Stores the generated tokens of an evaluation until it has finished.

Generating summaries takes nearly all of an evaluation's time. After an
interruption, an evaluation reuses the stored batches and generates only the
rest. Each host has a JSONL file: first the key, everything the tokens depend
on; then {'tokens': lists of ids} for each batch, in order. The file is removed
when the results are complete.
"""

from pathlib import Path

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.devices import collective
from locost_jax.errors import disk_error
from locost_jax.errors import InputError

_ROWS = kinds.list_of(kinds.list_of(kinds.integer(0, 10**7)))


class GeneratedBatches:
  """The batches generated so far with one model on one split."""

  def __init__(self, path, key):
    """Reads this host's file, up to a damaged line, if it has the same key."""
    self._path, self._journal, self._found = Path(path), None, []
    files.check_regular(path)
    try:
      self._path.parent.mkdir(parents=True, exist_ok=True)
      self._journal = files.Journal(open(path, 'a+b', buffering=0), key)
      self._found = list(_read(self._journal.lines, path))
    except OSError as error:
      self._give_up(disk_error(error))
    # Hosts generate together, so all start at the first batch missing on any.
    count = min(collective.gather_rows([len(self._found)]))
    self._found = self._found[:count]
    if count:
      collective.log(f'{count:,} batches were generated before ({path})')
    if self._journal is not None:
      self._journal.keep(count)
      self._check()

  def get(self, number, generate):
    """Returns the tokens of a batch, stored before or now made by `generate`.

    A write error is only logged.
    """
    if number < len(self._found):
      return self._found[number]
    tokens = generate()
    if self._journal is not None:
      self._journal.add({'tokens': tokens})
      self._check()
    return tokens

  def remove(self):
    """Removes the file, when the results are complete."""
    if self._journal is not None:
      self._journal.close()
    self._path.unlink(missing_ok=True)

  def _check(self):
    if self._journal.problem:
      self._give_up(self._journal.problem)

  def _give_up(self, problem):
    self._journal = None
    collective.log(
        f'{self._path}: {problem}: if this evaluation is stopped, it starts '
        'again from the beginning'
    )


def _read(lines, path):
  """Yields the tokens of lines up to a damaged one."""
  for line in lines:
    try:
      tokens = files.parse_object(line, path).get('tokens')
      files.check_value(path, 'tokens', tokens, _ROWS)
    except InputError:
      return
    yield tokens
