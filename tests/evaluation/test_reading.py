"""Metrics of copying, repetition and novelty match hand counts and loops."""

import collections
import itertools
import json
import random

import numpy as np
import pytest

from locost_jax.evaluation import bounds
from locost_jax.evaluation import score_metric_table
from locost_jax.evaluation import source_documents
from locost_jax.evaluation.metrics import answers
from locost_jax.evaluation.metrics import correlation
from locost_jax.evaluation.metrics import entities
from locost_jax.evaluation.metrics import extractive_oracle
from locost_jax.evaluation.metrics import fragments
from locost_jax.evaluation.metrics import lengths
from locost_jax.evaluation.metrics import ngrams
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import score_metric
from tests.evaluation import test_score


def test_novel_and_repeated_ngrams_by_hand():
  novel = ngrams.novelty('The cat sat. The cat!', 'A cat sat there.')
  assert novel['novel_1'] == (pytest.approx(100 / 3), 1)  # the
  # the cat, cat sat, sat the: the document has only cat sat.
  assert novel['novel_2'] == (pytest.approx(200 / 3), 1)
  repeated = ngrams.repetition('The cat sat. The cat!')
  assert repeated['repeated_1'] == (pytest.approx(40), 1)
  assert repeated['repeated_2'] == (pytest.approx(25), 1)
  assert repeated['repeated_4'] == (0, 1)
  assert ngrams.novelty('one two', 'x').keys() == {'novel_1', 'novel_2'}


def slow_fragments(summary, document):
  """Figure 3 of Grusky et al., word for word."""
  found, i, j = [], 0, 0
  while i < len(summary):
    longest = []
    while j < len(document):
      if summary[i] == document[j]:
        i2, j2 = i, j
        while (
            i2 < len(summary)
            and j2 < len(document)
            and summary[i2] == document[j2]
        ):
          i2, j2 = i2 + 1, j2 + 1
        if len(longest) < i2 - i:
          longest = summary[i:i2]
        j = j2
      else:
        j += 1
    i, j = i + max(len(longest), 1), 0
    found.append(longest)
  return [len(one) for one in found if one]


def test_fragments_equal_the_loop_of_the_paper():
  draw = random.Random(0)
  for _ in range(200):
    summary, document = (
        [draw.choice('abcde') for _ in range(draw.randrange(30))]
        for _ in range(2)
    )
    # The paper's loop continues after a match and can miss a longer match that
    # begins inside it: lengths may differ, the covered words may not.
    spans = fragments.find(summary, document)
    ours = [end - start for start, end in spans]
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    for start, end in spans:
      assert ' '.join(summary[start:end]) in ' '.join(document)
    assert sum(ours) == sum(slow_fragments(summary, document))
    assert ours == longest_matches(summary, document)


def longest_matches(summary, document):
  """Finds fragments by trying all lengths at all positions."""
  texts = {
      tuple(document[j:k])
      for j, k in itertools.combinations(range(len(document) + 1), 2)
  }
  found, i = [], 0
  while i < len(summary):
    length = len(summary) - i
    while length and tuple(summary[i : i + length]) not in texts:
      length -= 1
    found += [length] if length else []
    i += max(length, 1)
  return found


def test_coverage_and_density_by_hand():
  sums = fragments.sums('a b x c', 'c a b a b c d d')
  assert sums == {
      'coverage': (3 / 4, 1),  # a b, c
      'density': (5 / 4, 1),
      'compression': (2, 1),
  }
  assert not fragments.sums('!', 'a')


def test_length_ratio_uses_the_nearest_reference():
  assert lengths.sums('a b', ['a', 'a b c', '']) == {
      'words': (2, 1),
      'length': (2, 1),
  }
  assert lengths.sums('a b', [' ']) == {'words': (2, 1)}


