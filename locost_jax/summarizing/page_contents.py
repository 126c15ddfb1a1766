"""Computes a source page: texts, strips, heat and shared words.

`page_html` renders them.
"""

import bisect
from typing import Any, NamedTuple

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.documents import places as places_lib
from locost_jax.summarizing import closest_words
from locost_jax.summarizing import selected_tokens

COLUMNS = 240  # of a strip
_QUOTED = 420  # maximum characters of a passage shown with a sentence
# A rare word is in at most this share of the passages.
_RARE = 0.1


class Contents(NamedTuple):
  """The contents of a page. Sentences and passages are numbered from 1."""

  quotes: list  # texts of the passages
  sentences: list  # texts of the summary's sentences
  edges: Any  # [P + 1], where passages begin and end, from 0 to 1
  strips: list  # of `make_strip`: the whole summary's, then the sentences'
  heat: Any  # [P], attention per token, 1 where it is highest
  attended_by: list  # for each passage the sentences that attended to it most
  closest_to: list  # for each passage the sentences it is closest to in words
  selected: (
      list  # for each passage (start, end) in its quote; see `selected_tokens`
  )
  is_rare: Any  # word -> whether few passages have it
  copied: list  # for each sentence its Copy list
  copied_from: list  # for each passage its Place list
  places: list  # for each passage where it stands: 'page 3'; '' if unknown
  part_places: list  # for each of `Source.parts` likewise


class Copy(NamedTuple):
  """A word of a sentence that was copied."""

  span: tuple  # (start, end) in the sentence
  number: int  # of its Place
  share: float  # see `copied_words.CopiedWord`


class Place(NamedTuple):
  """A word of a passage that was copied."""

  span: tuple  # (start, end) in the quote
  number: int
  sentence: int  # that has it first


def collect(source, places=()):
  """Computes the contents of the page of a summary.

  Args:
    source: of `attribution.attribute`.

  Returns:
    Contents.
  """
  text = source.text
  quotes = [text_lib.squeeze(text[start:end]) for start, end in source.passages]
  edges = np.append(0, np.cumsum(source.tokens)).astype(float)
  edges /= max(1.0, edges[-1])
  heat = source.mass / np.maximum(source.tokens, 1)
  heat /= heat.max(initial=0) or 1
  return Contents(
      quotes,
      [
          text_lib.squeeze(source.summary[slice(*s.span)])
          for s in source.sentences
      ],
      edges,
      [
          make_strip(source.mass, edges, []),
          *(
              make_strip(s.mass, edges, [m.passage + 1 for m in s.attended])
              for s in source.sentences
          ),
      ],
      heat,
      *_sentences_by_passage(source),
      selected_tokens.spans_in_quotes(
          text,
          source.passages,
          source.selection.spans if source.selection else [],
      ),
      _find_rare_words(quotes),
      *_copies(source),
      [places_lib.label_of(places, span) for span in source.passages],
      [_place_of_part(part, source, places) for part in source.parts or ()],
  )


def _place_of_part(part, source, places):
  first, last = (source.passages[i] for i in part.passages)
  return places_lib.label_of(places, (first[0], last[1]))


def _copies(source):
  """Returns Contents.copied and Contents.copied_from."""
  of_sentence = [[] for _ in source.sentences]
  of_passage = [[] for _ in source.passages]
  sentences = [sentence.span for sentence in source.sentences]
  places = {}  # (start, end) -> number
  for word in source.copied or ():
    i = _containing(sentences, word.span)
    p = _containing(source.passages, word.place)
    if i is None or p is None:
      continue
    if word.place not in places:
      places[word.place] = len(places) + 1
      quoted = _in_quote(source.text, source.passages[p], word.place)
      of_passage[p].append(Place(quoted, places[word.place], i + 1))
    span = _in_quote(source.summary, sentences[i], word.span)
    of_sentence[i].append(Copy(span, places[word.place], word.share))
  return of_sentence, [sorted(found) for found in of_passage]


