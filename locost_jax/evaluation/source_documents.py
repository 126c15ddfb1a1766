"""The documents that predictions are of: in their own rows, or another file."""

import json

from locost_jax.data import sources
from locost_jax.errors import InputError


def read(path, documents=None):
  """Returns the document of each row of a file of predictions.

  Args:
    path: the file of predictions; `document` of its rows counts.
    documents: another JSONL file, whose rows have `document`: the same `id` if
      all rows of both have one, else the same order. None: no such file.

  Returns:
    List of str, None where there is no document.

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
          f'{path}, nor {len(missing) - 1:,} others of its {len(ids):,}'
      )
    return [known[key] for key in ids]
  if len(others) != len(rows):
    raise InputError(
        f'--documents={documents}: {len(others):,} rows without ids, expected '
        f'the {len(rows):,} of {path}'
    )
  return [document for _, document in others]


def _rows(path):
  """Returns (id as JSON, document) of each row, None for what it has not."""
  found = []
  for number, line in sources.read_lines(path):
    row = sources.parse_row(path, number, line, [])
    document = row.get('document')
    if document is not None:
      sources.check_texts(f'{path}:{number}', row, ['document'])
    key = None if row.get('id') is None else json.dumps(row['id'])
    found.append((key, document))
  return found
