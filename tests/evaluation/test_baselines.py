"""Baselines match brute force."""

import numpy as np
import pytest
from rouge_score import rouge_scorer

from locost_jax.errors import InputError
from locost_jax.evaluation import baselines
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge as rouge_lib
from tests.evaluation.test_protocols import rouge


def _sentences(rng, count):
  words = ['returns', 'the', 'a', 'of', 'array', 'tensor', 'x', 'file', 'sum']
  texts = []
  for _ in range(count):
    lengths = rng.integers(1, 9, size=rng.integers(1, 3))
    texts.append(
        ' '.join(
            ' '.join(rng.choice(words, n)).capitalize() + '.' for n in lengths
        )
    )
  return texts


def test_best_constant_is_the_best_of_all():
  for seed in range(4):
    rng = np.random.default_rng(seed)
    train, validation = _sentences(rng, 60), _sentences(rng, 9)
    means = [
        rouge([t] * len(validation), validation)['rouge_mean'] for t in train
    ]
    best = baselines.best_constant(train, validation, most_exact=len(train))
    assert best == train[int(np.argmax(np.round(means, 9)))]


def test_best_constant_with_an_unlimited_search_stops_early(monkeypatch):
  rng = np.random.default_rng(7)
  train, validation = _sentences(rng, 400), _sentences(rng, 20)
  scored, score_rows = [], rouge_lib.score_rows
  monkeypatch.setattr(
      rouge_lib,
      'score_rows',
      lambda rows, *rest: scored.extend(rows) or score_rows(rows, *rest),
  )
  unlimited = baselines.best_constant(train, validation, most_exact=400)
  assert len(scored) < 200 * len(validation)
  assert unlimited in train


def test_mean_rouge_n_equals_rouge_score():
  rng = np.random.default_rng(1)
  candidates = _sentences(rng, 20) + ['', 'the the the the', '...']
  references = _sentences(rng, 15) + ['the the', '', 'nothing shared']
  words = [
      [protocols.find('locost').tokenize(t) for t in texts]
      for texts in (candidates, references)
  ]
  scorer = rouge_scorer.RougeScorer(['rouge1', 'rouge2'])
  for n in (1, 2):
    expected = [
        100
        * np.mean(
            [scorer.score(r, c)[f'rouge{n}'].fmeasure for r in references]
        )
        for c in candidates
    ]
    np.testing.assert_allclose(
        baselines._mean_rouge_n(*words, n), expected, atol=1e-9
    )


def test_unigram_loss_by_hand():
  train = [np.array([3, 3, 1]), np.array([4, 1])]
  validation = [np.array([3, 1]), [0]]
  # Counts plus one, of ids 0 to 4: 1, 3, 1, 3, 2.
  expected = -(2 * np.log(3 / 10) + np.log(1 / 10)) / 3
  assert baselines.unigram_loss(train, validation, 5) == pytest.approx(expected)


def test_empty_inputs_are_refused():
  with pytest.raises(InputError, match='no validation tokens'):
    baselines.unigram_loss([[1]], [], 5)
  with pytest.raises(InputError, match='got 0 and 1'):
    baselines.best_constant([], ['a'])
