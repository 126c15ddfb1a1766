"""Cuts a document into the passages of its page."""

import re

import numpy as np

from locost_jax.data import text as text_lib

LONGEST = 1200  # characters of a passage; longer paragraphs are cut
_LONGEST_OF_WORDS = 300  # of a text without sentences, such as captions
_WORD = re.compile(r'\S{1,30}')  # or a part of one, where blanks are rare


def cut(text):
  """Finds the passages of a text: its paragraphs; long ones are cut.

  Paragraphs of more than LONGEST characters are cut at the ends of sentences,
  into parts as even as the sentences allow. A longer sentence is cut between
  words: subtitles often have no sentences.

  Returns:
    A list of (start, end), in order, without white space at their ends.
  """
  passages = []
  for start, end in text_lib.paragraph_spans(text):
    if end - start <= LONGEST:
      passages.append((start, end))
      continue
    spans = text_lib.sentence_spans(text[start:end])
    stops = [start + stop for _, stop in spans]
    for first, last in _join(text, start, stops, LONGEST):
      if last - first <= LONGEST:
        passages.append((first, last))
      else:
        ends = [word.end() for word in _WORD.finditer(text, first, last)]
        passages += _join(text, first, ends, _LONGEST_OF_WORDS)
  return passages


def owners(ends, passages):
  """Finds the passage of each token.

  Args:
    ends: for each token its end in the text, in characters; -1 at marks.
    passages: list of (start, end) in the text, in order.

  Returns:
    int [len(ends)]: the passage that the token's last character lies in or
    follows. Text before the first passage belongs to it. -1 at marks.
  """
  ends = np.array(ends, int)
  starts = np.array([start for start, _ in passages])
  found = np.searchsorted(starts, ends - 1, 'right') - 1
  return np.where(ends < 0, -1, np.maximum(found, 0))


def _join(text, start, stops, most):
  """Joins units of a text into parts of about `most` characters.

  Args:
    start: of the first unit.
    stops: the end of each unit.
    most: a part has at most this many characters, unless it is one unit.

  Returns:
    A list of (start, end) of parts as even as the units allow.
  """
  parts, begin, last, end = [], start, start, stops[-1]
  for stop in stops:
    number = -(-(end - begin) // most)
    if (stop - begin) * number > end - begin and last > begin:
      parts.append((begin, last))
      begin = last + len(text[last:stop]) - len(text[last:stop].lstrip())
    last = stop
  return [*parts, (begin, end)]
