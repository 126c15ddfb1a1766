"""Plain text as rows: a file, a paragraph or a line is a document."""

import json

from locost_jax.data import sources
from locost_jax.errors import InputError

UNITS = ('file', 'paragraph', 'line')  # of config.data.text_unit


def read_rows(path, fields, unit):
  """Reads the documents of a text, UTF-8; see `file_formats.read_rows`.

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
  for where, line in _lines(path):
    is_blank = not line.strip()
    if unit == 'line' or (unit == 'paragraph' and is_blank):
      yield from _row(field, lines)
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
  yield from _row(field, lines)


def _row(field, lines):
  """Yields the row of some lines, if anything stands in them."""
  text = '\n'.join(lines)
  if text.strip():
    yield {field: text}


def _lines(path):
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