def test_numbers_and_names():
  text = 'It cost $1,200.50 in 1999. Paris met NASA. Then Bob\u2019s dog left.'
  assert entities.numbers(text) == {'1200.50', '1999'}
  assert entities.names(text) == {'nasa', 'bob'}
  assert entities.names('NASA paid. I did. Half of the Well-Known.') == {
      'nasa',
      'well-known',
  }
  sums = entities.sums(
      'On Monday 1,000 of 12 met Bob and Ann.', 'bob had 1000 cats on monday.'
  )
  assert sums['numbers'] == (50, 1)
  assert sums['names'] == (pytest.approx(200 / 3), 1)
  assert not entities.sums('nobody came', 'Bob 12')


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
  assert answers.sums(prediction, references) == {
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
    found = extractive_oracle.select(document, reference)
    value = oracle_value([document[s] for s in found], reference)
    assert value == pytest.approx(best)
    assert extractive_oracle.select(document, reference, 1) == chosen[:1]
    sizes.add(len(found))
  assert len(sizes) > 2


def test_pearson_equals_numpy():
  numbers = np.random.default_rng(0).normal(size=(40, 3))
  numbers[:, 2] += numbers[:, 0]
  found = correlation.pearson(numbers)
  np.testing.assert_allclose(found, np.corrcoef(numbers.T), 1e-12)
  numbers[:5, 1] = np.nan
  both = numbers[5:]
  np.testing.assert_allclose(
      correlation.pearson(numbers)[1, 2], np.corrcoef(both.T)[1, 2], 1e-12
  )
  numbers[:, 1] = 3
  assert np.isnan(correlation.pearson(numbers)[1]).all()


TEXT = (
    'Rain fell on the hills. The river rose by 3 metres. Dogs bark. It ended.'
)
ROWS = [
    score_metric.Row(TEXT[:23], ['The river rose by 3 metres.'], TEXT),
    score_metric.Row('Dogs bark.', ['Dogs bark. It ended.'], TEXT),
    score_metric.Row('Dogs.', ['Rain fell on the hills.'], TEXT),
]


def test_bounds():
  settings = score_metric.Settings(protocol=protocols.find('locost'))
  found = bounds.run(ROWS, settings)
  oracle = found.values['oracle']
  np.testing.assert_allclose(oracle, 100)  # references are sentences of TEXT
  assert list(found.values) == ['lead-1', 'constant', 'oracle']
  np.testing.assert_allclose(found.values['lead-1'][2], 100)
  assert found.values['lead-1'][0, 0] < 50
  constant = [found.more['constant'] in row.references for row in ROWS]
  assert sum(constant) == 1
  assert np.isnan(found.values['constant'][constant]).all()
  assert not np.isnan(found.values['constant'][np.logical_not(constant)]).any()


def test_means_intervals_and_missing_numbers():
  values = np.array([[1.0, np.nan], [3.0, np.nan], [8.0, np.nan]])
  columns = ngrams.NOVELTY.columns[:2]
  found = score_metric.summarize(
      'x', score_metric.Result(columns, {'prediction': values}, ('a:1',))
  )
  low, high = found['intervals']['prediction']['novel_1']
  assert found['values']['prediction'] == {'novel_1': 4, 'novel_2': None}
  assert 1 <= low < 4 < high <= 8
  assert found['documents']['prediction'] == {'novel_1': 3, 'novel_2': 0}
  assert found['signature'] == 'x|a:1|n:3|ci:95'


def as_file(path, rows=ROWS):
  return test_score.write(
      path,
      [
          dict(
              prediction=a,
              references=b,
              **({} if c is None else {'document': c}),
          )
          for a, b, c in rows
      ],
  )


def test_command_prints_tables_and_json(tmp_path, capsys):
  path = as_file(tmp_path / 'p.jsonl')
  test_score.call(path, '--metrics=rouge,reading,answers', '--correlation')
  printed = capsys.readouterr().out
  for start in (
      'rouge|locost|stem:no|',
      'novelty|words:1|n:3|ci:95',
      'bounds|rouge|locost|',
      'answers|scrolls|agg:max|n:3',
      'Pearson',
  ):
    assert f'\n{start}' in printed
  test_score.call(
      path, '--metrics=rouge,length', '--correlation', '--format=json'
  )
  found = json.loads(capsys.readouterr().out)
  test_score.call(path, '--format=json')
  plain = json.loads(capsys.readouterr().out)
  assert found['metrics']['rouge']['signature'] == plain['signature']
  rouge = found['metrics']['rouge']['values']['prediction']
  assert rouge == {
      key: pytest.approx(plain[key]) for key in (*protocols.TYPES, 'rouge_mean')
  }
  assert found['metrics']['rouge']['intervals']['prediction']['rouge1'] == (
      pytest.approx(plain['intervals']['rouge1'])
  )
  assert found['correlation']['titles'][-2:] == ['length words', 'length']
  assert found['correlation']['values'][0][0] == pytest.approx(1)


def test_documents_from_another_file(tmp_path):
  rows = [dict(id=i, prediction='a', reference='b') for i in range(3)]
  path = test_score.write(tmp_path / 'p.jsonl', rows)
  of = lambda ids: test_score.write(
      tmp_path / 'd.jsonl',
      [dict(i, document=f'd{n}') for n, i in enumerate(ids)],
  )
  by_id = of([dict(id=2), dict(id=0), dict(id=5), dict(id=1)])
  assert source_documents.read(path, by_id) == ['d1', 'd3', 'd0']
  assert source_documents.read(path, of([{}] * 3)) == ['d0', 'd1', 'd2']
  assert source_documents.read(path) == [None] * 3


@pytest.mark.parametrize(
    'arguments, expected',
    [
        (
            ['--metrics=novelt'],
            '--metrics=novelt: no such metric; did you mean novelty? expected '
            'some of rouge, novelty',
        ),
        (['--metrics='], '--metrics=: expected some of'),
        (
            ['--metrics=bertscore'],
            '--metrics=bertscore needs a model: --model=',
        ),
        (
            ['--metrics=rouge', '--model=x', '--correlation'],
            '--model=x: no metr',
        ),
        (
            ['--metrics=blanc,hhem', '--model=blanc=x'],
            '--metrics=hhem needs a model: --model=DIR, or --model=hhem=DIR',
        ),
        (
            ['--metrics=blanc', '--model=hhem=x'],
            '--model=hhem=x: --metrics=hhem has no model; these need one: blanc',
        ),
        (['--metrics=judge', '--model=x'], '--base_url is missing'),
        (
            ['--metrics=novelty'],
            "p.jsonl: row 2 has no 'document', which --metrics=novelty needs",
        ),
        (
            ['--metrics=novelty', '--documents=setup.cfg'],
            'setup.cfg:1: not JSON',
        ),
        (['--metrics=novelty', '--threshold=2'], '0 <= threshold <= 1'),
        (['--metrics=novelty', '--layer=0'], '1 <= layer'),
        (['--metrics=novelty', '--sample=0'], '1 <= sample'),
    ],
)
def test_bad_command_lines_give_one_line(tmp_path, capsys, arguments, expected):
  rows = [ROWS[0], ROWS[1]._replace(document=None)]
  path = as_file(tmp_path / 'p.jsonl', rows)
  with pytest.raises(ValueError) as error:
    test_score.call(path, *arguments)
  message = str(error.value)
  assert expected in message and '\n' not in message
  assert not capsys.readouterr().out


def test_documents_that_do_not_match(tmp_path):
  path = test_score.write(tmp_path / 'p.jsonl', [dict(id=1, prediction='a')])
  for rows, expected in (
      ([dict(id=2, document='d')], 'no row with the id 1 of'),
      ([dict(document='d')] * 2, '2 rows without ids, expected the 1 of'),
  ):
    other = test_score.write(tmp_path / 'd.jsonl', rows)
    with pytest.raises(ValueError, match=expected):
      source_documents.read(path, other)


def test_models_of_metrics():
  chosen = score_metric_table.find(['bertscore', 'reading', 'blanc', 'novelty'])
  names = [entry.name for entry in chosen]
  assert names.count('novelty') == 1 and names[0] == 'bertscore'
  assert score_metric_table.find_models(chosen, ['a=b']) == dict(
      bertscore='a=b', blanc='a=b'
  )
  assert score_metric_table.find_models(
      chosen, ['blanc=x', 'bertscore=hf://a/b']
  ) == dict(bertscore='hf://a/b', blanc='x')
