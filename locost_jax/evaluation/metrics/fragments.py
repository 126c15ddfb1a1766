"""How much of a summary is copied in one piece (Grusky et al. 2018, section 4).

The fragments F of a summary S are the longest pieces it shares with its
document, found from left to right (their figure 3):

  coverage    = sum of |f| over F, / |S|
  density     = sum of |f|^2 over F, / |S|
  compression = |document| / |S|

Lengths are in words, those of `words.of_any_script`: unlike the paper's they
have no punctuation.
"""

import collections

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import words


def find(summary, document):
  """Returns the lengths of the fragments, in order.

  Args:
    summary: list of words.
    document: list of words.
  """
  places = collections.defaultdict(list)
  for j, word in enumerate(document):
    places[word].append(j)
  lengths, i = [], 0
  while i < len(summary):
    longest = 0
    for j in places.get(summary[i], ()):
      # Only a piece that also has the next word is longer than the longest.
      if summary[i + longest : i + longest + 1] == (
          document[j + longest : j + longest + 1]
      ):
        longest = max(longest, _shared(summary, i, document, j))
    if longest:
      lengths.append(longest)
    i += max(longest, 1)
  return lengths


def _shared(summary, i, document, j):
  """How many words are equal from summary[i] and document[j] on."""
  most, length = min(len(summary) - i, len(document) - j), 0
  while length < most and summary[i + length] == document[j + length]:
    length += 1
  return length


def sums(prediction, document):
  """Returns {key: (number, 1)} of one document, or {} without a word."""
  ours, theirs = words.flat(prediction), words.flat(document)
  if not ours:
    return {}
  lengths = find(ours, theirs)
  return {
      'coverage': (sum(lengths) / len(ours), 1),
      'density': (sum(length**2 for length in lengths) / len(ours), 1),
      'compression': (len(theirs) / len(ours), 1),
  }


FRAGMENTS = metric.Metric(
    name='fragments',
    keys=('coverage', 'density', 'compression'),
    needs=metric.DOCUMENT,
    sums=sums,
    columns=(
        metric.Column('coverage', 'coverage', 3),
        metric.Column('density', 'density', 2),
        metric.Column('compression', 'compression', 1),
    ),
)
