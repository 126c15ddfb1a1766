"""The formats of the user's own files, recognised by file extension.

READERS is the table of formats. A reader yields the rows of a file lazily as
dicts in which the requested fields are strings. data/sources.py checks the
optional fields (query, references, ...) of all formats. A file with any other
extension is read as JSONL.

Fields can be those of a list in a row, such as `questions[].answer`: a row
{"document": ..., "questions": [{"text": ..., "answer": ...}, ...]} with
data.query_field='questions[].text' and data.target_field='questions[].answer'
becomes a row for each question. Its id is that of the row, and '#' and the
place in the list, counted from 0.
"""

import csv
import functools
import json
import os
import re

from locost_jax.data import sources
from locost_jax.errors import InputError

UNITS = ('file', 'paragraph', 'line')  # of config.data.text_unit
_LISTS = ('sections', 'documents', 'references')
_OPTIONAL = ('id', 'query', *_LISTS)
# Names of columns in an error, and characters of each.
_SHOWN, _CHARACTERS = 12, 30
_PARQUET_ROWS = 16  # in memory at once
_PARQUET_BYTES = 1 << 20  # read from one column at once
MARK = '[].'


def _read_jsonl(path, fields, text_unit):
  del text_unit
  return sources.read_jsonl([path], fields)


def _read_delimited(delimiter, path, fields, text_unit=None):
  """Reads the rows of CSV or TSV (RFC 4180); see `read_rows`.

  The file has a header, and quotes are doubled inside of quotes. The lists of a
  row are JSON in their cells. An optional cell that is empty counts as missing.

  Yields:
    A dict a row, in order; empty lines are passed over.

  Raises:
    InputError: the file cannot be read, is not UTF-8, lacks a column, or a row
      has broken quotes or another number of cells than the header.
  """
  del text_unit
  header = None
  for number, (where, cells) in enumerate(_cells(path, delimiter)):
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


def _cells(path, delimiter):
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


def _read_parquet(path, fields, text_unit=None):
  """Reads the rows of parquet a few at a time; see `read_rows`.

  Yields:
    One dict per row, in order, with these and the optional columns and without
    nulls.

  Raises:
    InputError: pyarrow is not installed; the file is not parquet or damaged;
      a column is missing or does not hold strings.
  """
  del text_unit
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
  number = 0
  for batch in _parquet_batches(path, fields, pyarrow, parquet):
    for i in range(batch.num_rows):
      number += 1
      yield _parquet_row(f'{path}: row {number}', batch, i, fields)


def _parquet_batches(path, fields, pyarrow, parquet):
  """Yields record batches of the required and optional columns."""
  try:
    # Read page by page; by default pyarrow buffers the whole file.
    file = parquet.ParquetFile(
        path, buffer_size=_PARQUET_BYTES, pre_buffer=False
    )
  except (pyarrow.ArrowException, OSError) as error:
    raise InputError(
        f'{path}: not a parquet file: {_one_line(error)}'
    ) from None
  with file:
    schema = file.schema_arrow
    _check_parquet(path, schema, fields, pyarrow)
    names = [*fields, *(n for n in _OPTIONAL if n in schema.names)]
    batches = file.iter_batches(
        _PARQUET_ROWS, columns=list(dict.fromkeys(names))
    )
    while True:
      try:
        batch = next(batches, None)
      except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f'{path}: cannot be read: {_one_line(error)}'
        ) from None
      if batch is None:
        return
      yield batch


def _check_parquet(path, schema, fields, pyarrow):
  """Raises an InputError unless each field is exactly one string column."""
  for name in fields:
    if name not in schema.names:
      shown = ', '.join(map(repr, schema.names[:_SHOWN])) or 'none'
      more = ', ...' * (len(schema.names) > _SHOWN)
      raise InputError(f'{path}: no field {name!r}; the file has {shown}{more}')
    if schema.names.count(name) > 1:
      raise InputError(f'{path}: two columns are called {name!r}')
    kind = schema.field(name).type
    if pyarrow.types.is_dictionary(kind):
      kind = kind.value_type
    if kind not in (
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
    ):
      raise InputError(f'{path}: field {name!r} must hold strings, got {kind}')


def _parquet_row(where, batch, i, fields):
  """Returns a row of a batch as a dict."""
  row = {}
  for name, column in zip(batch.schema.names, batch.columns):
    try:
      value = column[i].as_py()
    except UnicodeDecodeError:
      raise InputError(f'{where}: field {name!r} is not UTF-8') from None
    if value is not None:
      row[name] = value
    elif name in fields:
      raise InputError(f'{where}: field {name!r} must be a string, got null')
  return row


def _one_line(error):
  return ' '.join(str(error).split())[:200]


def _read_text(path, fields, unit):
  """Reads the documents of a text, UTF-8; see `read_rows`.

  Line ends become '\\n'. A blank line ends a paragraph; what is blank is no
  document.

  Yields:
    {field: text}.

  Raises:
    InputError: it cannot be read, is not UTF-8, or more fields are needed than
      a text has; a document is longer than sources.LONGEST.
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


# Extension (before .gz) -> function (path, fields, text_unit) -> rows.
READERS = {
    '.jsonl': _read_jsonl,
    '.csv': functools.partial(_read_delimited, ','),
    '.tsv': functools.partial(_read_delimited, '\t'),
    '.parquet': _read_parquet,
    '.txt': _read_text,
}
_JSONL_TOO = ('.json', '.ndjson')


def read_rows(path, fields, text_unit):
  """Reads the rows of a file of any format.

  Args:
    path: path of the file; a '.gz' file is decompressed.
    fields: names of the fields that every row must have, as strings.
    text_unit: one of UNITS, the part of a text that is a document.

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
  return READERS.get(_ending(path)) is _read_text


def _ending(path):
  return os.path.splitext(path.lower().removesuffix('.gz'))[1]


def list_of(fields):
  """Returns the name of the list that nested fields are in; None: no list.

  Args:
    fields: names of fields, nested or not.

  Raises:
    InputError: fields of two lists, or a list in a list.
  """
  nested = [field for field in fields if MARK in field]
  lists = {field.partition(MARK)[0] for field in nested}
  if len(lists) > 1 or any(field.count(MARK) > 1 for field in nested):
    raise InputError(
        f'config.data: {", ".join(nested)}: expected fields of one list, like '
        'questions[].text and questions[].answer'
    )
  return lists.pop() if lists else None


def expand_lists(rows, fields, file):
  """Yields a row for each entry of the list.

  Args:
    fields: names of fields; those with '[].' are taken from the entries.
    file: the name of the file, for errors.

  Raises:
    InputError: the list is missing or has an entry of another form.
  """
  name = list_of(fields)
  nested = [field for field in fields if MARK in field]
  for number, row in enumerate(rows):
    entries = row.get(name)
    if not isinstance(entries, list):
      raise InputError(
          f'{file}, row {number}: field {name!r} must be a list of objects'
      )
    for i, entry in enumerate(entries):
      made = {**row, 'id': f'{row.get("id", f"{file}:{number}")}#{i}'}
      for field in nested:
        key = field.partition(MARK)[2]
        value = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(value, str):
          raise InputError(
              f'{file}, row {number}: {name}[{i}] must have a text in {key!r}'
          )
        made[field] = value
      yield made
