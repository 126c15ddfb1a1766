"""Where the tokens that a model reads are in the text of their document.

Pages change only white space. The n-th non-space character of the pages is
therefore the n-th of the text, and a token's place in a page gives its place in
the text.
"""

import sys

import numpy as np

from locost_jax.data import pages as pages_lib
from locost_jax.summarizing import page_reading
from locost_jax.summarizing import reading
from locost_jax.vocabularies import vocabulary as vocabulary_lib


def places(vocabulary, text, pages=None, max_input_length=None):
  """Finds the end in the text of each token of `read`.

  Returns:
    An int array for each of `Read.pages`, -1 at bos, eos, padding, the query
    and in a page without letters.
  """
  if pages is None:
    query = reading.front_of(text)
    _, ends = vocabulary.encode_with_ends(query + text.text)
    ends = [max(end - len(query), 0) or -1 for end in ends]
    front = len(vocabulary_lib.surround(vocabulary, [])) - 1
    after = len(vocabulary_lib.after_input(vocabulary))
    if max_input_length is not None:
      ends = ends[: max_input_length - front - 1 - after]
    return [_with_marks(ends + [-1] * after, front)]
  front, later = map(len, pages_lib.two_fronts(text.query, pages, vocabulary))
  first, room = (pages.page_length - marks - 1 for marks in (front, later))
  if pages.are_chunks:
    ends = _ends_in_text(
        vocabulary, text.text, page_reading.chunk_texts(text, pages)
    )
    most = max_input_length or sys.maxsize
    if pages.pages == 'chunks':
      chunks = pages_lib.cut(ends[0][:most], room, first)
    else:
      chunks = pages_lib.pack(ends, room, most, first)
    rooms = [(first, front)] + [(room, later)] * (len(chunks) - 1)
    if len(chunks) > 1:
      chunks = [c + [-1] * (n - len(c)) for c, (n, _) in zip(chunks, rooms)]
    return [_with_marks(c, n) for c, (_, n) in zip(chunks or [[]], rooms)]
  parts, _ = page_reading.page_texts(vocabulary, text, pages)
  found = []
  for ends in _ends_in_text(vocabulary, text.text, parts, pages.empty_page):
    if ends:
      own = later if found else front
      found.append(_with_marks(ends[: pages.page_length - own - 1], own))
  return found or [_with_marks([], front)]


def summary_tokens(summarizer, summary):
  """Returns the ids of a summary given as text, without the start token."""
  vocabulary = summarizer.vocabulary
  tokens = vocabulary_lib.surround(vocabulary, vocabulary.encode(summary))
  return tokens[1:] if summarizer.settings.start == 'bos' else tokens


def _ends_in_text(vocabulary, text, parts, empty_page=''):
  """Returns the ends in the text of the tokens of its parts, a list per part.

  Tokens of a part without letters, or of `empty_page`, have -1.
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


def _with_marks(ends, front):
  return np.array([-1] * front + list(ends) + [-1], int)


def _letters(text):
  """Returns the indices of the non-space characters of a text."""
  return np.flatnonzero([not letter.isspace() for letter in text])
