"""Three baselines without a model, which a summary model must beat.

- `lead`: the first sentences of the document.
- `best_constant`: the same summary for every document: the training summary
  with the highest mean ROUGE on the validation references. A model that ignores
  its input can at best learn this.
- `unigram_loss`: the loss of a model that knows only token frequencies.

`oracle` is an upper bound: summaries of whole sentences hardly score higher.
"""

from collections import Counter

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.evaluation import scoring
from locost_jax.evaluation.metrics import extractive_oracle
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.predictions import Pair


def lead(text, sentences=1):
  """Returns the first sentences of a text, joined by spaces."""
  return ' '.join(text_lib.split_sentences(text)[:sentences])


def oracle(document, reference, protocol):
  """Returns the sentences of a document that fit its reference best, joined.

  Args:
    protocol: a `protocols.Protocol`, which splits texts into words.
  """
  sentences = text_lib.split_sentences(document)
  words = list(map(protocol.tokenize, sentences))
  chosen = extractive_oracle.select(words, protocol.tokenize(reference))
  return ' '.join(sentences[i] for i in chosen)


def best_constant(
    train_references,
    validation_references,
    most_exact=100,
    protocol=protocols.PROTOCOLS['locost'],
    show=None,
):
  """Finds the training summary that scores best as a summary of all documents.

  The score is the protocol's mean of ROUGE-1, -2 and -Lsum (or -L) over the
  validation references. ROUGE-1 and -2 of all training summaries are computed
  exactly, in one pass. A longest common subsequence has no more words than the
  two texts share, so ROUGE-L and -Lsum are at most ROUGE-1 and

    bound = (2 ROUGE-1 + ROUGE-2) / 3 >= mean ROUGE.

  Candidates are scored exactly in the order of their bounds, until no remaining
  bound exceeds the best score. With long summaries the bound is loose; after
  `most_exact` candidates the search stops and returns the best of these.

  Args:
    train_references: list of strings.
    validation_references: list of strings; 500 of them and 10,000 short
      training summaries take a few seconds.
    most_exact: most candidates that are scored exactly; 1: the highest bound.
    show: function (pairs done, pairs) that shows progress, or None.

  Returns:
    One of `train_references`; the first of equal ones.

  Raises:
    InputError: one of the lists is empty.
  """
  candidates = list(dict.fromkeys(train_references))
  references = list(validation_references)
  if not candidates or not references:
    raise InputError(
        'best constant output: expected training and validation '
        f'references, got {len(candidates)} and {len(references)}'
    )
  candidate_words = list(map(protocol.tokenize, candidates))
  reference_words = list(map(protocol.tokenize, references))
  rouge1 = _mean_rouge_n(candidate_words, reference_words, 1)
  rouge2 = _mean_rouge_n(candidate_words, reference_words, 2)
  bound = (2 * rouge1 + rouge2) / 3
  order = np.argsort(-bound, kind='stable')[:most_exact].tolist()
  best, best_score, done = order[0], -1.0, 0
  # 1e-6 allows for rounding: bound and score are summed in different orders.
  while len(order) > max(done, 1) and bound[order[done]] + 1e-6 >= best_score:
    # Twice as many candidates at a time, so that few pools of processes start.
    tried = order[done : max(2 * done, 1)]
    pairs = [Pair(candidates[j], [text]) for j in tried for text in references]
    scores = [
        row[protocols.MEAN]
        for row in scoring.score_pairs(pairs, protocol, None, show)
    ]
    means = np.reshape(scores, [len(tried), -1]).mean(1)
    for j, score in zip(tried, means):
      if score > best_score + 1e-9 or (
          abs(score - best_score) <= 1e-9 and j < best
      ):
        best, best_score = j, score
    done += len(tried)
  return candidates[best]


def _mean_rouge_n(candidates, references, n):
  """ROUGE-n of every candidate, averaged over all references.

  F1 = 2 overlap / (n-grams of one + n-grams of the other), where overlap counts
  an n-gram min(a, b) times. With a feature for each first, second, ...
  occurrence of an n-gram, min(a, b) is the number of shared features.

  Args:
    candidates: list of lists of words.
    references: list of lists of words.
    n: 1 or more.

  Returns:
    float64 [candidates], in percent.
  """
  features = {}
  rows, columns = [], []
  for r, words in enumerate(references):
    for feature in _occurrences(words, n):
      rows.append(features.setdefault(feature, len(features)))
      columns.append(r)
  has = np.zeros([len(features), len(references)], np.uint8)
  has[rows, columns] = 1
  lengths = np.array([max(0, len(w) - n + 1) for w in references])
  means = np.zeros(len(candidates))
  for j, words in enumerate(candidates):
    shared = [features[f] for f in _occurrences(words, n) if f in features]
    if shared:
      overlap = has[shared].sum(axis=0, dtype=np.int32)
      means[j] = (2 * overlap / (lengths + len(words) - n + 1)).mean()
  return 100 * means


def _occurrences(words, n):
  """Returns (n-gram, 0), (n-gram, 1), ... for each occurrence of an n-gram."""
  seen = Counter()
  occurrences = []
  for gram in zip(*(words[i:] for i in range(n))):
    occurrences.append((gram, seen[gram]))
    seen[gram] += 1
  return occurrences


def unigram_loss(train_targets, validation_targets, vocabulary_size):
  """Loss of the validation targets under the training token frequencies.

  p(w) = (count of w + 1) / (tokens + vocabulary size).

  Args:
    train_targets: iterable of integer arrays: ids without padding, with the end
      mark if the model's loss counts it.
    validation_targets: the same for the validation targets.
    vocabulary_size: all ids are below it.

  Returns:
    Nats per validation token.

  Raises:
    InputError: there are no validation tokens.
  """
  counts = np.ones(vocabulary_size)
  for ids in train_targets:
    np.add.at(counts, np.asarray(ids, np.int64), 1)
  losses = -np.log(counts / counts.sum())
  total, tokens = 0.0, 0
  for ids in validation_targets:
    total += losses[np.asarray(ids, np.int64)].sum()
    tokens += len(ids)
  if not tokens:
    raise InputError('unigram loss: there are no validation tokens')
  return float(total / tokens)
