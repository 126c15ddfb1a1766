"""Which words of a summary were copied, and which stand in the reference."""

import bisect

from locost_jax.summarizing import closest_words

LEAST = 2  # words of a run: single words stand in every long document


def copied_runs(summary, document, least=LEAST):
  """Finds the runs of words that a summary has of its document.

  The extractive fragments of Grusky et al. (2018), figure 1: from left to
  right, each the longest run that stands in the document in the same order.

  Args:
    summary: list of words.
    document: list of words.
    least: words of a run.

  Returns:
    List of (start, end), words of the summary.
  """
  places = {}
  for i, word in enumerate(document):
    places.setdefault(word, []).append(i)
  runs, start = [], 0
  while start < len(summary):
    longest = 0
    for i in places.get(summary[start], ()):
      n = 0
      while (
          start + n < len(summary)
          and i + n < len(document)
          and summary[start + n] == document[i + n]
      ):
        n += 1
      longest = max(longest, n)
    if longest >= least:
      runs.append((start, start + longest))
    start += max(1, longest)
  return runs


def mark(summary, document, references):
  """Cuts a summary into pieces and says what each is.

  Args:
    summary: str.
    document: str; None: it is not known.
    references: list of str.

  Returns:
    List of (text, is copied from the document, stands in a reference); the
    texts together are the summary. Words are compared without case and accents.
  """
  spans = closest_words.word_spans(summary)
  runs = []
  if document is not None:
    runs = copied_runs(
        [word for _, _, word in spans], closest_words.words(document)
    )
  expected = {word for text in references for word in closest_words.words(text)}
  starts = [start for start, _ in runs]
  pieces, at, before = [], 0, None
  for i, (start, end, word) in enumerate(spans):
    place = bisect.bisect_right(starts, i) - 1
    run = place if place >= 0 and i < runs[place][1] else None
    gap = summary[at:start]
    # What stands between two words of a run was copied with them.
    if gap:
      pieces.append((gap, run is not None and run == before, False))
    pieces.append((summary[start:end], run is not None, word in expected))
    at, before = end, run
  if at < len(summary):
    pieces.append((summary[at:], False, False))
  return pieces
