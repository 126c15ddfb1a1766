"""The formats of the user's own files, recognised by file extension.

READERS is the table of formats. A reader yields the rows of a file lazily as
dicts in which the requested fields are strings. data/sources.py checks the
optional fields (query, references, ...) of all formats. A file with any other
extension is read as JSONL.
"""

import csv
import functools
import itertools
import json
import os
import re

from locost_jax.config import kinds
from locost_jax.data import sources
from locost_jax.errors import InputError

UNITS = ('file', 'paragraph', 'line')  # of config.data.text_unit
_LISTS = ('sections', 'documents', 'references')
_OPTIONAL = ('id', 'query', *_LISTS)
_PARQUET_ROWS = 16  # in memory at once
_PARQUET_BYTES = 1 << 20  # read from one column at once


def _read_delimited(delimiter, path, fields):
  """Reads the rows of CSV or TSV (RFC 4180); see `read_rows`.

  The file has a header, and quotes are doubled inside of quotes. The lists of a
  row are JSON in their cells. An optional cell that is empty counts as missing.
  Quotes of a TSV are letters like others if only then all rows are as long.
  """
  is_plain = delimiter == '\t' and (
      not _is_even(path, csv.QUOTE_MINIMAL) and _is_even(path, csv.QUOTE_NONE)
  )
  quoting = csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL
  found = _cells(path, delimiter, quoting)
  for where, header in itertools.islice(found, 1):
    fields = fields(header) if callable(fields) else fields
    hint = f'; expected {delimiter!r} between fields'
    hint *= len(header) == 1
    _check_columns(where, header, (*fields, *_OPTIONAL), hint, fields)

  def make(number, where, cells):
    if len(cells) != len(header):
      raise InputError(
          f'{where}: {len(cells)} field{"s" * (len(cells) > 1)}, expected '
          f'{len(header)} as in the header'
      )
    return {
        name: _parse(cell, path, (number, name))
        if name in _LISTS and name not in fields
        else cell
        for name, cell in zip(header, cells)
        if cell.strip() or name in fields or name not in _OPTIONAL
    }

  makers = (functools.partial(make, n, *row) for n, row in enumerate(found, 1))
  yield from sources.good_rows(path, makers)
  sources.report_replaced(path)


def _is_even(path, quoting):
  """Whether all records of a TSV can be read and have as many cells."""
  try:
    return len({len(cells) for _, cells in _cells(path, '\t', quoting)}) == 1
  except InputError:
    return False


def _cells(path, delimiter, quoting):
  """Yields (what to call it in an error, cells) of a file's records."""

  def lines():
    for number, data in sources.raw_lines(path, sources.LONGEST):
      text = sources.decode(f'{path}:{number}', data)
      # Excel for Macintosh ends lines with carriage returns alone.
      yield from re.split(r'(?<=\r)(?!\n)', text) if '\r' in text else [text]

  csv.field_size_limit(sources.LONGEST)
  reader = csv.reader(
      lines(), delimiter=delimiter, quoting=quoting, strict=True
  )
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


def _check_columns(where, columns, fields, hint, needed):
  """Raises an InputError if a field has two columns, or a needed one none."""
  for name in needed:
    if name not in columns:
      raise InputError(
          f'{where}: no field {name!r}; the header has '
          f'{sources.show_names(columns)}'
          f'{hint or sources.name_fields(dict.fromkeys(columns), needed)}'
      )
  for name in fields:
    if columns.count(name) > 1:
      raise InputError(f'{where}: two columns are called {name!r}')


def _parse(cell, path, number):
  """Returns what a cell's JSON holds, or the cell, which is refused later."""
  try:
    return sources.loads(cell, path, number)
  except (ValueError, RecursionError):
    return cell


def _read_parquet(path, fields):
  """Reads the rows of parquet a few at a time; see `read_rows`.

  A row has these and the optional columns, without nulls. Fields that a function
  chooses may be nested, and all but the first may be null, which gives ''.
  """
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError:
    raise InputError(
        f'{path}: parquet needs pyarrow: pip install "locost_jax[train]"'
    ) from None
  if path.lower().endswith('.gz'):
    raise InputError(
        f'{path}: parquet compresses its own columns: expected a file that is '
        'not compressed by gzip'
    )
  fault = 'not a parquet file'
  try:
    # Read page by page; by default pyarrow buffers the whole file.
    with parquet.ParquetFile(
        path, buffer_size=_PARQUET_BYTES, pre_buffer=False
    ) as file:
      fault, schema = 'cannot be read', file.schema_arrow
      hidden = ()
      if callable(fields):
        fields = fields(schema.names)
        hidden = fields[1:]
      _check_columns(path, schema.names, fields, '', fields)
      _check_strings(path, schema, fields, bool(hidden), pyarrow)
      names = dict.fromkeys(fields) | dict.fromkeys(_OPTIONAL)
      names = [name for name in names if name in schema.names]
      batches = file.iter_batches(_PARQUET_ROWS, columns=names)
      rows = ((batch, i) for batch in batches for i in range(batch.num_rows))
      makers = (
          functools.partial(
              _parquet_row, f'{path}: row {n}', *row, fields, hidden
          )
          for n, row in enumerate(rows, 1)
      )
      yield from sources.good_rows(path, makers)
  except (pyarrow.ArrowException, OSError) as error:
    reason = ' '.join(str(error).split())[:200]
    raise InputError(f'{path}: {fault}: {reason}') from None


