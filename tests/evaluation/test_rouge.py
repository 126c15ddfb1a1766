"""ROUGE as a metric of a run equals direct calls of rouge_score."""

import pytest
from rouge_score import rouge_scorer

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import rouge as rouge_lib

PREDICTIONS = [
    'The cat sat. A dog barked at running birds.',
    'Nothing in common',
    'It ended. It began again, e.g. on Monday.',
]
REFERENCES = [
    'A dog barks at birds that run. The cat was sitting on the mat.',
    'wholly different words here.',
    'It began again. It ended.',
]
# The same texts with one sentence per line, split by hand.
SPLIT_PREDICTIONS = [
    'The cat sat.\nA dog barked at running birds.',
    'Nothing in common',
    'It ended.\nIt began again, e.g. on Monday.',
]
SPLIT_REFERENCES = [
    'A dog barks at birds that run.\nThe cat was sitting on the mat.',
    'wholly different words here.',
    'It began again.\nIt ended.',
]


def rouge(predictions, references, protocol='locost'):
  """Returns {'rouge1': mean F1 x 100, ...}, as an evaluation measures it."""
  metrics = [rouge_lib.of_protocol(protocol)]
  return metric.score(metrics, predictions, references)


@pytest.mark.parametrize(
    'protocol, stemmer', [('locost', False), ('google', True)]
)
def test_equals_google_rouge_on_split_text(protocol, stemmer):
  scores = rouge(PREDICTIONS, REFERENCES, protocol)
  scorer = rouge_scorer.RougeScorer(rouge_lib.TYPES, use_stemmer=stemmer)
  expected = [
      scorer.score(r, p) for p, r in zip(SPLIT_PREDICTIONS, SPLIT_REFERENCES)
  ]
  for name in rouge_lib.TYPES:
    mean = 100 * sum(e[name].fmeasure for e in expected) / 3
    assert scores[name] == pytest.approx(mean, abs=1e-9)
  assert scores['rouge_mean'] == pytest.approx(
      (scores['rouge1'] + scores['rouge2'] + scores['rougeLsum']) / 3
  )
  assert scores['rougeLsum'] > scores['rougeL'] + 5


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
