"""Reads the documents of predictions, from their rows or from another file."""

import json

from locost_jax.data import sources
from locost_jax.errors import InputError


def read(path, documents=None):
  """Returns the document of each row of a file of predictions.

  Args:
    path: the file of predictions, whose rows may have `document`.
    documents: another JSONL file, whose rows have `document`. Rows are matched
      by `id` if all rows of both files have one, else by position. None: no
      such file.

  Returns:
    List of str, or None for a row without a document.

  Raises:
    InputError: a file cannot be read, or the rows do not match.
  """
  rows = _rows(path)
  if documents is None:
    return [document for _, document in rows]
  others = _rows(documents)
  ids, known = [key for key, _ in rows], dict(others)
  if None not in ids and None not in known and len(known) == len(others):
    missing = [key for key in ids if key not in known]
    if missing:
      raise InputError(
          f'--documents={documents}: no row with the id {missing[0]} of '
          f'{path}; {len(missing):,} of its {len(ids):,} ids are missing'
      )
    return [known[key] for key in ids]
  if len(others) != len(rows):
    raise InputError(
        f'--documents={documents}: {len(others):,} rows without ids, expected '
        f'the {len(rows):,} of {path}'
    )
  return [document for _, document in others]


def _rows(path):
  """Returns (id as JSON or None, document or None) of each row."""
  found = []
  for number, line in sources.read_lines(path):
    row = sources.parse_row(path, number, line, [])
    document = row.get('document')
    if document is not None:
      sources.check_texts(f'{path}:{number}', row, ['document'])
    key = None if row.get('id') is None else json.dumps(row['id'])
    found.append((key, document))
  return found
