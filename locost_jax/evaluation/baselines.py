"""Baselines without a model, and inputs exchanged between documents.

A summary model must beat:

- `lead`: the first sentences of the document.
- `best_constant`: the same summary for every document: the training summary
  with the highest mean ROUGE on the validation references. A model that ignores
  its input can at best learn this.
- `unigram_loss`: the loss of a model that knows only token frequencies.

`oracle` is an upper bound: summaries of whole sentences hardly score higher. If
a model uses its input, its loss is higher with inputs exchanged between
documents.
"""

import collections

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.evaluation import content
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge

# Training targets for the baselines: enough for token frequencies, and read
# within seconds.
_TRAIN_TARGETS = 20_000


def lead(text, sentences=1):
  """Returns the first sentences of a text, joined by spaces."""
  return ' '.join(text_lib.split_sentences(text)[:sentences])


def oracle(document, reference, protocol):
  """Returns the sentences of a document that fit its reference best, joined."""
  sentences = text_lib.split_sentences(document)
  words = list(map(protocol.tokenize, sentences))
  chosen = select_sentences(words, protocol.tokenize(reference))
  return ' '.join(sentences[i] for i in chosen)


def select_sentences(document, reference):
  """Returns the indices of the sentences of the greedy oracle, in order.

  Nallapati et al. 2017, section 3.1: starting with no sentence, the sentence of
  the document that most increases

    (ROUGE-1 F1 + ROUGE-2 F1) / 2

  of the chosen sentences is added, until none increases it. Bigrams do not
  cross sentences.

  A document is a list of sentences, lists of words.
  """
  counted = [_count_ngrams(document, [reference], n) for n in (1, 2)]
  chosen, best = [], 0.0
  while len(chosen) < len(document):
    scores = np.zeros(len(document))
    for there, wanted, sizes, expected in counted:
      taken = there[chosen].sum(0, dtype=np.int32)
      hits = np.minimum(taken + there, wanted).sum(1)
      # F1 = 2 hits / (n-grams of one + n-grams of the other).
      scores += hits / np.maximum(sizes[chosen].sum() + sizes + expected, 1)
    scores[chosen] = -1
    i = int(scores.argmax())
    if scores[i] <= best + 1e-12:
      break
    best = scores[i]
    chosen.append(i)
  return sorted(chosen)


def _count_ngrams(document, reference, n):
  """Returns the counts of a reference's n-grams in sentences.

  (there, wanted, sizes, expected): int [S, G], of each n-gram in each sentence;
  int [G], in the reference; int [S], all n-grams of a sentence; of the reference.
  """
  (expected,), found = _ngrams(reference, n), _ngrams(document, n)
  columns = {gram: g for g, gram in enumerate(expected)}
  there = np.zeros([len(document), len(columns)], np.int32)
  for s, counts in enumerate(found):
    for gram in counts.keys() & columns.keys():
      there[s, columns[gram]] = counts[gram]
  wanted = np.array(list(expected.values()), np.int32)
  sizes = np.array([counts.total() for counts in found], np.int64)
  return there, wanted, sizes, expected.total()


def _ngrams(sentences, n):
  return [
      collections.Counter(zip(*(words[i:] for i in range(n))))
      for words in sentences
  ]


def best_constant(
    train_references,
    validation_references,
    most_exact=100,
    protocol=protocols.PROTOCOLS['locost'],
    show=None,
):
  """Finds the training summary that scores best as a summary of all documents.

  The score is the protocol's mean of ROUGE-1, -2 and -Lsum (or -L) over the
  validation references. ROUGE-1 and -2 of all training summaries take one pass.
  A longest common subsequence has no more words than the two texts share, so

    mean ROUGE <= bound = (2 ROUGE-1 + ROUGE-2) / 3.

  Candidates are scored in the order of their bounds, at most `most_exact` (the
  bound of long summaries is loose), until no other bound exceeds the best
  score. Of equal summaries the first is returned. `show` is a function (pairs
  done, pairs) that shows progress, or None.
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
    rows = [
        metric.Row(candidates[j], [text]) for j in tried for text in references
    ]
    scores = rouge.score_rows(rows, protocol, None, show)
    scores = scores[:, rouge.KEYS.index(protocols.MEAN)]
    means = scores.reshape(len(tried), -1).mean(1)
    for j, score in zip(tried, means):
      if score > best_score + 1e-9 or (
          abs(score - best_score) <= 1e-9 and j < best
      ):
        best, best_score = j, score
    done += len(tried)
  return candidates[best]


def _mean_rouge_n(candidates, references, n):
  """ROUGE-n of every candidate, averaged over references: float64 [c], percent.

  F1 = 2 overlap / (n-grams of one + n-grams of the other), where overlap counts
  an n-gram min(a, b) times. With a feature for each first, second, ...
  occurrence of an n-gram, min(a, b) is the number of shared features.
  """
  theirs = list(map(_occurrences, _ngrams(references, n)))
  rows = {feature: i for i, feature in enumerate(set().union(*theirs))}
  has = np.zeros([len(rows), len(references)], np.uint8)
  for r, features in enumerate(theirs):
    has[[rows[feature] for feature in features], r] = 1
  lengths = np.array(list(map(len, theirs)))
  means = np.zeros(len(candidates))
  for j, features in enumerate(map(_occurrences, _ngrams(candidates, n))):
    if shared := [rows[feature] for feature in features if feature in rows]:
      overlap = has[shared].sum(axis=0, dtype=np.int32)
      means[j] = (2 * overlap / (lengths + len(features))).mean()
  return 100 * means


def _occurrences(counts):
  """Returns (n-gram, 0), (n-gram, 1), ... for each occurrence of an n-gram."""
  return [(gram, i) for gram, count in counts.items() for i in range(count)]


def unigram_loss(train_targets, validation_targets, vocabulary_size):
  """Returns the loss of targets under p(w), in nats per validation token.

  p(w) = (count of w in the training targets + 1) / (tokens + vocabulary size).
  Targets are iterables of integer arrays: ids without padding, with the end
  mark if the model's loss counts it.
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


