"""The greedy extractive oracle (Nallapati et al. 2017, section 3.1).

Sentences of the document are added one by one: the one that raises

  (ROUGE-1 F1 + ROUGE-2 F1) / 2

of the chosen sentences most, until none raises it. It shows how far copying
whole sentences can go. Pairs of words are counted within sentences.
"""

import collections

import numpy as np


def select(document, reference, most=None):
  """Returns the indices of the chosen sentences, in order.

  Args:
    document: list of sentences, lists of words.
    reference: list of words.
    most: how many are chosen at most; None: as many as help.
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
  """Counts the n-grams of a reference, and where the document has them.

  Returns:
    int [S, G], how often each sentence has each n-gram of the reference; [G],
    how often the reference has it; [S], n-grams of each sentence; and how many
    the reference has.
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
