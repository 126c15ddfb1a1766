"""The words of a summary: which passage has them, where they were copied from.

For each token of a summary, a model with a copy head (`models/copy_head.py`)
gives the share of its probability that was copied, and the equal input token
with the most attention. A word counts as copied if the mean share of its tokens
is at least one half. Its place is the document's word around the input token
with the most attention.
"""

import collections
import re
from typing import Any, NamedTuple
import unicodedata

import numpy as np

_WORD = re.compile(r'\w+')
_LEAST_COPIED = 0.5  # of the probability of a word's tokens


class Match(NamedTuple):
  """A passage that belongs to a sentence."""

  passage: int
  score: float  # a part of the attention, or an overlap; both 0 to 1


class Traced(NamedTuple):
  """Where the tokens of a summary were copied from: arrays [T]."""

  share: Any  # of each token's probability that was copied
  weight: Any  # the attention on the equal token of the document with the most
  end: Any  # of that token in the document, in characters; -1 at bos and eos


class Copied(NamedTuple):
  """A word of a summary and the word of the document it was copied from."""

  span: tuple  # (start, end) in the summary
  place: tuple  # (start, end) in the document
  share: float  # the copied part of its probability, of 1


def word_spans(text):
  """Returns (start, end, folded word) of the words of a text."""
  return [
      (*match.span(), _fold(match.group())) for match in _WORD.finditer(text)
  ]


def words(text):
  """Returns the folded words of a text."""
  return [_fold(word) for word in _WORD.findall(text)]


def _fold(word):
  """Removes case and accents of a word: Kurágin and KURAGIN become equal."""
  if word.isascii():
    return word.lower()
  return ''.join(
      letter
      for letter in unicodedata.normalize('NFKD', word)
      if not unicodedata.combining(letter)
  ).casefold()


def closest_passages(sentences, passages):
  """Finds for each sentence the passage that shares most words with it.

  The overlap is the mean of ROUGE-1 and ROUGE-2 recall (Lin 2004) of the
  sentence in the passage. A word or pair of words in n of P passages weighs
  log(1 + P / n), so that names count more than articles. Words are looked up in
  an index: the time grows with the number of shared words, not with sentences
  times passages.

  Returns:
    A list of Match, None for a sentence without a word in common. Of equal
    passages the shorter wins.
  """
  wanted = [_grams(words(sentence)) for sentence in sentences]
  index = {gram: [] for grams in wanted for gram in grams}
  lengths = []
  for p, passage in enumerate(passages):
    own = words(passage)
    lengths.append(len(own))
    for gram, count in _grams(own).items():
      if gram in index:
        index[gram].append((p, count))
  matches = []
  for grams in wanted:
    shared = collections.Counter()
    for size in (1, 2):
      weights = {
          gram: np.log1p(len(passages) / max(1, len(index[gram])))
          for gram in grams
          if len(gram) == size
      }
      total = sum(grams[gram] * weight for gram, weight in weights.items())
      for gram, weight in weights.items():
        for p, there in index[gram]:
          shared[p] += min(grams[gram], there) * weight / total / 2
    best = max(shared, key=lambda p: (shared[p], -lengths[p], -p), default=None)
    matches.append(None if best is None else Match(best, float(shared[best])))
  return matches


def _grams(words_):
  """Counts the words and the pairs of neighbours, as tuples."""
  return collections.Counter(
      [(word,) for word in words_] + list(zip(words_, words_[1:]))
  )


def find_words(summary, ends):
  """Returns the words of a summary, (start, end), and that of each token.

  A token that ends at `ends` belongs to the word that its last character is in
  or follows; -1: it ends before the first word.
  """
  spans = [match.span() for match in re.finditer(r'\S+', summary)]
  starts = np.array([start for start, _ in spans], int)
  return spans, np.searchsorted(starts, np.asarray(ends) - 1, 'right') - 1


def page_weights(summary, pages):
  """Finds the words of a summary and how much each page counted for them.

  Returns:
    (list of (start, end), float [words, pages]): the mean over the tokens that
    end in a word. A word without a token has the weights of the word before.
  """
  spans, owner = find_words(summary, pages.ends)
  found = np.zeros((len(spans), pages.weights.shape[1]))
  for i in range(len(spans)):
    own = pages.weights[owner == i]
    if len(own):
      found[i] = own.mean(0)
    elif i:
      found[i] = found[i - 1]
  return spans, found


def find_copied(summary, text, ends, traced):
  """Returns a list of Copied: the words of a summary that were copied.

  Args:
    ends: int [T], where the tokens of the summary end in it.
    traced: Traced, of these tokens.
  """
  spans, owner = find_words(summary, ends)
  places, place_of = find_words(text, traced.end)
  found = []
  for i, span in enumerate(spans):
    own = np.flatnonzero(owner == i)
    share = traced.share[own].mean() if len(own) else 0
    if share < _LEAST_COPIED:
      continue
    heaviest = own[np.argmax(traced.weight[own])]
    at = place_of[heaviest]
    if at >= 0 and traced.end[heaviest] <= places[at][1]:  # no white space
      found.append(Copied(span, places[at], float(share)))
  return found
