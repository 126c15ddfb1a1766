"""Writes predictions in the format of SCROLLS: a JSON object {id: prediction}.

https://github.com/tau-nlp/scrolls/tree/main/evaluator describes the format.
A script of that repository joins such files, one per data set, into one table.
"""

import json
import os

from locost_jax import files
from locost_jax.errors import disk_error
from locost_jax.errors import InputError


def check(path, overwrite, source):
  """Raises an InputError if FILE.json cannot be written or replaced.

  Args:
    path: FILE.json.
    overwrite: whether an existing file may be replaced.
    source: the file of predictions, which must not be replaced.
  """
  where = f'--submission={path}'
  if os.path.isdir(path):
    raise InputError(f'{where}: is a directory; expected the name of a file')
  folder = os.path.dirname(os.path.abspath(path))
  if not os.path.isdir(folder):
    raise InputError(f'{where}: no directory {folder}')
  files.check_regular(path, where)
  if not os.path.exists(path):
    return
  if os.path.exists(source) and os.path.samefile(path, source):
    raise InputError(f'{where}: is --predictions; expected another file')
  if not overwrite:
    raise InputError(
        f'{where}: exists already; expected the name of a new file, or '
        '--overwrite, which replaces it'
    )


def write(path, name, pairs):
  """Writes FILE.json.

  Args:
    path: FILE.json.
    name: the file of the pairs, for messages.
    pairs: list of `predictions.Pair`.

  Raises:
    InputError: an id is missing or repeated; only some rows have references; or
      the file cannot be written.
  """
  scored = sum(bool(pair.references) for pair in pairs)
  if scored not in (0, len(pairs)):
    raise InputError(
        f'{name}: {scored:,} of {len(pairs):,} rows have references; expected '
        'them in all rows, or in none'
    )
  found = {}
  for pair in pairs:
    if pair.id is None or pair.id in found:
      problem = 'no field' if pair.id is None else 'repeated'
      raise InputError(
          f"{name}:{pair.line}: {problem} 'id': --submission needs a different "
          'one for each row'
      )
    found[pair.id] = pair.prediction
  try:
    files.write(path, json.dumps(found, ensure_ascii=False, indent=2) + '\n')
  except OSError as error:
    raise InputError(
        f'--submission={path}: cannot be written: {disk_error(error)}'
    ) from None
