"""The formats of the user's own files, recognised by file extension.

READERS is the table of formats. A reader yields the rows of a file lazily as
dicts in which the requested fields are strings. data/sources.py checks the
optional fields (query, references, ...) of all formats. A file with any other
extension is read as JSONL.
"""

import functools
import os

from locost_jax.data import delimited_files
from locost_jax.data import parquet_files
from locost_jax.data import sources
from locost_jax.data import text_files
from locost_jax.errors import InputError


def _read_jsonl(path, fields, text_unit):
  del text_unit
  return sources.read_jsonl([path], fields)


# Extension (before .gz) -> function (path, fields, text_unit) -> rows.
READERS = {
    '.jsonl': _read_jsonl,
    '.csv': functools.partial(delimited_files.read_rows, ','),
    '.tsv': functools.partial(delimited_files.read_rows, '\t'),
    '.parquet': parquet_files.read_rows,
    '.txt': text_files.read_rows,
}
_JSONL_TOO = ('.json', '.ndjson')


def read_rows(path, fields, text_unit):
  """Reads the rows of a file of any format.

  Args:
    path: path of the file; a '.gz' file is decompressed.
    fields: names of the fields that every row must have, as strings.
    text_unit: one of text_files.UNITS, the part of a text that is a document.

  Yields:
    One dict per row, in order.

  Raises:
    InputError: the file or a row has another format or lacks a field; names
      the file and the row.
  """
  ending = _ending(path)
  if ending in READERS:
    yield from READERS[ending](path, fields, text_unit)
    return
  try:
    yield from _read_jsonl(path, fields, text_unit)
  except InputError as error:
    if ending in _JSONL_TOO:
      raise
    raise InputError(
        f'{error}; a file that ends in {ending!r} is read as JSONL: expected '
        f'{", ".join(READERS)}'
    ) from None


def is_text(path):
  """Whether config.data.text_unit applies to a file."""
  return READERS.get(_ending(path)) is text_files.read_rows


def _ending(path):
  return os.path.splitext(path.lower().removesuffix('.gz'))[1]
