"""How summaries are written: as lines of text, JSON, or a table."""

import csv
import io
import json
from typing import NamedTuple

from locost_jax.errors import visible

_CSV = 'file', 'summary', 'tokens', 'left out'


class Form(NamedTuple):
  """How summaries are written."""

  name: str = 'text'  # a value of `summarize_flags.FORMS`
  names_documents: bool = False  # whether text has the name of each document

  def head(self):
    """Returns the line before the first entry, or None."""
    return _csv_line(_CSV) if self.name == 'csv' else None

  def show(self, entry, encoding='utf-8'):
    """Returns the line of a row or a `documents.LeftOut`; None: it has none."""
    is_row = isinstance(entry, dict)
    if self.name in ('json', 'jsonl'):
      return json_line(entry, encoding) if is_row else None
    if self.name == 'csv' and not is_row:
      return _csv_line((entry.name, '', '', entry.reason))
    if self.name == 'csv':
      total = entry['tokens_total']
      rest = total - entry['tokens_read']
      unread = f'{rest} tokens' * bool(rest)
      return _csv_line((entry['id'], text_line(entry), total, unread))
    if not is_row:
      return visible(f'{entry.name}: (left out: {entry.reason})')
    name = visible(f'{entry["id"]}: ') if self.names_documents else ''
    return name + text_line(entry)

  def render(self, entries):
    """Returns the contents of FILE."""
    lines = [self.head(), *map(self.show, entries)]
    lines = [line for line in lines if line is not None]
    if self.name == 'json':
      return '[\n' + ',\n'.join(lines) + '\n]\n'
    # The mark tells spreadsheets that the text is UTF-8.
    front = '\ufeff' if self.name == 'csv' else ''
    return front + ''.join(f'{line}\n' for line in lines)


def _csv_line(cells):
  line = io.StringIO()
  csv.writer(line, lineterminator='').writerow(cells)
  return line.getvalue()


def text_line(row):
  """Returns a summary as one line of text."""
  query = row.get('query')
  text = f'{query}: {row["prediction"]}' if query else row['prediction']
  cut = describe_cut(row)
  return ' '.join(text.split()) + f' ({cut})' * bool(cut)


def describe_cut(row):
  """Returns where max_length ended a summary: 'cut at 32 tokens', or ''."""
  if 'cut_at' not in row:
    return ''
  parts = row.get('parts_cut', 0)
  of = f'{parts} part{"s" * (parts > 1)} ' * bool(parts)
  return f'{of}cut at {row["cut_at"]} tokens'


def json_line(row, encoding='utf-8'):
  """Returns a row as a line of JSON; ASCII if `encoding` cannot hold it."""
  line = json.dumps(row, ensure_ascii=False)
  try:
    line.encode(encoding)
  except UnicodeEncodeError:
    line = json.dumps(row)
  return line
