"""The greedy extractive oracle (Nallapati et al. 2017, section 3.1).

Starting with no sentence, the sentence of the document that most increases

  (ROUGE-1 F1 + ROUGE-2 F1) / 2

of the chosen sentences is added, until none increases it. The result shows how
well a summary of copied sentences can score. Bigrams do not cross sentences.
"""

import collections

import numpy as np


def select(document, reference, most=None):
  """Returns the indices of the chosen sentences, in order.

  Args:
    document: list of sentences, lists of words.
    most: most sentences to choose; None: no limit.
  """
  counted = [_count(document, [reference], n) for n in (1, 2)]
  chosen, best = [], 0.0
  taken = [np.zeros(wanted.shape, np.int32) for _, wanted, _, _ in counted]
  length = [0, 0]
  is_free = np.ones(len(document), bool)
  while is_free.any() and (most is None or len(chosen) < most):
    scores = np.zeros(len(document))
    for side, (there, wanted, sizes, expected) in enumerate(counted):
      hits = np.minimum(taken[side] + there, wanted).sum(1)
      # F1 = 2 hits / (n-grams of one + n-grams of the other).
      scores += hits / np.maximum(length[side] + sizes + expected, 1)
    scores[~is_free] = -1
    i = int(scores.argmax())
    if scores[i] <= best + 1e-12:
      break
    best = scores[i]
    chosen.append(i)
    is_free[i] = False
    for side, (there, _, sizes, _) in enumerate(counted):
      taken[side] = taken[side] + there[i]
      length[side] += sizes[i]
  return sorted(chosen)


def _count(document, reference, n):
  """Counts the n-grams of a reference, and their occurrences in sentences.

  Returns:
    (there, wanted, sizes, expected): int [S, G], the count of each reference
    n-gram in each sentence; int [G], its count in the reference; int [S], all
    n-grams of each sentence; and the number of n-grams of the reference.
  """
  (expected,) = _ngrams(reference, n)
  columns = {gram: g for g, gram in enumerate(expected)}
  there = np.zeros([len(document), len(columns)], np.int32)
  sizes = np.zeros(len(document), np.int64)
  for s, counts in enumerate(_ngrams(document, n)):
    sizes[s] = counts.total()
    for gram in counts.keys() & columns.keys():
      there[s, columns[gram]] = counts[gram]
  wanted = np.array(list(expected.values()), np.int32)
  return there, wanted, sizes, expected.total()


def _ngrams(sentences, n):
  return [
      collections.Counter(zip(*(words[i:] for i in range(n))))
      for words in sentences
  ]
