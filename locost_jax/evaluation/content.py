"""The words and tokens that a summary could copy from its document.

A model that knows how summaries sound but does not read its input gets common
words right and the document's own words wrong. Two numbers show that:

- `recall` (`metrics/recall.py`): of the reference's words that stand in the
  document and are not common, the share that is written.
- `content_loss` (`model_metrics/loss.py`): the loss of the target tokens that
  stand in the input and are not common. With the input of another document it
  is the same for a model that does not read.

Common are the COMMONEST most frequent words, and tokens, of the training
targets.
"""

import collections
import json
from typing import NamedTuple

import numpy as np

from locost_jax import files
from locost_jax import untrusted
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import recall

COMMONEST = 150
# In a run's or a phase's directory: `save`.
FILE = 'common.json'
_KINDS = {
    'words': untrusted.list_of(untrusted.TEXT),
    'tokens': untrusted.list_of(untrusted.integer(0, 10**7)),
}
# A key of a batch: float32 [B, T], 1 at the targets of `content_loss`.
WEIGHTS = 'content_loss_weights'


class Common(NamedTuple):
  """The most frequent words (str) and tokens (ids) of the training targets."""

  words: tuple
  tokens: tuple


def most_common(records, count=COMMONEST):
  """Counts the words and tokens of targets.

  Args:
    records: iterable of dicts with targets (ids) and reference (str).
    count: how many words, and how many tokens.

  Returns:
    Common; of equally frequent ones those that came first.
  """
  words, tokens = collections.Counter(), collections.Counter()
  for record in records:
    words.update(recall.words(record['reference']))
    tokens.update(np.asarray(record['targets']).tolist())
  first = lambda counter: tuple(key for key, _ in counter.most_common(count))
  return Common(first(words), first(tokens))


def save(common, path):
  """Writes a Common as JSON, whole or not at all."""
  files.write(path, json.dumps(common._asdict()) + '\n')


def load(path):
  """Returns the Common that `save` wrote.

  Raises:
    FileNotFoundError: there is no such file.
    InputError: it holds something else.
  """
  found = untrusted.read_object(path)
  for key, kind in _KINDS.items():
    untrusted.check(path, key, found.get(key), kind)
  return Common(tuple(found['words']), tuple(found['tokens']))


def content_words(reference, document, common):
  """Returns the content words of a reference, in order, each once.

  Args:
    reference: str.
    document: str, as the model read it.
    common: a Common.
  """
  present = set(recall.words(document)).difference(common.words)
  wanted = dict.fromkeys(recall.words(reference))
  return [word for word in wanted if word in present]


def of_document(tokens, reference, vocabulary, common):
  """Returns the content words of each reference of a document.

  Args:
    tokens: see `input_text`.
    reference: str, or a list of str that all count as right.
    vocabulary: decode(ids) -> text.
    common: a Common.
  """
  text = input_text(tokens, vocabulary)
  return [content_words(one, text, common) for one in metric.as_list(reference)]


def with_weights(batches, common):
  """Adds WEIGHTS to batches that do not have them.

  Args:
    batches: iterator of (batch, info), see `evaluate.evaluate`.
    common: a Common; None: nothing is added.

  Yields:
    (batch, info).
  """
  for batch, info in batches:
    if common is not None and WEIGHTS not in batch:
      batch = batch | {WEIGHTS: weights(batch, common)}
    yield batch, info


def weights(batch, common):
  """Returns float32 [B, T]: the weights of targets that are content, else 0.

  Args:
    batch: encoder_input_tokens [B, L] or [B, P, L], decoder_target_tokens and
      decoder_loss_weights [B, T].
    common: a Common.
  """
  targets = batch['decoder_target_tokens']
  is_content = [
      np.isin(row, np.setdiff1d(tokens, common.tokens))
      for row, tokens in zip(targets, batch['encoder_input_tokens'])
  ]
  return batch['decoder_loss_weights'] * np.array(is_content, np.float32)


def input_text(tokens, vocabulary):
  """Returns the text that a model read of one document.

  Args:
    tokens: int [L]; or [P, L], where each page has an end mark of its own.
    vocabulary: decode(ids) -> text.

  Returns:
    str. Pages are joined by line ends, also where chunks cut a sentence. Pages
    without a letter or digit are left out: config.data.empty_page stands for a
    page without text.
  """
  if tokens.ndim == 1:
    return vocabulary.decode(tokens.tolist())
  pages = [vocabulary.decode(page) for page in tokens.tolist()]
  return '\n'.join(page for page in pages if any(map(str.isalnum, page)))
