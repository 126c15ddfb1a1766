"""Reads files of predictions and their references, to score them again."""

from typing import NamedTuple

from locost_jax.data import sources
from locost_jax.errors import InputError


class Pair(NamedTuple):
  """A prediction and the references that all count as right.

  Attributes:
    prediction: str.
    references: list of str; [] where the row has none.
    id: str; None where the row has none.
    line: of the file, from 1.
    signature: of the scores that it had when it was written, or ''.
  """

  prediction: str
  references: list
  id: str | None = None
  line: int = 0
  signature: str = ''


def read(path, references=True):
  """Reads a JSONL file of predictions.

  Args:
    path: of rows with the text `prediction` and either the text `reference` or
      `references`, a list of texts; also read are `id`, a text or a number, and
      the text `signature`. Other fields are passed over.
    references: whether every row must have references.

  Returns:
    List of Pair, in order.

  Raises:
    InputError: the file cannot be read or has no rows, or a row is not UTF-8,
      not JSON, or lacks a field; names file and line.
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
  """Returns the references of a row, a list of str that is not empty."""
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
