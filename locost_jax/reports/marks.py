"""Finds the words of a summary that were copied or are in the reference."""

import bisect
import collections

from locost_jax.summarizing import closest_words

LEAST = 2  # words of a run: every long document has most single words


def find(summary, document):
  """Returns the fragments as (start, end), words of the summary, in order.

  Args:
    summary: list of words.
    document: list of words.
  """
  places = collections.defaultdict(list)
  for j, word in enumerate(document):
    places[word].append(j)
  found, i = [], 0
  while i < len(summary):
    longest = 0
    for j in places.get(summary[i], ()):
      # Skip a match that cannot be longer: its next word differs.
      if summary[i + longest : i + longest + 1] == (
          document[j + longest : j + longest + 1]
      ):
        longest = max(longest, _shared(summary, i, document, j))
    if longest:
      found.append((i, i + longest))
    i += max(longest, 1)
  return found


def _shared(summary, i, document, j):
  """Returns the number of equal words from summary[i] and document[j] on."""
  most, length = min(len(summary) - i, len(document) - j), 0
  while length < most and summary[i + length] == document[j + length]:
    length += 1
  return length


def mark(summary, document, references):
  """Cuts a summary into pieces, and finds those that were copied or expected.

  Args:
    summary: str.
    document: str; None: unknown.
    references: list of str.

  Returns:
    List of (text, is copied from the document, is in a reference); the joined
    texts are the summary. Words are compared without case and accents.
  """
  spans = closest_words.word_spans(summary)
  runs = []
  if document is not None:
    found = find([word for _, _, word in spans], closest_words.words(document))
    runs = [(start, end) for start, end in found if end - start >= LEAST]
  expected = {word for text in references for word in closest_words.words(text)}
  starts = [start for start, _ in runs]
  pieces, at, before = [], 0, None
  for i, (start, end, word) in enumerate(spans):
    place = bisect.bisect_right(starts, i) - 1
    run = place if place >= 0 and i < runs[place][1] else None
    gap = summary[at:start]
    # Text between two words of a run was copied with them.
    if gap:
      pieces.append((gap, run is not None and run == before, False))
    pieces.append((summary[start:end], run is not None, word in expected))
    at, before = end, run
  if at < len(summary):
    pieces.append((summary[at:], False, False))
  return pieces
