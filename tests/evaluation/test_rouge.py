"""ROUGE as a metric of a run: numbers by hand, several references."""

import pytest

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import rouge as rouge_lib


def rouge(predictions, references):
  """Returns {'rouge1': mean F1 x 100, ...}, as an evaluation measures it."""
  metrics = [rouge_lib.of_protocol('locost')]
  return metric.score(metrics, predictions, references)


def test_numbers_by_hand():
  # 3 words of 4 and of 6 match, in order; no bigram matches.
  scores = rouge(['the cat sat down'], ['the black cat never sat up'])
  assert scores['rouge1'] == pytest.approx(100 * 2 * 3 / 10)
  assert scores['rouge2'] == 0
  assert scores['rougeL'] == scores['rougeLsum'] == scores['rouge1']
  assert rouge(['a b', ''], ['a b', 'c'])['rouge1'] == 50


def test_the_best_of_several_references_counts():
  """The best reference is chosen for each kind of ROUGE."""
  several = ['the cat sat down there', 'sat the cat down']
  found = rouge(['the cat sat down', 'x'], [several, 'x'])
  single = [rouge(['the cat sat down'], [text]) for text in several]
  for name in rouge_lib.TYPES:
    assert found[name] == pytest.approx(
        (max(score[name] for score in single) + 100 * (name != 'rouge2')) / 2
    )
  assert single[0]['rouge1'] < single[1]['rouge1']
  assert single[0]['rougeL'] > single[1]['rougeL']
