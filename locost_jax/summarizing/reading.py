"""How a model reads a document: its tokens, and where they stand in its text.

Most models read a document as one sequence. One that reads pages
(`models.page_forms`) gets them cut as in training, by `data.pages`; a page
without tokens is left out where it weighs nothing.

A model that reads chunks gets as many as the document takes; max_input_length
counts its tokens, the marks of chunks left out.

Pages change white space only. So the n-th character of the pages that is no
white space is that of the text, and a token's place in a page gives its place
in the text.
"""

import dataclasses
import sys
from typing import NamedTuple

import numpy as np

from locost_jax import models
from locost_jax.data import pages as pages_lib
from locost_jax.errors import InputError
from locost_jax.summarizing import batching
from locost_jax.summarizing import texts
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# The least that a field of `texts.Pages` can be; a page has two marks.
_LEAST = {'num_pages': 1, 'page_length': 3, 'document_length': 0}
# What says how much is read where documents have P pages.
_NOT_OF_CHUNKS = 'num_pages', 'document_length'


class Read(NamedTuple):
  """The tokens of a document.

  Attributes:
    pages: lists of ids, marks included; one where a model reads no pages.
    tokens: what the document has, marks of what is read included.
    dropped: parts of it that are not read, as there are too many.
  """

  pages: list
  tokens: int
  dropped: int = 0


def choose_pages(config, stored, given):
  """Chooses how documents become pages.

  Args:
    config: the model's.
    stored: `config.data` of the run that trained it, or None.
    given: {field of `texts.Pages`: value}, which replace those of the run; None
      is not given.

  Returns:
    `texts.Pages`; None for a model that reads none.

  Raises:
    InputError: an unknown field, a value that cannot be, or a model that reads
      no pages.
  """
  given = {key: value for key, value in given.items() if value is not None}
  _check_given(given)
  forms = models.page_forms(config)
  if not forms:
    for key, value in given.items():
      raise InputError(f'{key}={value!r}: this model reads no pages')
    return None
  most = models.max_positions(config) or texts.LONGEST_PAGE
  # The release's mode has no empty pages: they say something.
  empty_page = '.' if getattr(config, 'padding', '') == 'release' else ''
  chosen = texts.Pages(
      pages=texts.Pages.pages if texts.Pages.pages in forms else forms[0],
      page_length=min(texts.LONGEST_PAGE, most),
      empty_page=empty_page,
  )
  if stored and stored.get('pages'):
    names = [field.name for field in dataclasses.fields(texts.Pages)]
    chosen = texts.Pages(
        **{name: stored[name] for name in names if name in stored}
    )
  chosen = dataclasses.replace(chosen, **given)
  if chosen.pages not in forms:
    raise InputError(
        f'pages={chosen.pages!r} must be one of {", ".join(map(repr, forms))}'
    )
  for key in _NOT_OF_CHUNKS:
    if reads_chunks(chosen) and key in given:
      raise InputError(
          f'{key}={given[key]!r}: this model reads chunks, as many as a '
          'document takes; expected max_input_length, its most tokens'
      )
  for key, least in _LEAST.items():
    if getattr(chosen, key) < least:
      raise InputError(f'{key}={getattr(chosen, key)} must be at least {least}')
  models.check_length(config, chosen.page_length, 'page_length')
  return chosen


def _check_given(given):
  """Raises an InputError for what is no field of `texts.Pages`, or no value."""
  fields = {f.name: type(f.default) for f in dataclasses.fields(texts.Pages)}
  for key, value in given.items():
    if key not in fields:
      raise InputError(
          f'{key}={value!r} is no option of pages: expected one of '
          f'{", ".join(fields)}'
      )
    if not isinstance(value, fields[key]):
      raise InputError(
          f'{key}={value!r} must be of the type {fields[key].__name__}'
      )


def reads_chunks(pages):
  """Whether `texts.Pages`, or None, are chunks: as many as a document takes."""
  return pages is not None and pages.pages in pages_lib.CHUNKS


