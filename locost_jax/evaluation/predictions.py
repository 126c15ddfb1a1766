"""Reads files of predictions and references, to score them."""

from typing import NamedTuple

from locost_jax.data import sources
from locost_jax.errors import InputError


class Pair(NamedTuple):
  """A prediction and its references, each of which is correct.

  Attributes:
    prediction: str.
    references: list of str; [] if the row has none.
    id: str; None if the row has none.
    line: line number in the file, from 1.
    signature: of the scores computed when the file was written, or ''.
  """

  prediction: str
  references: list
  id: str | None = None
  line: int = 0
  signature: str = ''


def read(path, references=True):
  """Reads a JSONL file of predictions.

  Args:
    path: the file. Fields of a row: `prediction`, a string; `reference`, a
      string, or `references`, a list of strings; optional `id`, a string or an
      integer, and `signature`, a string. Other fields are ignored.
    references: whether every row must have references.

  Returns:
    List of Pair, in the order of the file.

  Raises:
    InputError: the file cannot be read or has no rows, or a row is not UTF-8,
      not JSON, or lacks a field; the message names file and line.
  """
  pairs = []
  for number, line in sources.read_lines(path):
    where = f'{path}:{number}'
    row = sources.parse_row(path, number, line, ['prediction'])
    found = []
    if references or 'reference' in row or 'references' in row:
      found = _references(where, row)
    signature = row.get('signature')
    pairs.append(
        Pair(
            row['prediction'],
            found,
            _id(where, row),
            number,
            signature if isinstance(signature, str) else '',
        )
    )
  if not pairs:
    raise InputError(
        f'{path}: has no rows; expected JSON Lines with prediction and reference'
    )
  return pairs


def _id(where, row):
  """Returns the id of a row as a str, or None."""
  found = row.get('id')
  if isinstance(found, bool) or not isinstance(found, (str, int, type(None))):
    raise InputError(
        f"{where}: field 'id' must be a string or a whole number, got "
        f'{type(found).__name__}'
    )
  return None if found is None else str(found)


def _references(where, row):
  """Returns the references of a row, a non-empty list of str."""
  if 'references' not in row:
    sources.check_texts(where, row, ['reference'])
    return [row['reference']]
  found = row['references']
  if 'reference' in row:
    raise InputError(
        f"{where}: has 'reference' and 'references'; expected one of them"
    )
  is_texts = isinstance(found, list) and all(
      isinstance(text, str) for text in found
  )
  if not is_texts or not found:
    raise InputError(
        f"{where}: field 'references' must be a list of at least one string"
    )
  return found
