"""Rows of CSV and TSV (RFC 4180): a header, quotes doubled inside of quotes.

The lists of a row (sections, documents, references) are JSON in their cells. An
optional cell that is empty counts as missing.
"""

import csv
import re

from locost_jax.data import sources
from locost_jax.errors import InputError

_LISTS = ('sections', 'documents', 'references')
_OPTIONAL = ('id', 'query', *_LISTS)
_SHOWN, _CHARACTERS = 12, 30  # names of columns in an error, and of each


def read_rows(delimiter, path, fields, text_unit=None):
  """Reads the rows of a file; see `file_formats.read_rows`.

  Args:
    delimiter: what stands between cells.
    path: of the file, UTF-8.
    fields: names of the columns that there must be.
    text_unit: not used.

  Yields:
    A dict a row, in order; empty lines are passed over.

  Raises:
    InputError: the file cannot be read, is not UTF-8, lacks a column, or a row
      has broken quotes or another number of cells than the header.
  """
  del text_unit
  header = None
  for number, (where, cells) in enumerate(_records(path, delimiter)):
    if header is None:
      header = cells
      _check_header(where, header, fields, delimiter)
      continue
    if len(cells) != len(header):
      raise InputError(
          f'{where}: {len(cells)} field{"s" * (len(cells) > 1)}, expected '
          f'{len(header)} as in the header'
      )
    row = dict(zip(header, cells))
    for name in _OPTIONAL:
      if name in row and name not in fields and not row[name].strip():
        del row[name]
    yield {
        name: _parse(cell, path, (number, name))
        if name in _LISTS and name not in fields
        else cell
        for name, cell in row.items()
    }
  sources.report_replaced(path)


def _records(path, delimiter):
  """Yields (what to call it in an error, cells) of a file's records."""

  def lines():
    for number, data in sources.raw_lines(path, sources.LONGEST):
      text = sources.decode(f'{path}:{number}', data)
      # Excel for Macintosh ends lines with carriage returns alone.
      yield from re.split(r'(?<=\r)(?!\n)', text) if '\r' in text else [text]

  csv.field_size_limit(sources.LONGEST)
  reader = csv.reader(lines(), delimiter=delimiter, strict=True)
  while True:
    where = f'{path}:{reader.line_num + 1}'
    try:
      cells = next(reader, None)
    except csv.Error as error:
      raise InputError(f'{where}: {_explain(str(error))}') from None
    if cells is None:
      return
    if cells:
      yield where, cells


def _explain(error):
  """Says what Python's csv means."""
  if 'unexpected end of data' in error:
    return 'a quote that is never closed'
  if 'field limit' in error:
    return (
        f'a field of more than {sources.LONGEST:,} characters, or a quote that '
        'is never closed'
    )
  return (
      f'broken quoting: {error}; expected quotes to be doubled inside of a '
      'quoted field'
  )


def _check_header(where, header, fields, delimiter):
  """Raises an InputError unless each field has its column, and one only."""
  for name in fields:
    if name not in header:
      shown = [repr(column[:_CHARACTERS]) for column in header[:_SHOWN]]
      hint = f'; expected {delimiter!r} between fields'
      raise InputError(
          f'{where}: no field {name!r}; the header has {", ".join(shown)}'
          f'{", ..." * (len(header) > _SHOWN)}{hint * (len(header) == 1)}'
      )
  for name in (*fields, *_OPTIONAL):
    if header.count(name) > 1:
      raise InputError(f'{where}: two columns are called {name!r}')


def _parse(cell, path, number):
  """Returns what a cell's JSON holds, or the cell, which is refused later."""
  try:
    return sources.loads(cell, path, number)
  except (ValueError, RecursionError):
    return cell
