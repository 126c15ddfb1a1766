"""How a model reads a document: its tokens, and where they stand in its text.

Most models read a document as one sequence. One that reads pages
(`models.page_forms`) gets them cut as in training, by `data.pages`; a page
without tokens is left out where it weighs nothing.

Of a model that reads chunks all of the document becomes chunks.

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
    given: {field of `texts.Pages`: value}, which come before those of the run; None is
      not given.

  Returns:
    `texts.Pages`; None for a model that reads none.

  Raises:
    InputError: a value that cannot be, or a model that reads no pages.
  """
  given = {key: value for key, value in given.items() if value is not None}
  forms = models.page_forms(config)
  if not forms:
    for key, value in given.items():
      raise InputError(f'{key}={value!r}: this model reads no pages')
    return None
  most = models.max_positions(config) or texts.LONGEST_PAGE
  chosen = texts.Pages(page_length=min(texts.LONGEST_PAGE, most))
  if chosen.pages not in forms:
    chosen = dataclasses.replace(chosen, pages=forms[0])
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
  if chosen.num_pages < 1:
    raise InputError(f'num_pages={chosen.num_pages} must be at least 1')
  models.check_length(config, chosen.page_length, 'page_length')
  return chosen


def read(vocabulary, text, pages=None, max_input_length=None):
  """Returns the tokens of a document as a Read.

  Args:
    vocabulary: whose tokens they are.
    text: a `texts.Text`.
    pages: `texts.Pages`, or None: one sequence.
    max_input_length: tokens that are read of one sequence; None: all.
  """
  if pages is None:
    ids = vocabulary_lib.surround(vocabulary, vocabulary.encode(text.text))
    return Read([batching.truncate(ids, max_input_length)], len(ids))
  if pages.pages in pages_lib.CHUNKS:
    made = pages_lib.tokenise(
        _chunk_texts(text, pages),
        '',
        pages.pages,
        pages.page_length,
        sys.maxsize,
        vocabulary,
    )
    return Read(made, sum(map(len, made)))
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
    that only says that it is empty.
  """
  if pages is None:
    ids, ends = vocabulary.encode_with_ends(text.text)
    front = len(vocabulary_lib.surround(vocabulary, [])) - 1
    if max_input_length is not None:
      ends = ends[: max_input_length - front - 1]
    return [_with_marks(ends, front)]
  front = len(pages_lib.front_of('', vocabulary))
  room = pages.page_length - front - 1
  if pages.pages in pages_lib.CHUNKS:
    ends = _ends_in_text(vocabulary, text.text, _chunk_texts(text, pages))
    if pages.pages == 'chunks':
      chunks = pages_lib.cut(ends[0], room)
    else:
      chunks = pages_lib.pack(ends, room, sys.maxsize)
    if len(chunks) > 1:
      chunks = [chunk + [-1] * (room - len(chunk)) for chunk in chunks]
    return [_with_marks(chunk, front) for chunk in chunks or [[]]]
  parts, _ = _page_texts(vocabulary, text, pages)
  found = []
  for part, ends in zip(parts, _ends_in_text(vocabulary, text.text, parts)):
    if ends:
      found.append(_with_marks(ends[:room], front))
    elif not part and pages.empty_page:
      filled = vocabulary.encode(pages.empty_page)[:room]
      found.append(_with_marks([-1] * len(filled), front))
  return found or [_with_marks([], front)]


def _ends_in_text(vocabulary, text, parts):
  """Where in the text the tokens of its parts end: a list for each part."""
  letters, found, before = _letters(text), [], 0
  for part in parts:
    ends = vocabulary.encode_with_ends(part)[1] if part else []
    if ends and not letters.size:
      ends = [-1] * len(ends)
    elif ends:
      count = np.searchsorted(_letters(part), ends)
      last = before + np.maximum(count, 1) - 1
      ends = (letters[last] + 1).tolist()
      before += len(_letters(part))
    found.append(ends)
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
