"""Finds and reads the documents that a user names, and their questions.

A name is a file, a directory (every readable file in it and below, sorted) or
'-' for a text on standard input. `documents.readers` has the kinds of files;
a .jsonl file has a document in each row, and all but .epub, .pdf and .docx may
be compressed (.gz). A document that cannot be read, for whatever reason, does
not keep the others from being read. Only regular files are opened, and sizes
are looked at before memory is taken.

What a model reads is a string, or a dict with `query` (a question, optional)
and `document`, `sections` (a list of {heading, text}) or `documents` (a list of
strings). 'discourse' pages are made of sections and 'document' pages of
documents: the text is then theirs, a blank line between them. If these are
missing or have no text, `document` is cut as 'spatial' does.
"""

import dataclasses
import gzip
import os
import re
import sys
from typing import Any, NamedTuple

from locost_jax import files
from locost_jax.config import object_store
from locost_jax.data import pages as pages_lib
from locost_jax.data import sources
from locost_jax.devices import memory
from locost_jax.documents import markup
from locost_jax.documents import readers
from locost_jax.errors import InputError
from locost_jax.errors import visible

LONGEST_PAGE = 1024  # of releases, which do not say
_BETWEEN = '\n\n'  # the parts of a text
_ROWS = ('.jsonl', '.jsonl.gz')
READABLE = (*readers.ENDINGS, *_ROWS)
_NAMED = 4  # files passed over that are named, the others are counted
# By default a document has at most this many bytes, or this part of the memory
# that is free: text, marks and tokens take a multiple of the bytes. All of them
# together take no more than the second part.
_MOST_BYTES, _PART, _PART_OF_ALL = 2**30, 1 / 8, 1 / 2


class Note(str):
  """A line about a document that is read all the same."""


class LeftOut(NamedTuple):
  """A document that has no summary, and why."""

  place: int  # see `Document`
  name: str  # the file, or the file and its row
  reason: str


class Fields(NamedTuple):
  """Fields of JSONL rows."""

  document: str = 'document'
  reference: str | None = None  # the right summary, or a list of all
  query: str = 'query'  # a question about the document


@dataclasses.dataclass(frozen=True)
class Pages:
  """How documents become pages: keys of config.data, see config/keys.py."""

  pages: str = 'spatial'
  num_pages: int = 7
  page_length: int = LONGEST_PAGE
  empty_page: str = ''
  document_length: int = 0
  query_in: str = ''  # 'every' page (''), or the 'first', has the query


class Text(NamedTuple):
  """A document's text, and the parts of it that are pages."""

  text: str
  parts: Any = None  # texts of sections or documents; None: pages are spatial
  query: str = ''  # stands in front of the document, or of its pages
  prefix: str = ''  # stands in front of both


class Document(NamedTuple):
  """A text, what to call it and where it came from."""

  id: str
  text: str
  source: str  # the file's path as given, '-' for standard input
  as_read: Any = None  # what a Summarizer reads, see above; None: the text
  references: tuple = ()  # ((`reference` or `references`, its value),) of a row
  places: tuple = ()  # of `documents.places`: pages, headings, times
  queries: tuple = ()  # of its row
  query: str = ''  # the question that is asked
  place: int = 0  # its index among all that were named, unreadable ones too


def field_of(pages):
  """Returns the field whose parts are the pages; None: pages are spatial."""
  return pages and pages_lib.FIELDS.get(pages.pages)


def text_of(document, pages=None):
  """Returns the Text of a document.

  Args:
    document: see the top of this module, or a Text.

  Raises:
    InputError: neither a string nor a dict, or a dict without text or with a
      field of another form.
  """
  if isinstance(document, Text):
    return document
  if isinstance(document, str):
    return Text(document)
  if not isinstance(document, dict):
    raise InputError(
        f'a document is of the type {type(document).__name__}: expected a '
        'string or a dict'
    )
  sources.check_parts('a document', document)
  text = document.get('document') or ''
  if not isinstance(text, str):
    raise InputError(
        f"a document: field 'document' must be a string, got "
        f'{type(text).__name__}'
    )
  query, of_form = (document.get('query') or '').strip(), field_of(pages)
  if of_form and pages_lib.has_text(document.get(of_form)):
    parts = _parts(document, pages.pages)
    return Text(_BETWEEN.join(parts), tuple(parts), query)
  if document.get('document') is not None:
    return Text(document['document'], query=query)
  for form, field in pages_lib.FIELDS.items():
    if document.get(field):
      return Text(_BETWEEN.join(_parts(document, form)), query=query)
  raise InputError(
      f'a document has the fields {", ".join(map(repr, document)) or "none"}: '
      "expected 'document', 'sections' or 'documents'"
  )


