"""The words of a summary: which passage has them, which page they came from."""

import collections
import re
from typing import NamedTuple
import unicodedata

import numpy as np

_WORD = re.compile(r'\w+')


class Match(NamedTuple):
  """A passage that belongs to a sentence."""

  passage: int
  score: float  # a part of the attention, or an overlap; both 0 to 1


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
