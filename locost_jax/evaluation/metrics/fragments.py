"""Extractive fragments of a summary (Grusky et al. 2018, section 4).

The fragments F of a summary S are the longest word sequences that it shares
with its document, found from left to right (their figure 3):

  coverage    = sum of |f| over F, / |S|
  density     = sum of |f|^2 over F, / |S|
  compression = |document| / |S|

Lengths are in words of `words.of_any_script`, which, unlike the paper's tokens,
exclude punctuation.
"""

import collections

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import words


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


def sums(prediction, document):
  """Returns {key: (number, 1)} of one document; {} for an empty summary."""
  ours, theirs = words.flat(prediction), words.flat(document)
  if not ours:
    return {}
  lengths = [end - start for start, end in find(ours, theirs)]
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
