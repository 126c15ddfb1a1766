"""Finds and reads the documents that a user names.

A name is a file, a directory (every readable file in it and below, sorted) or
'-' for a text on standard input. Kinds by ending:

  .txt .md and anything else   a text, UTF-8 or with a byte order mark
  .html .htm .xhtml            a page
  .epub                        a book
  .jsonl                       a document for each row; a row's sections or
                               documents are kept for models that read pages
  .gz behind one of these      the same, compressed

A document that cannot be read does not keep the others from being read.
"""

import gzip
import os
import sys
from typing import Any, NamedTuple
import zlib

from locost_jax.data import markup
from locost_jax.data import pages
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.summarizing import texts

_ROWS = ('.jsonl', '.jsonl.gz')
_PAGES = ('.html', '.htm', '.xhtml', '.html.gz', '.htm.gz')
_BOOKS = ('.epub',)
_TEXTS = ('.txt', '.md', '.txt.gz', '.md.gz')
READABLE = _TEXTS + _PAGES + _BOOKS + _ROWS
_NAMED = 4  # files passed over that are named, the others are counted


class Document(NamedTuple):
  """A text, what to call it and where it came from."""

  id: str
  text: str
  source: str  # the file's path as given, '-' for standard input
  as_read: Any = None  # what a Summarizer reads, see `texts`; None: the text


def read(names, input_field='document', tell=print):
  """Reads all documents.

  Args:
    names: files, directories or '-'.
    input_field: of JSONL rows: where the document is.
    tell: called with a line for each document that cannot be read, and for
      files of a directory that were passed over.

  Returns:
    (list of Document in the order of their names, number that could not be
    read).
  """
  documents, failures = [], 0
  for name in names:
    try:
      paths = [name] if name == '-' else find(name, tell)
    except InputError as error:
      paths, failures = [], failures + 1
      tell(f'error: {error}')
    for path in paths:
      for found in _read_file(path, input_field):
        if isinstance(found, Document):
          documents.append(found)
        else:
          failures += 1
          tell(f'error: {found}')
  return documents, failures


def find(name, tell=print):
  """Returns the files of a name: itself, or the readable ones below it.

  Args:
    name: a file or a directory; hidden files and directories are passed over.
    tell: called with a line where others were passed over.

  Raises:
    InputError: there is nothing of this name, or nothing readable in it.
  """
  if not os.path.exists(name):
    raise InputError(f'{name}: no such file')
  if not os.path.isdir(name):
    return [name]
  paths = []
  for folder, folders, files in os.walk(name):
    folders[:] = sorted(f for f in folders if not f.startswith('.'))
    paths += [
        os.path.join(folder, file) for file in files if not file.startswith('.')
    ]
  readable = sorted(p for p in paths if p.lower().endswith(READABLE))
  others = sorted(set(paths) - set(readable))
  if not readable:
    raise InputError(
        f'{name}: a directory with nothing readable in it; '
        f'expected {" ".join(READABLE)}'
    )
  if others:
    shown = ', '.join(os.path.relpath(p, name) for p in others[:_NAMED])
    more = f' and {len(others) - _NAMED} more' if len(others) > _NAMED else ''
    tell(f'{name}: passed over {len(others)} of other kinds: {shown}{more}')
  return readable


def _read_file(path, input_field):
  """Yields the Documents of a file and an InputError for each bad one."""
  try:
    lower = path.lower()
    if lower.endswith(_ROWS):
      count = 0
      for count, (number, line) in enumerate(sources.read_lines(path), start=1):
        yield _read_row(path, number, line, input_field)
      if not count:
        yield InputError(f'{path}: holds no document')
      return
    data = _read_bytes(path)
    where = 'standard input' if path == '-' else path
    text = (
        markup.html_text(data, where)
        if lower.endswith(_PAGES)
        else markup.epub_text(data, where)
        if lower.endswith(_BOOKS)
        else markup.decode(data, where)
    )
    yield Document(path, text, path) if text.strip() else (
        InputError(f'{where}: an empty document')
    )
  except InputError as error:
    yield error


def _read_row(path, number, line, input_field):
  """Returns the Document of a row of JSONL, or an InputError."""
  where = f'{path}:{number}'
  try:
    row = sources.parse_row(path, number, line, ())
    sources.check_parts(where, row)
    parts = {
        field: row[field] for field in pages.FIELDS.values() if row.get(field)
    }
    if input_field in row or not parts:
      row = sources.parse_row(path, number, line, (input_field,))
      parts['document'] = row[input_field]
    text = texts.text_of(parts).text
  except InputError as error:
    return error
  if not text.strip():
    return InputError(f'{where}: an empty document')
  name = str(row['id']) if 'id' in row else where
  return Document(
      name, text, path, parts if parts.keys() - {'document'} else None
  )


def _read_bytes(path):
  try:
    if path == '-':
      return sys.stdin.buffer.read()
    with (gzip.open if path.endswith('.gz') else open)(path, 'rb') as f:
      return f.read()
  except (OSError, EOFError, zlib.error) as error:
    reason = getattr(error, 'strerror', None) or str(error)
    raise InputError(f'{path}: cannot be read: {reason}') from None
