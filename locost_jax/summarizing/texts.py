"""The text of a document, and the parts of it that are pages.

A document is a string, or a dict with `query` (a question, optional) and
`document`, `sections` (a list of {heading, text}) or `documents` (a list of
strings). 'discourse' reads sections and 'document' documents: the text is then
theirs, a blank line between them. If these are missing or have no text,
`document` is cut as 'spatial' does.
"""

import dataclasses
import os
from typing import Any, NamedTuple

from locost_jax.data import pages as pages_lib
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.errors import visible

FORMS = pages_lib.FORMS
LOCALITIES = pages_lib.LOCALITIES
LONGEST_PAGE = 1024  # of releases, which do not say
_BETWEEN = '\n\n'  # the parts of a text


@dataclasses.dataclass(frozen=True)
class Pages:
  """How documents become pages: keys of config.data, see configs/default.py."""

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


def field_of(pages):
  """Returns the field whose parts are the pages; None: pages are spatial."""
  return pages and pages_lib.FIELDS.get(pages.pages)


def text_of(document, pages=None):
  """Returns the Text of a document.

  Args:
    document: see the top of this module, or a Text.
    pages: Pages, or None.

  Raises:
    InputError: neither a string nor a dict, or a dict without text or with a
      field of another form.
  """
  if isinstance(document, Text):
    return document
  if isinstance(document, str):
    return Text(document)
  _check(document)
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


def _check(document):
  """Raises an InputError for what is no dict as at the top of this module."""
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


def _parts(document, form):
  return pages_lib.pieces(document, form, len(document[pages_lib.FIELDS[form]]))


def check_is_text(document, pages, name):
  """Returns the Text of a document.

  Raises:
    InputError: an empty text, or the name of a file.
  """
  is_short = isinstance(document, str) and len(document) < 1000
  if is_short and os.path.isfile(document):
    raise InputError(
        f'{visible(document)}: is the name of a file; expected a text, such as '
        f'those of locost_jax.read({document!r})'
    )
  text = text_of(document, pages)
  if not text.text.strip():
    raise InputError(f'{name} is empty: expected some text')
  return text
