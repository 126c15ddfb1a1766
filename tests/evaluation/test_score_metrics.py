"""Metrics of texts match hand counts: answers, lengths, repetition, oracle."""

import collections
import json
import random
import re

import numpy as np
import pytest

from locost_jax import score
from locost_jax.errors import InputError
from locost_jax.evaluation import baselines
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import texts
from papers import score as papers_score
from tests.data.rows import write_jsonl as write


def test_repeated_ngrams_by_hand():
  repeated = texts.repetition('The cat sat. The cat!')
  assert repeated['repeated_1'] == (pytest.approx(40), 1)
  assert repeated['repeated_2'] == (pytest.approx(25), 1)
  assert repeated['repeated_4'] == (0, 1)


@pytest.mark.parametrize(
    'found, shown',
    [
        (1, '1'),
        ({'lines': 1}, '{"lines": 1}'),
        ({'lines': (1, 1, 1)}, '{"lines": [1, 1, 1]}'),
    ],
)
def test_what_a_metric_of_ones_own_returns_is_checked(found, shown):
  own = metric.Metric('lines', (), lambda prediction, references: found)
  message = re.escape(f'returned {shown}; expected a dict of (sum, weight)')
  with pytest.raises(InputError, match=message):
    metric.score([own], ['a'], ['b'])


def test_length_ratio_uses_the_nearest_reference():
  assert texts.length('a b', ['a', 'a b c', '']) == {
      'words': (2, 1),
      'length': (2, 1),
  }
  assert texts.length('a b', [' ']) == {'words': (2, 1)}


@pytest.mark.parametrize(
    'prediction, references, match, f1',
    [
        ('The Cat!', ['cat'], 100, 100),
        ('an answer', ['no', 'Answer.'], 100, 100),
        ('a red red cat', ['red dog', 'x'], 0, 100 * 2 / 5),
        ('', ['the'], 100, 0),
    ],
)
def test_answers(prediction, references, match, f1):
  assert texts.answers(prediction, references) == {
      'exact_match': (match, 1),
      'f1': (pytest.approx(f1), 1),
  }


def oracle_value(sentences, reference):
  """Returns the mean of ROUGE-1 and -2 F1; bigrams do not cross sentences."""
  scores = []
  for n in (1, 2):
    grams = lambda words: list(zip(*(words[i:] for i in range(n))))
    ours = collections.Counter(sum(map(grams, sentences), []))
    theirs = collections.Counter(grams(reference))
    total = ours.total() + theirs.total()
    scores.append(2 * (ours & theirs).total() / max(total, 1))
  return sum(scores) / 2


def test_oracle_adds_the_best_sentence_each_time():
  draw = random.Random(1)
  words = lambda most: [draw.choice('abcdefgh') for _ in range(most)]
  sizes = set()
  for _ in range(40):
    document = [words(draw.randrange(7)) for _ in range(9)]
    reference = words(12)
    chosen, best = [], 0
    while len(chosen) < len(document):
      scores = [
          -1
          if s in chosen
          else oracle_value([document[c] for c in [*chosen, s]], reference)
          for s in range(len(document))
      ]
      if max(scores) <= best + 1e-12:
        break
      best = max(scores)
      # The first of the sentences that are equal up to rounding.
      chosen.append(next(s for s in range(9) if scores[s] > best - 1e-12))
    found = baselines.select_sentences(document, reference)
    value = oracle_value([document[s] for s in found], reference)
    assert value == pytest.approx(best)
    assert set(chosen[:1]) <= set(found)
    sizes.add(len(found))
  assert len(sizes) > 2


def test_means_intervals_and_missing_numbers():
  values = np.array([[1.0, np.nan], [3.0, np.nan], [8.0, np.nan]])
  columns = texts.REPETITION.columns[:2]
  found = metric.summarize(
      'x', metric.Result(columns, {'prediction': values}, ('a:1',))
  )
  low, high = found['intervals']['prediction']['repeated_1']
  assert found['values']['prediction'] == {'repeated_1': 4, 'repeated_2': None}
  assert 1 <= low < 4 < high <= 8
  assert found['documents']['prediction'] == {'repeated_1': 3, 'repeated_2': 0}
  assert found['signature'] == 'x|a:1|n:3|ci:95'


