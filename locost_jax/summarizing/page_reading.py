"""How a model reads the pages or chunks of a document.

For a model that reads pages (its config's `page_forms`), `data.pages` cuts the
document as in training; pages without tokens and without weight are left out. A
model that reads chunks gets as many as the document fills; max_input_length
counts tokens without their bos and eos.
"""

import sys

from locost_jax import models
from locost_jax.config import keys
from locost_jax.data import pages as pages_lib
from locost_jax.errors import InputError
from locost_jax.summarizing import documents
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# Fields that limit the text of a document with P pages, not of chunks.
_NOT_OF_CHUNKS = 'num_pages', 'document_length'


def choose_pages(config, stored, given):
  """Chooses the `documents.Pages` of a model; None if it reads no pages.

  Args:
    stored: `config.data` of the run that trained it, or None.
    given: {field of Pages: value}, replacing the run's; None: not given.

  Raises:
    InputError: an unknown field, an invalid value, or a model that reads no
      pages.
  """
  given = {key: value for key, value in given.items() if value is not None}
  for key, value in given.items():
    if key not in documents.PAGE_OPTIONS:
      raise InputError(
          f'{key}={value!r} is no option of pages: expected one of '
          f'{", ".join(documents.PAGE_OPTIONS)}'
      )
    if problem := keys.DATA[key].kind.problem(key, value):
      raise InputError(f'{key}={value!r}: {problem}')
  forms = config.page_forms
  if not forms:
    for key, value in given.items():
      raise InputError(f'{key}={value!r}: this model reads no pages')
    return None
  most = config.max_positions or documents.LONGEST_PAGE
  # padding='release': an empty page holds a full stop, as in PageSum's release.
  empty_page = '.' if config.padding == 'release' else ''
  chosen = dict(
      pages='spatial' if 'spatial' in forms else forms[0],
      page_length=min(documents.LONGEST_PAGE, most),
      empty_page=empty_page,
  )
  if stored and stored.get('pages'):
    names = *documents.PAGE_OPTIONS, 'query_in'
    chosen = {name: stored[name] for name in names if name in stored}
  chosen = documents.Pages(**{**chosen, **given})
  if chosen.pages not in forms:
    raise InputError(
        f'pages={chosen.pages!r} must be one of {", ".join(map(repr, forms))}'
    )
  for key in _NOT_OF_CHUNKS:
    if chosen.are_chunks and key in given:
      raise InputError(
          f'{key}={given[key]!r}: this model reads chunks, as many as a '
          'document takes; expected max_input_length, which limits its tokens'
      )
  models.check_length(config, chosen.page_length, 'page_length')
  return chosen


def read(vocabulary, text, pages, max_input_length=None):
  """Returns the fields of the `reading.Read` of a document.

  Args:
    max_input_length: maximum tokens of all chunks; None: no limit.
  """
  if pages.are_chunks:
    parts, unread = chunk_texts(text, pages), ()
  else:
    parts, unread = page_texts(vocabulary, text, pages)
  most = max_input_length or sys.maxsize
  made = pages_lib.tokenise(parts, text.query, pages, most, vocabulary)
  if pages.are_chunks and max_input_length is None:  # nothing was cut
    return made, sum(map(len, made))
  lengths = [len(vocabulary.encode(part)) for part in (*parts, *unread)]
  cut = pages_lib.count_cut(lengths, made, text.query, pages, most, vocabulary)
  if pages.are_chunks:
    return made, sum(map(len, made)) + cut
  made = [page for page in made if page]
  made = made or [vocabulary_lib.surround(vocabulary, [])]
  dropped = len(unread) if text.parts else 0
  return made, sum(map(len, made)) + cut, dropped


def chunk_texts(text, pages):
  """Returns the texts that become chunks."""
  row = {'document': text.text}
  return pages_lib.pieces(row, pages.pages, pages.num_pages)


def page_texts(vocabulary, text, pages):
  """Returns the texts of the pages, and the texts that are not read."""
  P = pages.num_pages
  if text.parts is not None:
    return pages_lib.document(text.parts, P), text.parts[P:]
  first = pages_lib.first_tokens(text.text, pages.document_length, vocabulary)
  rest = text.text[len(first) :]
  return pages_lib.spatial(first, P), (rest,) if rest else ()
