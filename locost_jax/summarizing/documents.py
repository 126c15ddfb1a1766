"""Finds and reads the documents that a user names.

A name is a file, a directory (every readable file in it and below, sorted) or
'-' for a text on standard input. Kinds by ending:

  .txt and anything else       a text, UTF-8 or with a byte order mark
  .md                          Markdown
  .html .htm .xhtml            a page
  .epub                        a book
  .pdf .docx                   extra `documents`
  .vtt .srt                    subtitles
  .jsonl                       a document for each row; a row's sections or
                               documents are kept for models that read pages
  .gz behind one of these      the same, compressed (not .epub .pdf .docx)

A document that cannot be read, for whatever reason, does not keep the others
from being read. Only regular files are opened, and sizes are looked at before
memory is taken.
"""

import gzip
import os
import sys
from typing import Any, NamedTuple

from locost_jax import files
from locost_jax.data import pages
from locost_jax.data import sources
from locost_jax.devices import memory
from locost_jax.documents import docx
from locost_jax.documents import epub
from locost_jax.documents import markdown
from locost_jax.documents import markup
from locost_jax.documents import pdf
from locost_jax.documents import places
from locost_jax.documents import subtitles
from locost_jax.documents.places import Placed
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import questions
from locost_jax.summarizing import texts

_ROWS = ('.jsonl', '.jsonl.gz')
_TEXTS = ('.txt', '.txt.gz')
_NAMED = 4  # files passed over that are named, the others are counted
# By default a document has at most this many bytes, or this part of the memory
# that is free: text, marks and tokens take a multiple of the bytes. All of them
# together take no more than the second part.
_MOST_BYTES, _PART, _PART_OF_ALL = 2**30, 1 / 8, 1 / 2


class Note(str):
  """A line about a document that is read all the same."""


class Document(NamedTuple):
  """A text, what to call it and where it came from."""

  id: str
  text: str
  source: str  # the file's path as given, '-' for standard input
  as_read: Any = None  # what a Summarizer reads, see `texts`; None: the text
  references: tuple = ()  # ((`reference` or `references`, its value),) of a row
  places: tuple = ()  # of `documents.places`: pages, headings, times
  queries: tuple = ()  # of its row
  query: str = ''  # the question that is asked


def read(
    names,
    input_field='document',
    report=print,
    most=None,
    held=None,
    reference_field=None,
    query_field='query',
):
  """Reads all documents.

  Args:
    names: files, directories or '-'.
    input_field: of JSONL rows: where the document is.
    report: called with a line for each document that cannot be read, and for
      files of a directory that were passed over.
    most: bytes of a document, also of what a file unpacks to; None: an eighth
      of the free memory, at most 1 GiB.
    held: characters of all documents; None: half of the free memory.
    reference_field: of JSONL rows: where the right summary is, or the list of
      all that count as right; None: it is not read.
    query_field: of JSONL rows: where a question about the document is.

  Returns:
    (list of Document in the order of their names, number that could not be
    read).
  """
  free = memory.free_host_bytes()
  if most is None:
    most = _MOST_BYTES if free is None else min(_MOST_BYTES, int(free * _PART))
  if held is None and free is not None:
    held = int(free * _PART_OF_ALL)
  documents, failures = [], 0
  for path in _paths(names, report):
    fields = input_field, reference_field, query_field
    for found in _read_safely(path, fields, most):
      if isinstance(found, Note):
        report(str(found))
        continue
      if isinstance(found, Document) and held is not None:
        held -= len(found.text)
        if held < 0:
          found = InputError(
              f'{found.id}: all documents together take more than memory '
              'holds; summarise the rest in another call'
          )
      if isinstance(found, Document):
        documents.append(found)
        continue
      failures += 1
      report(f'error: {found}')
      if held is not None and held < 0:
        return documents, failures
  return documents, failures


def inputs(names):
  """Returns the paths of all files that `read` opens for these names."""
  return [
      path for path in _paths(names, lambda _: None) if isinstance(path, str)
  ]


def _paths(names, report):
  """Yields the paths of names; an InputError for a name without any."""
  for name in names:
    try:
      yield from [name] if name == '-' else find(name, report)
    except InputError as error:
      yield error


