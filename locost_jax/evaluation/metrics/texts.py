"""Metrics that compare a summary's words with those of its references.

- answers: exact match and F1, as in SCROLLS (Shaham et al. 2022). Texts are
  lowercased; punctuation, the articles a, an and the, and extra spaces are
  removed (Rajpurkar et al. 2016). F1 is over the multisets of words. With
  several references, each number is the maximum over them.
- length: in words, and relative to the reference with the nearest length.
- repetition: the share of a summary's n-grams that occurred earlier in it: 1 -
  distinct / all, over the documents whose summaries have n-grams.

Except for answers, words are those of `words.of_any_script`.
"""

import collections
import re
import string

from locost_jax.data import words
from locost_jax.evaluation.metrics import metric

SIZES = (1, 2, 3, 4)  # of n-grams
_ARTICLES = re.compile(r'\b(a|an|the)\b')
_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)


def normalize(text):
  """Returns the words of an answer after normalisation."""
  text = text.lower().translate(_NO_PUNCTUATION)
  return _ARTICLES.sub(' ', text).split()


def answers(prediction, references):
  """Returns {'exact_match': (0 or 100, 1), 'f1': (F1 x 100, 1)}."""
  ours = normalize(prediction)
  theirs = [normalize(text) for text in references]
  shared = [_f1(ours, words) for words in theirs]
  return {
      'exact_match': (100.0 * (ours in theirs), 1),
      'f1': (100 * max(shared), 1),
  }


def _f1(ours, theirs):
  hits = (collections.Counter(ours) & collections.Counter(theirs)).total()
  if not hits:
    return 0.0
  precision, recall = hits / len(ours), hits / len(theirs)
  return 2 * precision * recall / (precision + recall)


ANSWERS = metric.Metric(
    'answers',
    (metric.Column('exact_match', 'EM'), metric.Column('f1', 'F1')),
    answers,
    parts=('scrolls', 'agg:max'),
    what='exact match and F1 of answers (SCROLLS)',
)


def length(prediction, references):
  """Returns {'words': (words, 1), 'length': (words / the reference's, 1)}."""
  ours = len(words.of_any_script(prediction))
  theirs = [len(words.of_any_script(text)) for text in references]
  found = {'words': (ours, 1)}
  if any(theirs):
    nearest = min(filter(None, theirs), key=lambda count: abs(count - ours))
    found['length'] = (ours / nearest, 1)
  return found


LENGTH = metric.Metric(
    'length',
    (metric.Column('words', 'words', 1), metric.Column('length', 'length')),
    length,
    parts=('words:1',),
)


def ngrams(text, n):
  """Returns the n-grams of a text, in order, as tuples of words."""
  found = words.of_any_script(text)
  return list(zip(*(found[i:] for i in range(n))))


def repetition(prediction, references=()):
  """Returns {'repeated_N': (percent that occurred earlier, 1)}."""
  del references
  sums = {}
  for n in SIZES:
    if ours := ngrams(prediction, n):
      sums[f'repeated_{n}'] = (100 - 100 * len(set(ours)) / len(ours), 1)
  return sums


REPETITION = metric.Metric(
    'repetition',
    tuple(
        metric.Column(f'repeated_{n}', f'repetition {n}', 1, True)
        for n in SIZES
    ),
    repetition,
    parts=('words:1',),
)
