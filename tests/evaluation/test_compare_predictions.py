"""`score --compare` and WORKDIRs: numbers, output, errors."""

import functools
import hashlib
import json
import os
import re

import pytest

from locost_jax import score
from locost_jax.evaluation import compare_predictions
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from tests import tiny_run
from tests.data.rows import write_jsonl as write
from tests.deadline import within

# R-1 by hand: 100 (all words), 50 (2 of 4 in both), 0.
GOOD, HALF, BAD = 'a b c d', 'a b x y', 'v w x y'


def row(prediction, number=None, **more):
  name = {} if number is None else {'id': number}
  return dict(prediction=prediction, reference='a b c d', **name, **more)


@pytest.fixture
def compare(run_command, tmp_path):
  """compare(rows of A, rows of B, *arguments) -> (status, out, err)."""

  def compare(ours, theirs, *arguments):
    return run_command(
        score,
        f'--predictions={write(tmp_path / "a.jsonl", ours)}',
        f'--compare={write(tmp_path / "b.jsonl", theirs)}',
        *arguments,
    )

  return compare


def test_statistics_by_hand(compare):
  ours = [row(GOOD, '1'), row(HALF, '2'), row(BAD, '3'), row(GOOD, '4')]
  theirs = [row(HALF, '4'), row(HALF, '3'), row(HALF, '2'), row(BAD, '1')]
  status, out, err = compare(ours, theirs, '--format=json')
  assert (status, err) == (0, '')
  found = json.loads(out)
  assert [side['rouge1'] for side in found['scores']] == [62.5, 37.5]
  of = found['differences']['rouge1']
  assert of['difference'] == 25
  assert (of['wins'], of['ties'], of['losses']) == (2, 1, 1)
  # Differences 100, 50, 0, -50. In 8 of 16 exchanges |sum| >= 100.
  assert of['p_randomisation'] == pytest.approx(12 / 16, abs=0.02)
  assert found['signature'].endswith('|n:4|ci:95')
  assert set(found['differences']) == {*protocols.TYPES, 'rouge_mean'}


def test_the_geometric_mean_has_tests_but_no_wins(compare):
  ours, theirs = [row(GOOD), row(HALF)], [row(HALF), row(HALF)]
  _, out, _ = compare(ours, theirs, '--format=json', '--protocol=scrolls')
  found = json.loads(out)
  of = found['differences']['rouge_geometric_mean']
  one, other = (side['rouge_geometric_mean'] for side in found['scores'])
  assert of['difference'] == pytest.approx(one - other) and 'wins' not in of
  assert 0 < of['p_randomisation'] <= 1


def test_the_table(compare):
  ours = [row(GOOD, i) for i in range(9)]
  theirs = [row(HALF * 100, i) for i in range(9)]
  status, out, _ = compare(ours, theirs)
  lines = out.splitlines()
  assert status == 0 and lines[0].endswith('a.jsonl')
  assert all(len(line) <= 80 for line in lines[2:])
  shown = {line.split()[0]: line.split() for line in lines if line}
  assert shown['R-1'][-1] == '9-0-0' and shown['R-1'][1] == '100.00'
  assert shown['R-1'][-2] == shown['R-Lsum'][-2]
  # All differ in one direction: 2 of 2^9 exchanges are as extreme.
  assert float(shown['R-1'][-2]) == pytest.approx(2 / 2**9, abs=0.002)
  assert 'rouge|locost|' in out
  _, out, _ = compare(ours, ours)
  assert '0-9-0' in out
  assert "A's mean is 100.0% of B's." in out
  # and R-Lsum: 100 each, and 50, 33.3 and 50.
  _, out, _ = compare([row(HALF)], [row(GOOD)])
  assert "A's mean is 44.4% of B's." in out
  _, out, _ = compare([row(HALF)], [row(BAD)])
  assert '% of' not in out


def test_rows_without_ids_are_matched_by_position(compare):
  status, out, _ = compare([row(GOOD), row(BAD)], [row(GOOD), row(HALF)])
  assert status == 0 and out.count(' 0-1-1\n') == 5


