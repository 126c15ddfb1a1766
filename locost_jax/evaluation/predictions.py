"""Reads files of predictions and their references, to score them again."""

from typing import NamedTuple

from locost_jax.data import sources
from locost_jax.errors import InputError


class Pair(NamedTuple):
  """A prediction and the references that all count as right."""

  prediction: str
  references: list


def read(path):
  """Reads a JSONL file of predictions.

  Args:
    path: of rows with the text `prediction` and either the text `reference` or
      `references`, a list of texts; other fields are passed over.

  Returns:
    List of Pair, in order.

  Raises:
    InputError: the file cannot be read or has no rows, or a row is not UTF-8,
      not JSON, or lacks a field; names file and line.
  """
  pairs = []
  for number, line in sources.read_lines(path):
    row = sources.parse_row(path, number, line, ['prediction'])
    pairs.append(Pair(row['prediction'], _references(f'{path}:{number}', row)))
  if not pairs:
    raise InputError(
        f'{path}: has no rows; expected JSON Lines with prediction and reference'
    )
  return pairs


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
