"""Metrics of papers' tables match hand counts and loops; the command."""

import itertools
import json
import re

import numpy as np
import pytest

from papers import score
from papers import sentences
from tests.data.rows import write_jsonl as write
from tests.evaluation import test_score_metrics


def test_two_systems_are_compared_by_any_metric(tmp_path, run_command):
  """F1 by hand, matched by id; p is that of all 2^4 exchanges."""
  rows = [
      dict(id=str(i), prediction='w b c d'[: 2 * i + 1], reference='b c d')
      for i in range(4)
  ]
  one = f"--predictions={write(tmp_path / 'one.jsonl', rows)}"
  rows = [dict(row, prediction='b z') for row in rows[::-1]]
  rows[0]['prediction'] = 'b c'  # id 3
  other = write(tmp_path / 'other.jsonl', rows)
  target = tmp_path / 'x'
  flags = one, f'--compare={other}', '--metrics=answers', f'--output={target}'
  _, out, _ = run_command(score, *flags)
  found = json.loads(target.read_text())['differences']['f1']
  ours, theirs = [0, 40, 200 / 3, 600 / 7], [40, 40, 40, 80]
  assert found['means'] == pytest.approx([np.mean(ours), np.mean(theirs)])
  by = np.subtract(ours, theirs)
  assert found['difference'] == pytest.approx(by.mean())
  exchanged = [abs(by @ x) for x in itertools.product((-1, 1), repeat=4)]
  p = np.mean(np.array(exchanged) >= abs(by.sum()) - 1e-9)
  assert found['p_randomisation'] == pytest.approx(p, abs=0.02)
  (line,) = re.findall('^F1 .*', out, re.M)
  assert f' {np.mean(ours):.2f}  {np.mean(theirs):.2f} ' in line
  assert f'{found["p_randomisation"]:.4f}' in line
  status, _, err = run_command(score, *flags)
  assert status == 2 and 'exists already' in err


def test_pearson_equals_numpy():
  numbers = np.random.default_rng(0).normal(size=(40, 3))
  numbers[:, 2] += numbers[:, 0]
  found = score.pearson(numbers)
  np.testing.assert_allclose(found, np.corrcoef(numbers.T), 1e-12)
  numbers[:5, 1] = np.nan
  both = numbers[5:]
  np.testing.assert_allclose(
      score.pearson(numbers)[1, 2], np.corrcoef(both.T)[1, 2], 1e-12
  )
  numbers[:, 1] = 3
  assert np.isnan(score.pearson(numbers)[1]).all()


def test_similarities_equal_a_loop_over_all_pairs():
  vectors = np.random.default_rng(0).normal(size=(7, 4))
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  sums, counts, mean = sentences.similarities(vectors, 4)
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
  sums, counts, _ = sentences.similarities(vectors[:2], 4)
  assert counts.tolist() == [1, 0, 0, 0] and sums[1:].tolist() == [0] * 3


def test_shuffling_keeps_all_sentences():
  given = [str(i) for i in range(9)]
  found = sentences.shuffled(given, '0:1')
  assert found != given and sorted(found) == given
  assert found == sentences.shuffled(given, '0:1')
  assert found != sentences.shuffled(given, '1:1')


def test_p_values_of_coherence():
  draw = np.random.default_rng(1)
  values = dict(reference=draw.normal(0, 1, [60, 1]))
  values['prediction'] = values['reference'] + draw.normal(1, 1, [60, 1])
  values['shuffled'] = np.full([60, 1], np.nan)
  assert sentences.compare_rows(values) == {
      'prediction - reference': pytest.approx(1e-4, abs=1e-3),
      'prediction - shuffled': None,
      'reference - shuffled': None,
  }


def test_command_correlates_metrics(tmp_path, succeed):
  path = test_score_metrics.as_file(tmp_path / 'p.jsonl')
  flags = f'--predictions={path}', '--metrics=rouge,answers', '--correlation'
  out, _ = succeed(score, *flags)
  assert '\nPearson' in out
  out, _ = succeed(score, *flags, '--format=json')
  found = json.loads(out)['correlation']
  assert found['titles'][-2:] == ['answers EM', 'answers F1']
  assert found['values'][0][0] == pytest.approx(1)


def test_submission(tmp_path, run_command):
  path, made = tmp_path / 'p.jsonl', tmp_path / 'made.json'
  flags = score, f'--predictions={path}', f'--submission={made}'
  write(path, [dict(id=7, prediction='\u00e9'), dict(id='b', prediction='')])
  assert run_command(*flags)[0] == 0
  assert json.loads(made.read_bytes()) == {'7': '\u00e9', 'b': ''}
  assert 'exists already' in run_command(*flags)[2]
  good = dict(id=1, prediction='a')
  for rows, target, expected in (
      ([dict(prediction='a')], made, ":1: no field 'id'"),
      ([good] * 2, made, ":2: repeated 'id'"),
      ([good], path, '--submission='),
      ([good], tmp_path, '--submission='),
  ):
    write(path, rows)
    more = f'--submission={target}', '--overwrite'
    status, _, err = run_command(*flags, *more)
    assert status == 2 and expected in err
    assert json.loads(made.read_text())['b'] == ''


@pytest.mark.parametrize(
    'arguments, expected',
    [
        ('--metrics=localit', 'did you mean locality?'),
        ('--metrics=judge --model=x', '--base_url=: expected an address'),
        ('--metrics=rouge --sample=0', '--sample=0: expected an integer, 1'),
        ('--compare=x --correlation', 'expected one of them'),
    ],
)
def test_bad_command_lines_give_one_line(
    tmp_path, run_command, arguments, expected
):
  path = test_score_metrics.as_file(tmp_path / 'p.jsonl')
  flags = f'--predictions={path}', *arguments.split()
  status, out, err = run_command(score, *flags)
  assert (status, out, err.count('\n')) == (2, '', 1) and expected in err