OTHER = dict(prediction='a', reference='another')
A, B = row('a', 1), row('a', 2)


@pytest.mark.parametrize(
    'ours, theirs, expected',
    [
        ([A], [B], "a.jsonl:1: id '1' is not in "),
        ([A], [A, B], "b.jsonl:2: id '2' is not in "),
        ([row('a')], [row('a')] * 2, 'a.jsonl has 1 rows, '),
        ([row('a')] * 2, [row('a'), OTHER], 'b.jsonl:2 have different refer'),
        ([row('a', 1.5)], [row('a')], "'id' must be a string or a whole"),
    ],
)
def test_different_documents_give_one_line(compare, ours, theirs, expected):
  status, out, err = compare(ours, theirs)
  assert (status, out) == (2, '') and err.count('\n') == 1
  assert err.startswith('error: ') and expected in err


def test_a_number_and_its_text_are_the_same_id(tmp_path):
  path = write(tmp_path / 'a.jsonl', [row('a', 7)])
  number, text = predictions.read(path), [metric.Row('a', ['a'], id='7')]
  assert compare_predictions.match(number, text, 'ab') == text


def test_different_references_and_signatures_give_warnings(compare):
  now = protocols.signature(protocols.find('locost'), 500)
  old = now.replace('split:locost_jax-3', 'split:locost_jax-1')
  ours = [row(GOOD, 1, signature=now), row(GOOD, 2, signature=now)]
  theirs = [row(GOOD, 1, signature=old), OTHER | {'id': 2}]
  status, _, err = compare(ours, theirs)
  assert status == 0
  others, signatures = err.splitlines()
  assert 'different references for 1 of 2 ids' in others
  assert 'b.jsonl was written with scores of another signature' in signatures
  assert 'split:locost_jax-1' in signatures
  assert compare(ours, ours)[2] == ''  # n and ci may differ
  # Whoever chooses a protocol knows that it is another one.
  assert compare(ours, ours, '--protocol=google')[2] == ''
  assert 'different references' in compare(ours, theirs, '--protocol=google')[2]


def identified(tmp_path, name, rows, **shared):
  """Writes rows as an evaluation does; returns those of the file."""
  rows = [dict(row, id=str(row['id'])) for row in rows]
  predictions.try_write(tmp_path / name, rows, shared)
  return [json.loads(x) for x in (tmp_path / name).read_text().splitlines()]


@pytest.mark.parametrize(
    'make, expected',
    [
        (os.mkfifo, 'be written: .*is a named pipe, expected a regular file'),
        (os.mkdir, 'be written: .*is a directory, expected a regular file'),
        (lambda path: path.write_text('[1]\n'), 'has other settings or docum'),
    ],
)
def test_another_file_in_the_place_of_predictions(
    tmp_path, capsys, make, expected
):
  make(tmp_path / 'x.jsonl')
  with within():
    predictions.try_write(tmp_path / 'x.jsonl', [row(GOOD, 1)])
  assert re.search(expected, capsys.readouterr().err)


def test_the_identity_of_a_test_set():
  """By hand: JSON of ids and references, sorted, a line each."""
  lines = '["a", ["x", "y"]]\n["b", ["z"]]'
  digest = hashlib.sha256(lines.encode()).hexdigest()[:16]
  rows = [('b', 'z'), ('a', ['x', 'y'])]
  assert predictions.test_set(rows) == f'2 documents, {digest}'
  assert predictions.test_set(rows[::-1]) == predictions.test_set(rows)
  for other in [('b', 'z')], [*rows[:1], ('a', 'x')], [*rows[:1], ('c', 'y')]:
    assert digest not in predictions.test_set(other)


