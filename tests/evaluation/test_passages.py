"""Support of sentences by passages, and PageSum's metrics."""

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import coherence
from locost_jax.evaluation.model_metrics import entailment
from locost_jax.evaluation.model_metrics import locality
from locost_jax.evaluation.model_metrics import passages
from tests import tiny_run


def test_passages_hold_whole_sentences():
  document = 'One two three. Four five. Six. Seven eight nine ten eleven. Z.'
  assert passages.split(document, 5) == [
      'One two three. Four five.',
      'Six.',
      'Seven eight nine ten eleven.',
      'Z.',
  ]
  assert passages.split(document) == [document]
  assert len(passages.split('word ' * 1001)) == 1  # one sentence


def test_support_is_the_maximum_over_passages():
  text = ' '.join(f'Cats sleep {i}.' for i in range(200))
  assert len(passages.split(text)) == 2
  seen = []

  def support(pairs):
    seen.extend(pairs)
    return [
        0.9 if sentence.rstrip('.') in passage else 0.2
        for passage, sentence in pairs
    ]

  rows = [
      score_metric.Row('Cats sleep 199. Dogs bark.', ['x'], text),
      score_metric.Row('', ['x'], text),
      score_metric.Row('Cats sleep 0.', ['x'], text),
  ]
  found = passages.run(
      'entailment', rows, score_metric.Settings(threshold=0.5), support, ('m',)
  )
  np.testing.assert_allclose(
      found.values['prediction'], [[50, 0.55], [np.nan] * 2, [100, 0.9]]
  )
  assert len(seen) == 6 and found.more == dict(sentences=3, passages=6)
  assert found.parts == ('m', 'threshold:0.5', 'passages:500')
  assert found.notes == ('warning: entailment: 1 empty predictions, left out',)
  # A probability equal to the threshold does not count as support.
  at = passages.run(
      'entailment', rows, score_metric.Settings(threshold=0.9), support, ('m',)
  )
  assert np.nanmax(at.values['prediction'][:, 0]) == 0


def test_similarities_equal_a_loop_over_all_pairs():
  vectors = np.random.default_rng(0).normal(size=(7, 4))
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  sums, counts, mean = locality.similarities(vectors, 4)
  pairs = [
      (j - i, vectors[i] @ vectors[j])
      for i in range(7)
      for j in range(i + 1, 7)
  ]
  for d in range(1, 5):
    own = [cosine for distance, cosine in pairs if distance == d]
    assert counts[d - 1] == len(own)
    np.testing.assert_allclose(sums[d - 1], sum(own), 1e-12)
  np.testing.assert_allclose(mean, np.mean([x for _, x in pairs]), 1e-12)
  sums, counts, _ = locality.similarities(vectors[:2], 4)
  assert counts.tolist() == [1, 0, 0, 0] and sums[1:].tolist() == [0] * 3


def test_significance_of_paired_differences():
  draw = np.random.default_rng(1)
  assert coherence.p_value(draw.normal(1, 1, 60), 0) < 0.001
  assert coherence.p_value(draw.normal(0, 1, 60), 0) > 0.05
  assert coherence.p_value(np.full(4, np.nan), 0) is None
  # Of the 2^3 sums of +-1, +-2, +-4, only two have |sum| >= 7.
  p = coherence.p_value(np.array([1.0, np.nan, 2, 4]), 0)
  np.testing.assert_allclose(p, 2 / 8, atol=0.02)


def test_shuffling_keeps_all_sentences():
  given = [str(i) for i in range(9)]
  found = coherence.shuffled(given, '0:1')
  assert found != given and sorted(found) == given
  assert found == coherence.shuffled(given, '0:1')
  assert found != coherence.shuffled(given, '1:1')


def test_entailment_refuses_models_other_than_t5(tmp_path):
  rows = [
      score_metric.Row('One cat. Two.', ['x'], 'One cat sat. Two dogs did not.')
  ]
  settings = lambda name: score_metric.Settings(
      model=str(tmp_path / name), batch_size=2
  )
  tiny_run.make(tmp_path / 'locost')
  with pytest.raises(InputError, match='entailment needs a T5, got locost'):
    entailment.run(rows, settings('locost'))
