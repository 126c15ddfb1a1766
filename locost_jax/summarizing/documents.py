"""Defines a document: its text and parts, a row of JSONL, its question.

A model reads a string, or a dict with `query` (a question, optional)
and `document`, `sections` (a list of {heading, text}) or `documents` (a list of
strings). 'discourse' pages are made of sections and 'document' pages of
documents: the text is then theirs, a blank line between them. If these are
missing or have no text, `document` is cut as 'spatial' does.
"""

import dataclasses
import re
from typing import Any, NamedTuple

from locost_jax.data import pages as pages_lib
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.errors import one_line
from locost_jax.errors import visible

LONGEST_PAGE = 1024  # of releases, which do not say
_BETWEEN = '\n\n'  # the parts of a text


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

  @property
  def are_chunks(self):
    """Whether there are as many as the document fills."""
    return self.pages in pages_lib.CHUNKS


# The fields of Pages that users choose; query_in is as trained.
PAGE_OPTIONS = tuple(
    field.name
    for field in dataclasses.fields(Pages)
    if field.name != 'query_in'
)


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
  query: str = ''  # the question: of its row, then the one that is asked
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
  text = {'document': document.get('document') or ''}
  sources.check_texts('a document', text, text)
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
      f'a document has the fields {sources.show_names(document)}: '
      "expected 'document', 'sections' or 'documents'"
  )


def _parts(document, form):
  return pages_lib.pieces(document, form, len(document[pages_lib.FIELDS[form]]))


def left_out(place, name, error):
  """Returns the LeftOut of an InputError, which begins with a name."""
  front = re.match(re.escape(str(name)) + r'(:\d+)?(?=: )', str(error))
  name = front[0] if front else str(error).partition(': ')[0]
  reason = str(error).removeprefix(f'{name}: ')
  return LeftOut(place, name, one_line(reason))


def read_row(path, number, line, fields):
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
      sources.check_texts(where, row, (fields.document,))
      parts['document'] = row[fields.document]
    text = text_of(parts).text
    references = _references(where, row, fields.reference)
    query = question_of(where, row, fields.query)
    name = sources.id_of(where, row) or where
  except InputError as error:
    return error
  if not text.strip():
    return InputError(f'{where}: an empty document')
  return Document(
      name,
      text,
      path,
      parts if parts.keys() - {'document'} else None,
      references=references,
      query=query,
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
        f'{sources.show_names(row)}'
    )
  raise InputError(
      f'{where}: field {field!r} (--reference_field) must be a string, or a '
      'list of strings'
  )


def question_of(where, row, field):
  """Returns the question of a row, '' if it has none."""
  query = row.get(field) or ''
  if 'queries' in row or not isinstance(query, str):
    raise InputError(
        f"{where}: expected a text in {field!r}, and no 'queries': a row for "
        'each question'
    )
  return query.strip()


def ask(documents, query, trained, anyway, report):
  """Returns the documents with the question that is asked about each.

  A question stands in front of the document, or of its pages, as in training.

  Args:
    query: of --query, asked of every document; None: those of the rows.
    trained: whether the model was trained with queries; None: unknown.
    anyway: whether to ask a model that was not.
    report: called with a line for the user.

  Raises:
    InputError: --query with a model that was trained without queries, or with
      a row that has a query of its own.
  """
  own = sum(bool(document.query) for document in documents)
  if query and own:
    raise InputError(
        f'--query: {own} of the rows have a query of their own; expected '
        '--query or these'
    )
  if trained is False and query and not anyway:
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
  asked = [
      document._replace(
          query=((query or document.query) if asks else '').strip()
      )
      for document in documents
  ]
  without = [document.id for document in asked if not document.query]
  if trained and without:
    report(
        f'{visible(without[0])}'
        + (f' and {len(without) - 1} more' if without[1:] else '')
        + ': no question, but this model was trained with queries; --query asks'
    )
  return asked
