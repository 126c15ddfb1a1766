"""Counts the overlap of two texts for ROUGE (Lin 2004).

A text is a list of sentences, a sentence a list of words. Counts and F1 equal
those of the package rouge_score.
"""

import collections
from typing import NamedTuple

from locost_jax.evaluation.metrics import subsequences


class Overlap(NamedTuple):
  """Counts of the words or n-grams of two texts.

  Attributes:
    hits: number that both texts share.
    predicted: number in the prediction.
    expected: number in the reference.
  """

  hits: int
  predicted: int
  expected: int


def f1(overlap):
  """Returns the harmonic mean of precision and recall, from 0 to 1."""
  precision = overlap.hits / max(overlap.predicted, 1)
  recall = overlap.hits / max(overlap.expected, 1)
  if precision + recall > 0:
    return 2 * precision * recall / (precision + recall)
  return 0.0


def ngrams(prediction, reference, n):
  """Returns the Overlap of two lists of words by n-grams (ROUGE-N)."""
  ours, theirs = (
      collections.Counter(zip(*(words[i:] for i in range(n))))
      for words in (prediction, reference)
  )
  hits = sum(
      min(count, ours[gram]) for gram, count in theirs.items() if gram in ours
  )
  return Overlap(hits, ours.total(), theirs.total())


def subsequence(prediction, reference):
  """Returns the Overlap of two lists of words by ROUGE-L."""
  hits = subsequences.length(reference, prediction)
  return Overlap(hits, len(prediction), len(reference))


def summary_subsequence(prediction, reference):
  """Returns the Overlap of two lists of sentences by ROUGE-Lsum.

  The hits of a reference sentence are its words in a longest common
  subsequence with any sentence of the prediction. The hits of a word are
  limited to its count in either text (section 3.2 of the paper, as in Perl
  ROUGE-1.5.5).
  """
  ours, theirs = (
      collections.Counter(word for sentence in text for word in sentence)
      for text in (prediction, reference)
  )
  overlap = Overlap(0, ours.total(), theirs.total())
  prepared = [
      (subsequences.positions(sentence), len(sentence))
      for sentence in prediction
  ]
  left, hits = ours & theirs, 0
  for sentence in reference:
    union = set()
    for where, size in prepared:
      union.update(subsequences.indices(sentence, where, size))
    for i in sorted(union):
      if left[sentence[i]] > 0:
        hits += 1
        left[sentence[i]] -= 1
  return overlap._replace(hits=hits)


def overlaps(prediction, reference):
  """Returns {'rouge1', 'rouge2', 'rougeL', 'rougeLsum': Overlap}.

  Args:
    prediction: list of sentences.
    reference: list of sentences.
  """
  words, expected = (
      [word for sentence in text for word in sentence]
      for text in (prediction, reference)
  )
  return {
      'rouge1': ngrams(words, expected, 1),
      'rouge2': ngrams(words, expected, 2),
      'rougeL': subsequence(words, expected),
      'rougeLsum': summary_subsequence(prediction, reference),
  }
