"""The two metrics of evaluation/content.py: recall and content_loss."""

import functools

import jax
import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.evaluation import baselines
from locost_jax.evaluation import content
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge
from locost_jax.training import losses
from tests.batches import BYTES
from tests.evaluation import test_evaluate
from tests.evaluation.test_evaluate import make_batches
from tests.evaluation.test_evaluate import TARGETS
from tests.evaluation.test_evaluate import TEXTS

# Each letter is a common token, each word a common word.
RECALL = content.recall_of()
COMMON = content.Common(('the', 'two'), tuple(BYTES.encode('e t')))


def test_most_common_words():
  records = [
      dict(reference='A cat, a dog.', targets=np.array([7, 7, 8])),
      dict(reference='A dog and the CAT', targets=np.array([8, 9])),
  ]
  assert content.most_common(records, 2) == (('a', 'cat'), (7, 8), 'locost')
  found = content.most_common(records, 9).words
  assert found == ('a', 'cat', 'dog', 'and', 'the')


def test_content_words():
  found = content.content_words(
      'The cat: it saw TWO dogs, a cat and 12 mice.',
      'Dogs and mice (12!) live with the cat. Two.',
      COMMON,
  )
  assert found == ['cat', 'dogs', 'and', '12', 'mice']


def test_recall_is_over_all_words_of_all_documents():
  contents = [[['cat', 'dog', 'mat']], [['ship'], ['sea', 'sun']], [[]]]
  predictions = ['A cat, a cat on a mat', 'The sun!', 'Anything']
  measured = metric.score(
      [RECALL, rouge.of_protocol()], predictions, ['a'] * 3, contents
  )
  # 2 of 3; 1 of 2 (the other reference has 0 of 1); no words.
  assert measured['recall'] == pytest.approx(100 * (2 + 1) / (3 + 2))
  assert RECALL.sums('anything', [[], []]) == {}
  without = metric.score([RECALL, rouge.of_protocol()], predictions, ['a'] * 3)
  assert 'recall' not in without and without['rouge1'] == measured['rouge1']


@pytest.mark.parametrize('shape', [(2, 6), (2, 2, 3)])
def test_weights(shape):
  batch = dict(
      encoder_input_tokens=np.array(
          [[5, 6, 7, 7, 1, 0], [8, 9, 5, 1, 0, 0]]
      ).reshape(shape),
      decoder_target_tokens=np.array([[7, 6, 8, 1], [8, 5, 9, 9]]),
      decoder_loss_weights=np.array([[1.0, 1, 1, 1], [1, 1, 0.5, 0]]),
  )
  found = content.weights(batch, content.Common((), (1, 6)))
  assert found.tolist() == [[1, 0, 0, 0], [1, 1, 0.5, 0]]


def content_tokens(text, target):
  """Finds the positions of content tokens in a target, by a plain loop."""
  read, common = BYTES.encode(text) + [1], COMMON.tokens
  ids = BYTES.encode(target) + [1]
  return np.array([token in read and token not in common for token in ids])


setup = test_evaluate.setup


def measure(setup, batches):
  return test_evaluate.measure(setup, batches, 'loss', 'recall', common=COMMON)


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, batch):
  read, written = batch['encoder_input_tokens'], batch['decoder_input_tokens']
  return model.apply({'params': params}, read, written)


@pytest.mark.products
def test_content_loss_equals_a_loop_over_documents(setup):
  total, weight, every = 0.0, 0, []
  for (batch, _), text, target in zip(make_batches(1), TEXTS, TARGETS):
    logits = np.asarray(apply(*setup[1:3], batch)[0], np.float64)
    ids = batch['decoder_target_tokens'][0]
    log_p = logits[np.arange(len(ids)), ids] - np.log(np.exp(logits).sum(-1))
    chosen = content_tokens(text, target)
    total -= float(log_p[: len(chosen)][chosen].sum())
    weight += chosen.sum()
    every += list(-np.asarray(log_p[: len(chosen)]))
  measured, rows = measure(setup, make_batches(2))
  assert measured['content_loss'] == pytest.approx(total / weight, rel=1e-5)
  assert measured['perplexity'] == pytest.approx(np.exp(measured['loss']))
  assert measured['loss'] == pytest.approx(np.mean(every), rel=1e-5)
  assert abs(measured['loss'] - measured['content_loss']) > 1e-3
  keys = {'id', 'prediction', 'reference', 'tokens_kept'}
  assert all(set(row) == keys for row in rows)
  written = [
      set(protocols.find('locost').tokenize(row['prediction'])) for row in rows
  ]
  words = [
      content.content_words(target, text, COMMON)
      for target, text in zip(TARGETS, TEXTS)
  ]
  assert words == [[], [], [], ['four'], ['fifth']]
  found = sum(len(one.intersection(own)) for one, own in zip(written, words))
  expected = 100 * found / sum(map(len, words))
  assert measured['recall'] == pytest.approx(expected)


def test_exchanged_inputs_are_measured_on_the_same_tokens(setup):
  """Content tokens always come from the target's own document."""
  exchange = lambda: baselines.exchange_inputs(
      content.with_weights(make_batches(5), COMMON), BYTES
  )
  ((batch, _),) = exchange()
  for row, (text, target) in enumerate(zip(TEXTS, TARGETS)):
    chosen = content_tokens(text, target)
    assert batch[content.WEIGHTS][row, : len(chosen)].tolist() == list(chosen)
  exchanged, _ = measure(setup, exchange())
  log_p = jax.jit(losses.log_likelihoods)(
      apply(*setup[1:3], batch), batch['decoder_target_tokens']
  )
  weights = batch[content.WEIGHTS]
  expected = -(np.asarray(log_p) * weights).sum() / weights.sum()
  assert exchanged['content_loss'] == pytest.approx(expected, rel=1e-5)


def test_common_words_are_saved_and_loaded(tmp_path):
  path = tmp_path / content.FILE
  content.save(COMMON, path)
  assert content.load(path) == COMMON
  with pytest.raises(FileNotFoundError):
    content.load(tmp_path / 'nowhere')
  path.write_text('{"words": ["a"], "tokens": ["b"]}')
  with pytest.raises(
      InputError, match=r'tokens=\["b"\]: expected a list, each'
  ):
    content.load(path)