def _check_strings(path, schema, fields, nested, pyarrow):
  """Raises an InputError unless columns hold strings, or nested values."""
  strings = pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()
  for name in fields:
    kind = schema.field(name).type
    if pyarrow.types.is_dictionary(kind):
      kind = kind.value_type
    if kind not in strings and not (nested and pyarrow.types.is_nested(kind)):
      raise InputError(f'{path}: field {name!r} must hold strings, got {kind}')


def _parquet_row(where, batch, i, fields, hidden):
  """Returns a row of a batch as a dict."""
  row = {}
  for name, column in zip(batch.schema.names, batch.columns):
    try:
      value = column[i].as_py()
    except UnicodeDecodeError:
      raise InputError(f'{where}: field {name!r} is not UTF-8') from None
    if value is not None or name in hidden:
      row[name] = '' if value is None else value
    elif name in fields:
      raise InputError(f'{where}: field {name!r} must be a string, got null')
  return row


def _read_text(path, fields, unit):
  """Reads the documents of a text, UTF-8; see `read_rows`.

  Line ends become '\\n'. A blank line ends a paragraph; what is blank is no
  document.
  """
  field, *others = fields
  if others:
    raise InputError(
        f'{path}: a text has no field {others[0]!r}: expected JSONL, CSV, TSV '
        'or parquet; texts are for gap sentences (config.gsg)'
    )
  lines, size = [], 0
  for where, line in _text_lines(path):
    is_blank = not line.strip()
    if unit == 'line' or (unit == 'paragraph' and is_blank):
      yield from _text_row(field, lines)
      lines, size = [], 0
    if is_blank and unit != 'file':
      continue
    lines.append(line)
    size += len(line) + 1
    if size > sources.LONGEST:
      raise InputError(
          f'{where}: a document of more than {sources.LONGEST:,} characters: '
          f'expected shorter ones; config.data.text_unit={unit!r} can be '
          f'{" or ".join(map(repr, UNITS))}'
      )
  yield from _text_row(field, lines)


def _text_row(field, lines):
  """Yields the row of some lines, if anything stands in them."""
  text = '\n'.join(lines)
  if text.strip():
    yield {field: text}


def _text_lines(path):
  """Yields (what to call it in an error, line without its end)."""
  for number, data in sources.raw_lines(path, sources.LONGEST):
    where = f'{path}:{number}'
    text = sources.decode(where, data)
    if number == 1 and _is_json_row(text):
      raise InputError(
          f"{where}: JSON in a text: expected such a file to end in '.jsonl'"
      )
    text = text.replace('\r\n', '\n').replace('\r', '\n')
    for line in text.removesuffix('\n').split('\n'):
      yield where, line


def _is_json_row(text):
  """Whether a line is a row of JSONL."""
  if not text.lstrip().startswith('{'):
    return False
  try:
    return isinstance(json.loads(text), dict)
  except (ValueError, RecursionError):
    return False


# Extension (before .gz) -> function (path, fields) -> rows; a text's also takes
# its unit.
READERS = {
    '.jsonl': sources.read_jsonl,
    '.csv': functools.partial(_read_delimited, ','),
    '.tsv': functools.partial(_read_delimited, '\t'),
    '.parquet': _read_parquet,
    '.txt': _read_text,
}
_JSONL_TOO = ('.json', '.ndjson')


def read_rows(path, fields, text_unit):
  """Reads the rows of a file of any format.

  Args:
    fields: names of the fields that every row must have, as strings; or a
      function (names of columns, or a row of JSONL) -> names of these.
    text_unit: one of UNITS, the part of a text that is a document.

  Raises:
    InputError: the file or a row has another format or lacks a field; names
      the file and the row.
  """
  ending = _ending(path)
  if isinstance(path, kinds.Function):
    for number, row in enumerate(path.call(), 1):
      sources.check_texts(f'{path}: row {number}', dict(row), fields)
      yield row
    return
  if ending in READERS:
    more = (text_unit,) if is_text(path) else ()
    yield from READERS[ending](path, fields, *more)
    return
  try:
    yield from sources.read_jsonl(path, fields)
  except InputError as error:
    if ending in _JSONL_TOO:
      raise
    raise InputError(
        f'{error}; a file that ends in {ending!r} is read as JSONL: expected '
        f'{", ".join(READERS)}'
    ) from None


def count_rows(path):
  """Counts the rows of a file of parquet or JSONL."""
  if _ending(path) != '.parquet':
    return sum(1 for _ in sources.read_lines(path))
  from pyarrow import parquet

  return parquet.read_metadata(path).num_rows


def is_text(path):
  """Whether config.data.text_unit applies to a file."""
  return READERS.get(_ending(path)) is _read_text


def _ending(path):
  return os.path.splitext(path.lower().removesuffix('.gz'))[1]
