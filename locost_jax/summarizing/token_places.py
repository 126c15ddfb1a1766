"""Where the tokens that a model reads are in the text of their document.

Pages change only white space. The n-th non-space character of the pages is
therefore the n-th of the text, and a token's place in a page gives its place in
the text.
"""

import dataclasses
import sys
import types

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
  front = len(vocabulary_lib.surround(vocabulary, [])) - 1
  if pages is None:
    query = reading.front_of(text)
    _, ends = vocabulary.encode_with_ends(query + text.text)
    ends = [max(end - len(query), 0) or -1 for end in ends]
    after = 1 + len(vocabulary_lib.after_input(vocabulary))
    if max_input_length is not None:
      ends = ends[: max_input_length - front - after]
    return [np.array([-1] * front + ends + [-1] * after)]
  if pages.are_chunks:
    parts = page_reading.chunk_texts(text, pages)
    ends = _ends_in_text(vocabulary, text.text, parts)
  else:
    parts, _ = page_reading.page_texts(vocabulary, text, pages)
    ends = _ends_in_text(vocabulary, text.text, parts, pages.empty_page)
  # Ends are cut, padded and marked as ids are.
  as_ids = types.SimpleNamespace(
      encode=lambda part: (
          part
          if isinstance(part, list)
          else [-1] * len(vocabulary.encode(part))
      ),
      bos_id=-1 if front else None,
      eos_id=-1,
      pad_id=-1,
  )
  most = max_input_length or sys.maxsize
  pages = dataclasses.replace(pages, empty_page='')
  made = pages_lib.tokenise(ends, text.query, pages, most, as_ids)
  found = [np.array(page) for page in made if page]
  return found or [np.full(front + 1, -1)]


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


def _letters(text):
  """Returns the indices of the non-space characters of a text."""
  return np.flatnonzero([not letter.isspace() for letter in text])