def _parts(document, form):
  return pages_lib.pieces(document, form, len(document[pages_lib.FIELDS[form]]))


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
    (list of Document in the order of their names, list of LeftOut).
  """
  free = memory.free_host_bytes()
  if most is None:
    most = _MOST_BYTES if free is None else min(_MOST_BYTES, int(free * _PART))
  if held is None and free is not None:
    held = int(free * _PART_OF_ALL)
  documents, failures = [], []
  for name in names:
    object_store.forget(name)
  for path in _paths(names, report):
    for found in _read_safely(path, fields, most):
      if isinstance(found, Note):
        report(str(found))
        continue
      is_full, place = False, len(documents) + len(failures)
      if isinstance(found, Document) and held is not None:
        held -= len(found.text)
        is_full = held < 0
      if is_full:
        found = InputError(
            f'{found.id}: all documents together take more than memory '
            'holds; summarise the rest in another call'
        )
      if isinstance(found, Document):
        documents.append(found._replace(place=place))
        continue
      failures.append(left_out(place, path, found))
      report(f'error: {found}')
      if is_full:
        return documents, failures
  return documents, failures


def left_out(place, name, error):
  """Returns the LeftOut of an InputError, which begins with a name."""
  front = re.match(re.escape(str(name)) + r'(:\d+)?(?=: )', str(error))
  name = front[0] if front else str(error).partition(': ')[0]
  reason = str(error).removeprefix(f'{name}: ')
  return LeftOut(place, name, ' '.join(reason.split()))


def inputs(names):
  """Returns the paths of all files that `read` opens for these names."""
  found = _paths(names, lambda _: None)
  return [path for path in found if isinstance(path, str)]


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
    name: a file or a directory, also in a bucket (gs://); hidden files and
      directories are passed over.
    report: called with a line where others were passed over.

  Raises:
    InputError: there is nothing of this name, or nothing readable in it.
  """
  paths = []
  if object_store.is_uri(name):
    bucket, own = object_store.parse(name)
    found = object_store.find(name)
    paths = [f'{object_store.PREFIX}{bucket}/{inner}' for inner in found]
    if own in found:
      return paths
    paths = [path for path in paths if '/.' not in path[len(name) :]]
  elif not os.path.exists(name):
    raise InputError(f'{name or repr(name)}: no such file')
  elif not os.path.isdir(name):
    return [name]
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
    yield from _read_file(path, object_store.local(path), where, fields, most)
  except InputError as error:
    yield InputError(object_store.original(str(error)))
  except Exception as error:  # whatever a parser or a decompressor raises
    reason = getattr(error, 'strerror', None) or (
        f'{type(error).__name__}: {" ".join(str(error).split())}'
    )
    yield InputError(f'{where}: cannot be read: {reason}')


def _read_file(path, opened, where, fields, most):
  """Yields the Documents of a file or its copy; InputErrors for bad rows."""
  lower = path.lower()
  if path != '-':
    files.check_regular(opened)
  if lower.endswith(_ROWS):
    count = 0
    for count, (number, line) in enumerate(
        sources.read_lines(opened, most), start=1
    ):
      yield _read_row(path, number, line, fields)
    if not count:
      raise InputError(f'{path}: holds no document')
    return
  kind = os.path.splitext(lower.removesuffix('.gz'))[1]
  found = readers.read(kind, _read_bytes(opened, where, most), where, most)
  if not found.text.strip():
    raise InputError(f'{where}: an empty document')
  yield from map(Note, found.notes)
  yield Document(path, found.text, path, places=found.places)


def _read_row(path, number, line, fields):
  """Returns the Document of a row of JSONL, or an InputError."""
  where = f'{path}:{number}'
  try:
    row = sources.parse_row(path, number, line, ())
    sources.check_parts(where, {**row, 'query': None})
    parts = {
        field: row[field]
        for field in pages_lib.FIELDS.values()
        if row.get(field)
    }
    if fields.document in row or not parts:
      row = sources.parse_row(path, number, line, (fields.document,))
      parts['document'] = row[fields.document]
    text = text_of(parts).text
    references = _references(where, row, fields.reference)
    queries = questions_of(where, row, fields.query)
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
  """Returns what a row says is right, see `Document`."""
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
        '--query: this model was trained without queries; expected one that '
        'was trained with --config.data.query_field=FIELD, or --ask_anyway'
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
