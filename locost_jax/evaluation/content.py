"""Content words and tokens: those that a summary can copy from its document.

A model that ignores its input can learn common words, but not the words of a
document. Two numbers measure this:

- `recall`: the share of the reference's content words that the summary has.
- `content_loss`: the loss over content tokens of the target. If a model ignores
  its input, another document's input does not change this loss.

A content word or token is in the reference and in the document, and not among
the COMMONEST most frequent ones of the training targets.
"""

import collections
import functools
import json
import math
from typing import NamedTuple

import numpy as np

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols

COMMONEST = 150
# The file of `save` in the directory of a run or a phase.
FILE = 'common.json'
_KINDS = {
    'words': kinds.list_of(kinds.TEXT),
    'tokens': kinds.list_of(kinds.integer(0, 10**7)),
    'protocol': kinds.choice(*protocols.PROTOCOLS),
}
# A key of a batch: float32 [B, T], 1 at the targets of `content_loss`.
WEIGHTS = 'content_loss_weights'


class Common(NamedTuple):
  """The most frequent words (str) and tokens (ids) of the training targets."""

  words: tuple
  tokens: tuple
  protocol: str = 'locost'  # of the words; a name in `protocols.PROTOCOLS`


def most_common(records, count=COMMONEST, protocol=protocols.AUTO):
  """Returns the Common of records, dicts with targets (ids) and reference.

  It has `count` words and tokens; of equally frequent ones, the first to
  appear. protocol is config.eval.protocol.
  """
  words, tokens = collections.Counter(), collections.Counter()
  protocol = protocols.find(protocol)
  for record in records:
    words.update(protocol.tokenize(record['reference']))
    tokens.update(np.asarray(record['targets']).tolist())
  first = lambda counter: tuple(key for key, _ in counter.most_common(count))
  return Common(first(words), first(tokens), protocol.name)


def save(common, path):
  """Writes a Common as JSON, atomically."""
  files.write(path, json.dumps(common._asdict()) + '\n')


def load(path):
  """Returns the Common that `save` wrote; an InputError for other content."""
  found = {'protocol': 'locost', **files.read_object(path)}  # older: without
  for key, kind in _KINDS.items():
    files.check_value(path, key, found.get(key), kind)
  return Common(
      tuple(found['words']), tuple(found['tokens']), found['protocol']
  )


def content_words(reference, document, common):
  """Returns the content words of a reference, in order, each once."""
  tokenize = protocols.find(common.protocol).tokenize
  present = set(tokenize(document)).difference(common.words)
  wanted = dict.fromkeys(tokenize(reference))
  return [word for word in wanted if word in present]


def of_document(tokens, reference, vocabulary, common):
  """Returns the content words of each reference of a document."""
  text = input_text(tokens, vocabulary)
  return [content_words(one, text, common) for one in metric.as_list(reference)]


def with_weights(batches, common):
  """Adds the key WEIGHTS to batches that lack it; not if `common` is None."""
  for batch, info in batches:
    if common is not None and WEIGHTS not in batch:
      batch = batch | {WEIGHTS: weights(batch, common)}
    yield batch, info


def weights(batch, common):
  """Returns the loss weights of content tokens, else 0: float32 [B, T].

  Args:
    batch: encoder_input_tokens [B, L] or [B, P, L], decoder_target_tokens and
      decoder_loss_weights [B, T].
  """
  targets = batch['decoder_target_tokens']
  is_content = [
      np.isin(row, np.setdiff1d(tokens, common.tokens))
      for row, tokens in zip(targets, batch['encoder_input_tokens'])
  ]
  return batch['decoder_loss_weights'] * np.array(is_content, np.float32)


def input_text(tokens, vocabulary):
  """Returns the text of the tokens int [L], or [P, L], that a model read.

  Pages are joined by newlines, even if a page ends within a sentence. Pages
  without a letter or digit are left out, because config.data.empty_page stands
  for a page without text.
  """
  if tokens.ndim == 1:
    return vocabulary.decode(tokens.tolist())
  pages = [vocabulary.decode(page) for page in tokens.tolist()]
  return '\n'.join(page for page in pages if any(map(str.isalnum, page)))


def recall_of(protocol=protocols.PROTOCOLS['locost']):
  """Returns the Metric `recall` with the words of a `protocols.Protocol`."""
  return metric.Metric(
      'recall',
      (metric.Column('recall', 'recall', 1),),
      functools.partial(_recall, protocol),
      metric.CONTENT,
  )


def _recall(protocol, prediction, contents):
  """Returns {'recall': (content words written x 100, content words)}.

  The reference with the highest recall counts, each word once.
  """
  written = set(protocol.tokenize(prediction))
  counts = [
      (len(written.intersection(content)), len(set(content)))
      for content in contents
      if content
  ]
  if not counts:
    return {}
  found, wanted = max(counts, key=lambda count: count[0] / count[1])
  return {'recall': (100.0 * found, wanted)}


@functools.cache
def _token_sums():
  import jax  # not for those who only score texts

  from locost_jax.training import step

  return jax.jit(step.token_sums, static_argnames='model')


def _losses(model, params, batch):
  """Returns {key: (sum, weight)}; losses are in nats per target token."""
  import jax.numpy as jnp

  batch = dict(batch)
  every, of_content = batch['decoder_loss_weights'], batch.pop(WEIGHTS, None)
  if of_content is None:
    of_content = jnp.zeros_like(every)
  batch['decoder_loss_weights'] = jnp.stack([every, of_content], axis=-1)
  loss, hits, weight = _token_sums()(params, batch, model=model)
  return {
      'loss': (loss[0], weight[0]),
      'accuracy': (hits[0], weight[0]),
      'content_loss': (loss[1], weight[1]),
  }


def _perplexity(means):
  """Returns {'perplexity': exp(loss)} (SimCAS, table 9)."""
  if 'loss' not in means:
    return {}
  # exp(710) is infinite in float64, and JSON has no infinity.
  return {'perplexity': math.exp(min(means['loss'], 700.0))}


LOSS = metric.Metric(
    'loss',
    (
        metric.Column('loss', 'loss', 3, True),
        metric.Column('accuracy', ''),
        metric.Column('content_loss', 'content', 3, True),
        metric.Column('perplexity', '', lower_is_better=True),
    ),
    _losses,
    metric.MODEL,
    derive=_perplexity,
)
