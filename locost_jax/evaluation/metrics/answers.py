"""Exact match and F1 of answers, as in SCROLLS (Shaham et al. 2022).

Texts are lowercased; punctuation, the articles a, an and the, and extra spaces
are removed (Rajpurkar et al. 2016). F1 is computed over the multisets of words.
With several references, each number is the maximum over them.
"""

import collections
import re
import string

from locost_jax.evaluation.metrics import metric

_ARTICLES = re.compile(r'\b(a|an|the)\b')
_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)


def normalize(text):
  """Returns the words of an answer after normalisation."""
  text = text.lower().translate(_NO_PUNCTUATION)
  return _ARTICLES.sub(' ', text).split()


def sums(prediction, references):
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
    name='answers',
    keys=('exact_match', 'f1'),
    needs=metric.TEXT,
    sums=sums,
    columns=(
        metric.Column('exact_match', 'EM', 2),
        metric.Column('f1', 'F1', 2),
    ),
)