def test_predictions_of_another_test_set_give_one_line(compare, tmp_path):
  ours = identified(tmp_path, 'x', [row(GOOD, i) for i in range(9)])
  of_all = ours[0]['test_set']
  assert compare(ours, ours[::-1])[0] == 0
  changed = [ours[0] | {'reference': 'another'}, *ours[1:]]
  others = identified(tmp_path, 'y', [dict(x) for x in changed])
  refused = 'expected 9 documents, ' + of_all.split()[-1]
  for bad, expected in (
      (ours[:8], 'its rows are 8 documents, '),
      (ours + ours[:1], 'its rows are 10 documents, '),
      (changed, 'its rows are 9 documents, '),
  ):
    for side in (bad, ours), (ours, bad):
      status, out, err = compare(*side)
      assert (status, out) == (2, '') and err.count('\n') == 1
      assert expected in err and refused in err
  status, out, err = compare(ours, others)
  assert (status, out) == (2, '') and err.count('\n') == 1
  assert f'a.jsonl has {of_all}; ' in err and others[0]['test_set'] in err
  without = [{k: x for k, x in y.items() if k != 'test_set'} for y in others]
  status, _, err = compare(ours, without)  # of an older version
  assert status == 0 and 'different references for 1 of 9 ids' in err
  assert compare(ours[:8], without[:8])[0] == 2
  assert compare(without[:8], without[:8])[0] == 0


def test_predictions_of_another_protocol_give_one_line(
    compare, run_command, tmp_path
):
  now = protocols.signature(protocols.find('booksum'), 9)
  ours = identified(tmp_path, 'x', [row(GOOD, 1)], signature=now)
  plain = identified(tmp_path, 'y', [row(GOOD, 1)])
  alone = functools.partial(run_command, score, f'--predictions={tmp_path}/x')
  for status, out, err in (
      compare(ours, plain),
      compare(plain, ours),
      alone(),
      alone('--metrics=rouge,answers'),
  ):
    assert (status, out) == (2, '') and err.count('\n') == 1
    assert 'its 1 rows have scores by booksum, not by locost: name' in err
  assert compare(ours, plain, '--protocol=booksum')[0] == 0
  assert alone('--protocol=locost')[0] == alone('--metrics=answers')[0] == 0


def test_a_workdir_stands_for_its_newest_predictions(
    run_command, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  for name in 'run', 'empty':
    tiny_run.make(tmp_path / name)
  folder = tmp_path / 'run' / 'predictions'
  folder.mkdir()
  for age, name in enumerate(('x-test-2', 'x-validation-2', 'x-test-1')):
    path = write(folder / f'{name}.jsonl', [row(HALF if age else GOOD)])
    os.utime(path, (1000 - age, 1000 - age))
  os.utime(folder / 'x-test-1.jsonl', (2000, 2000))  # not the best step
  status, out, err = run_command(
      score, '--predictions=run', '--compare=run', '--format=json'
  )
  taken = 'run/predictions/x-test-2.jsonl'
  assert status == 0 and err.endswith(f'run: uses {taken}\n' * 2)
  assert json.loads(out)['predictions'] == [taken] * 2
  for name, age in ('x-test-2.settings-0a1b2c3d', 3000), ('x-test-2.64', 4000):
    path = write(folder / f'{name}.jsonl', [row(GOOD)])
    os.utime(path, (age, age))
  status, _, err = run_command(score, '--predictions=run')
  assert err.endswith('run/predictions/x-test-2.settings-0a1b2c3d.jsonl\n')
  status, _, err = run_command(score, '--predictions=empty')
  assert status == 2 and 'no predictions of its best checkpoint, step 2' in err


def test_the_split_of_a_workdir(run_command, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  tiny_run.make(tmp_path / 'run')
  (tmp_path / 'run' / 'predictions').mkdir()
  for i, split in enumerate(('test', 'validation')):
    write(tmp_path / f'run/predictions/x-{split}-2.jsonl', [row(GOOD, i)])
  call = functools.partial(run_command, score, '--predictions=run')
  status, _, err = call('--split=test')
  assert status == 0 and err == 'run: uses run/predictions/x-test-2.jsonl\n'
  other = '--compare=run/predictions/x-validation-2.jsonl'
  status, _, err = call('--split=test', other)
  assert status == 2 and 'of test, the other of validation: use --split' in err
  assert call('--split=validation', other)[0] == 0