def _containing(spans, span):
  """Returns the index of the span that contains another, or None."""
  starts = [start for start, _ in spans]
  i = bisect.bisect_right(starts, span[0]) - 1
  return i if i >= 0 and span[1] <= spans[i][1] else None


def _in_quote(text, part, word):
  """Returns (start, end) of a word in the quote of a part of a text."""
  ((found,),) = selected_tokens.spans_in_quotes(text, [part], [word])
  return found


def _sentences_by_passage(source):
  """Returns Contents.attended_by and Contents.closest_to."""
  attended_by = [[] for _ in source.passages]
  closest_to = [[] for _ in source.passages]
  for i, sentence in enumerate(source.sentences, start=1):
    for match in sentence.attended:
      attended_by[match.passage].append(i)
    if sentence.closest:
      closest_to[sentence.closest.passage].append(i)
  return attended_by, closest_to


def make_strip(mass, edges, top):
  """Makes the strip of one sentence: for each column its mass and its passage.

  Args:
    mass: [P].
    edges: [P + 1], where passages begin and end, from 0 to 1.
    top: numbers of the passages to point at.

  Returns:
    The dict that the page's script reads: mass and passage, lists of COLUMNS
    values, and top.
  """
  if not edges[-1]:  # nothing was read
    return {'mass': [0.0] * COLUMNS, 'passage': [1] * COLUMNS, 'top': top}
  cuts = np.linspace(0, 1, COLUMNS + 1)
  # np.interp needs increasing edges; passages not read have no width.
  read = np.append(np.flatnonzero(np.diff(edges) > 0), len(mass))
  total = np.append(0, np.cumsum(mass))
  columns = np.diff(np.interp(cuts, edges[read], total[read]))
  first = np.searchsorted(edges[read], cuts[:-1], 'right') - 1
  last = np.searchsorted(edges[read], cuts[1:], 'left') - 1
  strongest = [
      int(read[a + np.argmax(mass[read[a : b + 1]])]) + 1
      for a, b in zip(first, np.maximum(first, last))
  ]
  return {
      'mass': [round(x, 6) for x in columns.tolist()],
      'passage': strongest,
      'top': top,
  }


def _find_rare_words(quotes):
  """Returns a function: word -> whether few passages have it."""
  counts = {}
  for quote in quotes:
    for word in set(closest_words.words(quote)):
      counts[word] = counts.get(word, 0) + 1
  most = max(2, _RARE * len(quotes))
  return lambda word: counts.get(word, 0) <= most


def find_shared_phrases(quote, sentence, is_rare):
  """Finds the phrases that a passage shares with a sentence.

  A phrase is a run of shared words from its first rare word to its last.

  Args:
    quote: the passage.
    is_rare: word -> bool.

  Returns:
    A list of (start, end) in the quote.
  """
  shared = set(closest_words.words(sentence))
  spans = closest_words.word_spans(quote)
  phrases, run = [], []
  for start, end, word in [*spans, (0, 0, None)]:
    if word in shared:
      run.append((start, end, is_rare(word)))
      continue
    rare = [k for k, (_, _, word_is_rare) in enumerate(run) if word_is_rare]
    if rare:
      phrases.append((run[rare[0]][0], run[rare[-1]][1]))
    run = []
  return phrases


def choose_excerpt(quote, phrases):
  """Chooses the part of a passage that is shown: around the first phrase.

  Args:
    quote: the passage.
    phrases: of `find_shared_phrases`.

  Returns:
    (start, end).
  """
  begin, stop = 0, len(quote)
  if stop <= _QUOTED:
    return begin, stop
  first = max(0, phrases[0][0] - _QUOTED // 3) if phrases else 0
  begin = quote.rfind(' ', 0, min(first, stop - _QUOTED)) + 1
  if begin + _QUOTED >= stop:
    return begin, stop
  cut = quote.rfind(' ', begin, begin + _QUOTED)
  return begin, cut if cut > begin else begin + _QUOTED