def find(name, report=print):
  """Returns the files of a name: itself, or the readable ones below it.

  Args:
    name: a file or a directory; hidden files and directories are passed over.
    report: called with a line where others were passed over.

  Raises:
    InputError: there is nothing of this name, or nothing readable in it.
  """
  if not os.path.exists(name):
    raise InputError(f'{name or repr(name)}: no such file')
  if not os.path.isdir(name):
    return [name]
  paths = []
  for folder, folders, inside in os.walk(name):
    folders[:] = sorted(f for f in folders if not f.startswith('.'))
    paths += [
        os.path.join(folder, file)
        for file in inside
        if not file.startswith('.')
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
    report(f'{name}: passed over {len(others)} of other kinds: {shown}{more}')
  return readable


def _read_safely(path, fields, most):
  """Yields what `_read_file` does, and an InputError for its exception."""
  if isinstance(path, InputError):
    yield path
    return
  where = 'standard input' if path == '-' else path
  try:
    yield from _read_file(path, where, fields, most)
  except InputError as error:
    yield error
  except Exception as error:  # whatever a parser or a decompressor raises
    reason = getattr(error, 'strerror', None) or (
        f'{type(error).__name__}: {" ".join(str(error).split())}'
    )
    yield InputError(f'{where}: cannot be read: {reason}')


def _read_file(path, where, fields, most):
  """Yields the Documents of a file and an InputError for each bad row."""
  lower = path.lower()
  if path != '-':
    files.check_regular(path)
  if lower.endswith(_ROWS):
    count = 0
    for count, (number, line) in enumerate(
        sources.read_lines(path, most), start=1
    ):
      yield _read_row(path, number, line, *fields)
    if not count:
      raise InputError(f'{path}: holds no document')
    return
  data = _read_bytes(path, where, most)
  kind = os.path.splitext(lower.removesuffix('.gz'))[1]
  found = READERS.get(kind, _read_text)(data, where, most)
  if not found.text.strip():
    raise InputError(f'{where}: an empty document')
  yield from map(Note, found.notes)
  yield Document(path, found.text, path, places=found.places)


def _read_text(data, where, most):
  del most
  return Placed(markup.decode(data, where))


def _read_markdown(data, where, most):
  del most
  return markdown.read(markup.decode(data, where))


def _read_subtitles(data, where, most):
  del most
  return subtitles.read(markup.decode(data, where), where)


def _read_srt(data, where, most):
  """Reads SubRip, which declares no encoding: UTF-8, or else windows-1252."""
  del most
  try:
    return subtitles.read(markup.decode(data, where), where)
  except markup.NotDecoded:
    text = markup.decode(data, where, 'cp1252')
    note = f'{where}: not UTF-8; read as windows-1252'
    return subtitles.read(text, where)._replace(notes=(note,))


def _read_html(data, where, most):
  del most
  return _placed(*markup.html_headings(data, where))


def _read_epub(data, where, most):
  return _placed(*epub.read_headings(data, where, most))


def _placed(text, headings):
  return Placed(text, tuple(places.of_heading(*one) for one in headings))


# Ending -> a reader: (bytes, name in errors, most bytes) -> Placed.
READERS = {
    '.md': _read_markdown,
    '.html': _read_html,
    '.htm': _read_html,
    '.xhtml': _read_html,
    '.epub': _read_epub,
    '.pdf': pdf.read,
    '.docx': docx.read,
    '.vtt': _read_subtitles,
    '.srt': _read_srt,
}
_PACKED = ('.epub', '.pdf', '.docx')  # compressed by themselves
READABLE = (
    *_TEXTS,
    *READERS,
    *(f'{kind}.gz' for kind in READERS if kind not in _PACKED),
    *_ROWS,
)


def _read_row(path, number, line, input_field, reference_field, query_field):
  """Returns the Document of a row of JSONL, or an InputError."""
  where = f'{path}:{number}'
  try:
    row = sources.parse_row(path, number, line, ())
    sources.check_parts(where, {**row, 'query': None})
    parts = {
        field: row[field] for field in pages.FIELDS.values() if row.get(field)
    }
    if input_field in row or not parts:
      row = sources.parse_row(path, number, line, (input_field,))
      parts['document'] = row[input_field]
    text = texts.text_of(parts).text
    references = _references(where, row, reference_field)
    queries = questions.of_row(where, row, query_field)
  except InputError as error:
    return error
  if not text.strip():
    return InputError(f'{where}: an empty document')
  name = str(row['id']) if 'id' in row else where
  return Document(
      name,
      text,
      path,
      parts if parts.keys() - {'document'} else None,
      references=references,
      queries=queries,
  )


def _references(where, row, field):
  """Returns what a row says is right, see `Document.references`."""
  if field is None:
    return ()
  found = row.get(field)
  if isinstance(found, str):
    return (('reference', found),)
  if isinstance(found, list) and found:
    if all(isinstance(text, str) for text in found):
      return (('references', found),)
  if field not in row:
    raise InputError(
        f'{where}: has no field {field!r} (--reference_field); its fields are '
        f'{", ".join(map(visible, row))}'
    )
  raise InputError(
      f'{where}: field {field!r} (--reference_field) must be a string, or a '
      'list of strings'
  )


def _read_bytes(path, where, most):
  """Returns the bytes of a file, decompressed, or of standard input.

  Raises:
    InputError: there are more than `most`.
  """
  if path == '-':
    data = sys.stdin.buffer.read(most + 1)
  else:
    markup.check_size(where, os.path.getsize(path), most)
    with (gzip.open if path.endswith('.gz') else open)(path, 'rb') as file:
      data = file.read(most + 1)
  if len(data) > most:
    raise InputError(
        f'{where}: holds more than {most:,} bytes, the most of a document '
        '(--max_document_bytes)'
    )
  return data
