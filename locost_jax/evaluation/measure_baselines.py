"""Baselines that need no model, and inputs exchanged between documents.

- The loss with inputs exchanged between documents, which is higher if a model
  uses its input.
- The loss of a unigram model of the training targets.
- The scores of the first sentences of the input (lead), of the training target
  that scores best on all validation references (constant), and of the input's
  sentences that score best on the reference (oracle).
"""

import numpy as np

from locost_jax.command_line.progress import Progress
from locost_jax.data import text as text_lib
from locost_jax.evaluation import baselines
from locost_jax.evaluation import content
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import protocols
from locost_jax.hosts import collective

# Training targets for the baselines: enough for token frequencies, and read
# within seconds.
_TRAIN_TARGETS = 20_000


def exchange_inputs(batches, vocabulary):
  """Exchanges the inputs of batches between documents.

  Within a batch, document i gets the input of document i + n // 2, not of its
  neighbour: batches are sorted by length, and neighbours may be duplicates. A
  document that is alone in its batch gets an input of the previous batch; if
  there is no previous batch, its loss weights become 0.

  Args:
    batches, vocabulary: as in `evaluate`.

  Yields:
    (batch, info), shapes unchanged.
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


def measure_baselines(
    batches,
    train_records,
    vocabulary,
    metrics,
    common=None,
    protocol=protocols.AUTO,
):
  """Measures the baselines that need no model.

  Args:
    batches: as in `evaluate`.
    train_records: iterable of dicts with targets (ids) and reference (str).
    metrics: like config.eval.metrics. If none needs summaries, only 'unigram'
      is returned.
    common: see `evaluate.evaluate`.

  Returns:
    dict of
      unigram: {'loss'}, under the token frequencies of the training targets.
      lead: scores, and 'sentences', the mean number of sentences of a training
        target.
      constant: scores, and 'text', the training target with the highest mean
        ROUGE on this split.
      oracle: scores; see `metrics/extractive_oracle.py`.
  """
  train_records = list(train_records)
  of_text = metric_table.of_summaries(metrics, protocol)
  protocol = protocols.find(protocol)
  train_references = [record['reference'] for record in train_records]
  sentences = _mean_sentences(train_references)
  rows = collective.gather_rows(
      list(_rows(batches, vocabulary, sentences, of_text and protocol, common))
  )
  loss = baselines.unigram_loss(
      [record['targets'] for record in train_records],
      [np.asarray(row['targets'], np.int32) for row in rows],
      vocabulary.size,
  )
  measured = {'unigram': {'loss': float(loss)}}
  if not of_text:
    return measured
  references = [row['reference'] for row in rows]
  progress = Progress()
  constant = baselines.best_constant(
      train_references,
      list(map(first_reference, references)),
      protocol=protocol,
      show=evaluate.show_progress(progress),
  )
  progress.wipe()
  contents = None if common is None else [row['contents'] for row in rows]
  score = lambda texts: evaluate.score(of_text, texts, references, contents)
  leads = [row['lead'] for row in rows]
  measured['lead'] = dict(score(leads), sentences=sentences)
  measured['constant'] = dict(score([constant] * len(rows)), text=constant)
  measured['oracle'] = dict(score([row['oracle'] for row in rows]))
  return measured


def _rows(batches, vocabulary, sentences, protocol, common):
  """Yields a dict per document: lead, oracle, reference, targets, contents.

  Args:
    batches, vocabulary, common: see `measure_baselines`.
    sentences: number of sentences of the lead.
    protocol: a `protocols.Protocol`, for the oracle; false: no oracle.
  """
  for batch, info in batches:
    lengths = batch['decoder_loss_weights'].astype(bool).sum(axis=1)
    for i, reference in enumerate(info['reference']):
      inputs = batch['encoder_input_tokens'][i]
      text = content.input_text(inputs, vocabulary)
      row = dict(
          lead=baselines.lead(text, sentences),
          reference=reference,
          targets=batch['decoder_target_tokens'][i, : lengths[i]].tolist(),
      )
      if protocol:
        row['oracle'] = baselines.oracle(
            text, first_reference(reference), protocol
        )
      if common is not None:
        row['contents'] = content.of_document(
            inputs, reference, vocabulary, common
        )
      yield row


def _mean_sentences(texts):
  counts = [len(text_lib.split_sentences(text)) for text in texts[:1000]]
  return max(1, round(sum(counts) / max(len(counts), 1)))


def first_reference(reference):
  """Returns the reference, or the first one of a list of references."""
  return reference if isinstance(reference, str) else reference[0]


def first_records(cache, most=_TRAIN_TARGETS):
  """Yields at most `most` records of a training cache, evenly from parts."""
  parts = cache.window(0, 0)
  for part in parts:
    for i in range(min(most // len(parts), len(part))):
      yield part[i]


def find_inputs(batches, vocabulary, ids):
  """Returns {id: input text} of the documents `ids` in this host's rows."""
  texts = {}
  for batch, info in batches:
    for i, name in enumerate(info['id']):
      if name in ids:
        texts[name] = content.input_text(
            batch['encoder_input_tokens'][i], vocabulary
        )
  return texts