TEXT = (
    'Rain fell on the hills. The river rose by 3 metres. Dogs bark. It ended.'
)
ROWS = [
    metric.Row(TEXT[:23], ['The river rose by 3 metres.'], TEXT),
    metric.Row('Dogs bark.', ['Dogs bark. It ended.'], TEXT),
    metric.Row('Dogs.', ['Rain fell on the hills.'], TEXT),
]


def as_file(path):
  return write(path, [row._asdict() for row in ROWS])


def test_command_prints_tables_and_json(tmp_path, succeed):
  path = as_file(tmp_path / 'p.jsonl')
  flags = path, '--metrics=rouge,answers'
  printed, _ = succeed(score, *flags)
  assert '\nrouge|locost|stem:no|' in printed
  assert '\nanswers|scrolls|agg:max|n:3' in printed
  found = json.loads(succeed(score, *flags, '--format=json')[0])
  plain = json.loads(succeed(score, path, '--format=json')[0])
  assert found['metrics']['rouge']['signature'] == plain['signature']
  rouge = found['metrics']['rouge']['values']['prediction']
  assert rouge == {
      key: pytest.approx(plain[key]) for key in (*protocols.TYPES, 'rouge_mean')
  }
  assert found['metrics']['rouge']['intervals']['prediction']['rouge1'] == (
      pytest.approx(plain['intervals']['rouge1'])
  )


def documents(path, other=None):
  rows = predictions.read_rows(path, other, {})
  return [row.document for row in rows]


def test_documents_from_another_file(tmp_path):
  rows = [dict(id=i, prediction='a', reference='b') for i in range(3)]
  path = write(tmp_path / 'p.jsonl', rows)
  of = lambda ids: write(
      tmp_path / 'd.jsonl',
      [dict(i, document=f'd{n}') for n, i in enumerate(ids)],
  )
  by_id = of([dict(id=2), dict(id=0), dict(id=5), dict(id=1)])
  assert documents(path, by_id) == ['d1', 'd3', 'd0']
  assert documents(path, of([{}] * 3)) == ['d0', 'd1', 'd2']
  assert documents(path) == [None] * 3
  # The field of the run that wrote the predictions.
  ours = [dict(row, settings={'input_field': 'article'}) for row in rows]
  path = write(tmp_path / 'run.jsonl', ours)
  own = [dict(id=i, article=f'a{i}', document='d') for i in range(3)]
  other = write(tmp_path / 'own.jsonl', own)
  assert documents(path, other) == ['a0', 'a1', 'a2']
  assert documents(path, by_id) == ['d0', 'd1', 'd2']


def test_documents_that_do_not_match(tmp_path):
  path = write(
      tmp_path / 'p.jsonl', [dict(id=1, prediction='a', reference='b')]
  )
  for rows, expected in (
      ([dict(id=2, document='d')], 'no row with the id 1 of'),
      ([dict(document='d')] * 2, '2 rows without ids, expected the 1 of'),
  ):
    other = write(tmp_path / 'd.jsonl', rows)
    with pytest.raises(ValueError, match=expected):
      documents(path, other)


def test_models_of_metrics():
  names = ['bertscore', 'blanc', 'bertscore']
  chosen = metric_table.find(names, papers_score.METRICS)
  assert list(chosen) == ['bertscore', 'blanc']
  assert metric_table.find_models(chosen, ['a=b']) == dict(
      bertscore='a=b', blanc='a=b'
  )
  assert metric_table.find_models(
      chosen, ['blanc=x', 'bertscore=hf://a/b']
  ) == dict(bertscore='hf://a/b', blanc='x')