def read(vocabulary, text, pages=None, max_input_length=None):
  """Returns the tokens of a document as a Read.

  Args:
    vocabulary: whose tokens they are.
    text: a `texts.Text`.
    pages: `texts.Pages`, or None: one sequence.
    max_input_length: tokens that are read of one sequence, or of what becomes
      chunks; None: all. None where there are P pages.
  """
  if pages is None:
    ids = vocabulary_lib.surround(vocabulary, vocabulary.encode(text.text))
    return Read([batching.truncate(ids, max_input_length)], len(ids))
  if reads_chunks(pages):
    parts, most = _chunk_texts(text, pages), max_input_length or sys.maxsize
    made = pages_lib.tokenise(
        parts, '', pages.pages, pages.page_length, most, vocabulary
    )
    cut = 0
    if max_input_length is not None:  # else not tokenised once more
      lengths = [len(vocabulary.encode(part)) for part in parts]
      cut = pages_lib.count_cut(lengths, (), pages.pages, 0, most)
    return Read(made, sum(map(len, made)) + cut)
  parts, unread = _page_texts(vocabulary, text, pages)
  made = pages_lib.tokenise(
      parts, '', pages.pages, pages.page_length, 0, vocabulary, pages.empty_page
  )
  lengths = [len(vocabulary.encode(part)) for part in (*parts, *unread)]
  front = len(pages_lib.front_of('', vocabulary))
  cut = pages_lib.count_cut(
      lengths, [front] * len(parts), pages.pages, pages.page_length, 0
  )
  made = [page for page in made if page]
  made = made or [vocabulary_lib.surround(vocabulary, [])]
  dropped = len(unread) if text.parts else 0
  return Read(made, sum(map(len, made)) + cut, dropped)


def places(vocabulary, text, pages=None, max_input_length=None):
  """Finds where in the text the tokens of `read` end.

  Args:
    vocabulary, text, pages, max_input_length: as in `read`.

  Returns:
    An int array for each of `Read.pages`, -1 at marks, at padding and in a page
    without letters.
  """
  if pages is None:
    _, ends = vocabulary.encode_with_ends(text.text)
    front = len(vocabulary_lib.surround(vocabulary, [])) - 1
    if max_input_length is not None:
      ends = ends[: max_input_length - front - 1]
    return [_with_marks(ends, front)]
  front = len(pages_lib.front_of('', vocabulary))
  room = pages.page_length - front - 1
  if reads_chunks(pages):
    ends = _ends_in_text(vocabulary, text.text, _chunk_texts(text, pages))
    most = max_input_length or sys.maxsize
    if pages.pages == 'chunks':
      chunks = pages_lib.cut(ends[0][:most], room)
    else:
      chunks = pages_lib.pack(ends, room, most)
    if len(chunks) > 1:
      chunks = [chunk + [-1] * (room - len(chunk)) for chunk in chunks]
    return [_with_marks(chunk, front) for chunk in chunks or [[]]]
  parts, _ = _page_texts(vocabulary, text, pages)
  found = [
      _with_marks(ends[:room], front)
      for ends in _ends_in_text(vocabulary, text.text, parts, pages.empty_page)
      if ends
  ]
  return found or [_with_marks([], front)]


def _ends_in_text(vocabulary, text, parts, empty_page=''):
  """Where in the text the tokens of its parts end: a list for each part.

  Tokens of a part without letters, or of what an empty one says, have -1.
  """
  letters, found, before = _letters(text), [], 0
  for part in parts:
    ids, ends = vocabulary.encode_with_ends(part or empty_page)
    own, placed = _letters(part), [-1] * len(ids)
    if len(own):
      last = before + np.maximum(np.searchsorted(own, ends), 1) - 1
      placed = (letters[last] + 1).tolist()
    found.append(placed)
    before += len(own)
  return found


def _chunk_texts(text, pages):
  """Returns the texts that become chunks."""
  row = {'document': text.text}
  return pages_lib.pieces(row, pages.pages, pages.num_pages)


def _with_marks(ends, front):
  return np.array([-1] * front + list(ends) + [-1], int)


def _letters(text):
  """Returns where a text's characters are that are no white space."""
  return np.flatnonzero([not letter.isspace() for letter in text])


def _page_texts(vocabulary, text, pages):
  """Returns the texts of the pages, and what has none."""
  P = pages.num_pages
  if text.parts is not None:
    return pages_lib.document(text.parts, P), text.parts[P:]
  first = pages_lib.first_tokens(text.text, pages.document_length, vocabulary)
  rest = text.text[len(first) :]
  return pages_lib.spatial(first, P), (rest,) if rest else ()
