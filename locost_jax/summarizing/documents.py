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
from typing import NamedTuple

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


class Fields(NamedTuple):
  """Fields of JSONL rows."""

  document: str = 'document'
  reference: str | None = None  # the right summary, or a list of all
  query: str = 'query'  # a question about the document


def read(names, fields=Fields(), report=print, most=None, held=None):
  """Reads all documents.

  Args:
    names: files, directories or '-'.
    report: called with a line for each document that cannot be read, and for
      files of a directory that were passed over.
    most: bytes of a document, also of what a file unpacks to; None: an eighth
      of the free memory, at most 1 GiB.
    held: characters of all documents; None: half of the free memory.

  Returns:
    (list of `texts.Document` in the order of their names, number that could not
    be read).
  """
  free = memory.free_host_bytes()
  if most is None:
    most = _MOST_BYTES if free is None else min(_MOST_BYTES, int(free * _PART))
  if held is None and free is not None:
    held = int(free * _PART_OF_ALL)
  documents, failures = [], 0
  for path in _paths(names, report):
    for found in _read_safely(path, fields, most):
      if isinstance(found, Note):
        report(str(found))
        continue
      if isinstance(found, texts.Document) and held is not None:
        held -= len(found.text)
        if held < 0:
          found = InputError(
              f'{found.id}: all documents together take more than memory '
              'holds; summarise the rest in another call'
          )
      if isinstance(found, texts.Document):
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
      yield _read_row(path, number, line, fields)
    if not count:
      raise InputError(f'{path}: holds no document')
    return
  data = _read_bytes(path, where, most)
  kind = os.path.splitext(lower.removesuffix('.gz'))[1]
  if kind in READERS:
    found = READERS[kind](data, where, most)
  else:
    found = Placed(markup.decode(data, where))
  if not found.text.strip():
    raise InputError(f'{where}: an empty document')
  yield from map(Note, found.notes)
  yield texts.Document(path, found.text, path, places=found.places)


def _read_srt(data, where, most):
  """Reads SubRip, which declares no encoding: UTF-8, or else windows-1252."""
  del most
  try:
    return subtitles.read(markup.decode(data, where), where)
  except markup.NotDecoded:
    text = markup.decode(data, where, 'cp1252')
    note = f'{where}: not UTF-8; read as windows-1252'
    return subtitles.read(text, where)._replace(notes=(note,))


def _placed(text, headings):
  return Placed(text, tuple(places.of_heading(*one) for one in headings))


def _read_html(data, where, most):
  del most
  return _placed(*markup.html_headings(data, where))


# Ending -> a reader: (bytes, name in errors, most bytes) -> Placed.
READERS = {
    '.md': lambda data, where, _: markdown.read(markup.decode(data, where)),
    **dict.fromkeys(('.html', '.htm', '.xhtml'), _read_html),
    '.epub': lambda *given: _placed(*epub.read_headings(*given)),
    '.pdf': pdf.read,
    '.docx': docx.read,
    '.vtt': lambda data, where, _: subtitles.read(
        markup.decode(data, where), where
    ),
    '.srt': _read_srt,
}
_PACKED = ('.epub', '.pdf', '.docx')  # compressed by themselves
READABLE = (
    *_TEXTS,
    *READERS,
    *(f'{kind}.gz' for kind in READERS if kind not in _PACKED),
    *_ROWS,
)


def _read_row(path, number, line, fields):
  """Returns the Document of a row of JSONL, or an InputError."""
  where = f'{path}:{number}'
  try:
    row = sources.parse_row(path, number, line, ())
    sources.check_parts(where, {**row, 'query': None})
    parts = {
        field: row[field] for field in pages.FIELDS.values() if row.get(field)
    }
    if fields.document in row or not parts:
      row = sources.parse_row(path, number, line, (fields.document,))
      parts['document'] = row[fields.document]
    text = texts.text_of(parts).text
    references = _references(where, row, fields.reference)
    queries = questions_of(where, row, fields.query)
  except InputError as error:
    return error
  if not text.strip():
    return InputError(f'{where}: an empty document')
  name = str(row['id']) if 'id' in row else where
  return texts.Document(
      name,
      text,
      path,
      parts if parts.keys() - {'document'} else None,
      references=references,
      queries=queries,
  )


def _references(where, row, field):
  """Returns what a row says is right, see `texts.Document`."""
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


def questions_of(where, row, field):
  """Returns the questions of a row: of its query field, or of `queries`."""
  one, several = row.get(field), row.get('queries')
  if one is not None and several is not None:
    raise InputError(
        f"{where}: has the fields {field!r} and 'queries'; expected one of them"
    )
  found = [] if one is None else [one]
  if several is not None:
    found = several
  if not isinstance(found, list) or not all(
      isinstance(query, str) for query in found
  ):
    raise InputError(
        f'{where}: expected a text in {field!r}, or a list of texts in '
        "'queries'"
    )
  return tuple(query.strip() for query in found if query.strip())


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


def ask(documents, queries, trained, anyway, report):
  """Returns the documents with their questions, one Document for each.

  A question stands in front of the document, or of its pages, as in training. A
  document with several questions is read once for each.

  Args:
    queries: of --query; asked of every document.
    trained: whether the model was trained with queries; None: unknown.
    anyway: whether to ask a model that was not.
    report: called with a line for the user.

  Raises:
    InputError: --query with a model that was trained without queries, or with
      a row that has a query of its own.
  """
  own = sum(bool(document.queries) for document in documents)
  if queries and own:
    raise InputError(
        f'--query: {own} of the rows have a query of their own; expected '
        '--query or these'
    )
  if trained is False and queries and not anyway:
    raise InputError(
        '--query: this model was trained without queries; --ask_anyway asks it '
        'all the same'
    )
  asks = anyway or trained is not False
  if own and not asks:
    report(
        f'the queries of {own} rows are not read: this model was trained '
        'without queries; --ask_anyway asks it all the same'
    )
  asked = []
  for document in documents:
    found = (queries or document.queries) if asks else ()
    asked += [
        document._replace(query=query.strip()) for query in found or ('',)
    ]
  more = len(asked) - len(documents)
  if more:
    report(
        f'{len(asked):,} questions about {len(documents):,} '
        f'document{"" if len(documents) == 1 else "s"}: a document is read '
        'again for each question'
    )
  without = [document.id for document in asked if not document.query]
  if trained and without:
    report(
        f'{visible(without[0])}'
        + (f' and {len(without) - 1} more' if without[1:] else '')
        + ': no question, but this model was trained with queries; --query asks'
    )
  return asked