def exchange_inputs(batches, vocabulary):
  """Exchanges the inputs of batches between documents.

  Within a batch, document i gets the input of document i + n // 2, not of its
  neighbour: batches are sorted by length, and neighbours may be duplicates. A
  document that is alone in its batch gets an input of the previous batch; if
  there is no previous batch, its loss weights become 0.
  """
  spare = None
  for batch, info in batches:
    n = len(info['id'])
    batch = dict(batch)
    inputs = np.array(batch['encoder_input_tokens'])
    last = inputs[n - 1].copy() if n else None
    if n > 1:
      inputs[:n] = np.roll(inputs[:n], -(n // 2), axis=0)
    elif n == 1 and spare is not None:
      inputs[0] = vocabulary.pad_id
      own = tuple(
          slice(min(sizes)) for sizes in zip(spare.shape, inputs[0].shape)
      )
      inputs[0][own] = spare[own]
    elif n == 1:
      for key in ('decoder_loss_weights', content.WEIGHTS):
        if key in batch:
          batch[key] = np.zeros_like(batch[key])
    spare = last if n else spare
    batch['encoder_input_tokens'] = inputs
    yield batch, info


def measure(
    batches,
    train_records,
    vocabulary,
    metrics,
    common=None,
    protocol=protocols.AUTO,
):
  """Measures the baselines that need no model: [(name, numbers)].

  The lead has as many sentences as a training target has in the mean.

  Args:
    train_records: iterable of dicts with targets (ids) and reference (str).
    metrics: like config.eval.metrics. If none needs summaries, only the loss of
      unigrams is returned.
  """
  train_records = list(train_records)
  of_text = metric_table.of_summaries(metrics, protocol)
  protocol = protocols.find(protocol)
  train_references = [record['reference'] for record in train_records]
  sentences = _mean_sentences(train_references)
  rows = collective.gather_rows(
      list(_rows(batches, vocabulary, sentences, of_text and protocol, common))
  )
  loss = unigram_loss(
      [record['targets'] for record in train_records],
      [np.asarray(row['targets'], np.int32) for row in rows],
      vocabulary.size,
  )
  measured = [('unigrams of the targets', {'loss': loss})]
  if not of_text:
    return measured
  with evaluate.showing_progress() as show:
    constant = best_constant(
        train_references,
        [metric.as_list(row['reference'])[0] for row in rows],
        protocol=protocol,
        show=show,
    )
  first = 'sentence' if sentences == 1 else f'{sentences} sentences'
  for name, texts in (
      (f'lead: first {first}', [row['lead'] for row in rows]),
      (f'best constant: “{constant}”', [constant] * len(rows)),
      ('oracle: chosen sentences', [row['oracle'] for row in rows]),
  ):
    measured.append((name, evaluate.score(of_text, rows, texts)))
  return measured


def _rows(batches, vocabulary, sentences, protocol, common):
  """Yields a dict per document: lead, oracle, reference, targets, contents.

  protocol is a `protocols.Protocol`, for the oracle; false: no oracle.
  """
  for batch, info in batches:
    lengths = batch['decoder_loss_weights'].astype(bool).sum(axis=1)
    for i, reference in enumerate(info['reference']):
      inputs = batch['encoder_input_tokens'][i]
      text = content.input_text(inputs, vocabulary)
      row = dict(
          lead=lead(text, sentences),
          reference=reference,
          targets=batch['decoder_target_tokens'][i, : lengths[i]].tolist(),
      )
      if protocol:
        row['oracle'] = oracle(text, metric.as_list(reference)[0], protocol)
      if common is not None:
        row['contents'] = content.of_document(
            inputs, reference, vocabulary, common
        )
      yield row


def _mean_sentences(texts):
  counts = [len(text_lib.split_sentences(text)) for text in texts[:1000]]
  return max(1, round(sum(counts) / max(len(counts), 1)))


def first_records(cache, most=_TRAIN_TARGETS):
  """Yields at most `most` records of a training cache, evenly from parts."""
  parts = cache.window(0, 0)
  for part in parts:
    for i in range(min(most // len(parts), len(part))):
      yield part[i]
