"""`python -m locost_jax.score`: numbers, output and errors."""

import json
import os
import subprocess
import sys
import time

import pytest
from rouge_score import rouge_scorer

from locost_jax import score
from locost_jax.data import workers
from locost_jax.errors import InputError
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge
from tests import deadline
from tests import python
from tests.data.rows import write_jsonl as write

ROWS = [
    dict(id='1', prediction='The cat sat. A dog barked.', reference='A dog.'),
    dict(prediction='one two three', references=['one two', 'three four five']),
    dict(prediction='nothing', reference=' ', document='Something.'),
    dict(prediction='', reference='words'),
]


def test_json_has_the_numbers_of_rouge_score(tmp_path):
  done = python.run(
      '-m',
      'locost_jax.score',
      f'--predictions={write(tmp_path / "p.jsonl", ROWS)}',
      '--protocol=scrolls',
      '--format=json',
  )
  found = json.loads(done.stdout)
  scorer = rouge_scorer.RougeScorer(protocols.TYPES)
  # No text here has two sentences on both sides.
  expected = [
      scorer.score_multi(
          row.get('references') or [row['reference']], row['prediction']
      )
      for row in ROWS
  ]
  for key in protocols.TYPES:
    assert found[key] == pytest.approx(
        100 * sum(one[key].fmeasure for one in expected) / len(ROWS)
    )
    low, high = found['intervals'][key]
    assert low <= found[key] <= high
  assert found['rougeL'] > 0 and found['rouge1'] > found['rouge2'] > 0
  assert found['rouge_geometric_mean'] == pytest.approx(
      (found['rouge1'] * found['rouge2'] * found['rougeL']) ** (1 / 3)
  )
  assert found['protocol'] == 'scrolls' and found['pairs'] == 4
  assert found['signature'].endswith('|rouge_score:0.1.2|n:4|ci:95')
  assert found['versions'].keys() >= {'nltk', 'numpy'}
  assert done.stderr == (
      'warning: empty references: 1 of 4 pairs, counted as 0\n'
  )


def test_table_ends_with_the_signature(tmp_path, succeed):
  path = write(tmp_path / 'p.jsonl', ROWS[:2])
  out, _ = succeed(score, path, '--protocol=booksum')
  *table, signature = out.splitlines()
  assert signature.startswith('rouge|booksum|stem:no|')
  shown = {line.split()[0]: line for line in table}
  assert list(shown) == ['F1', 'R-1', 'R-2', 'R-L', 'R-Lsum', 'mean']
  # 2 words of 6 and of 2 match; 2 words of 3 and of 2.
  assert shown['R-1'].split()[1] == '65.00'
  assert shown['mean'].endswith('of R-1, R-2, R-L')


@pytest.mark.parametrize(
    'text, warns',
    [
        ('Завод 2020.', True),
        ('Füße für Übungen.', True),
        ('Die Füße der Stadt.', False),
    ],
)
def test_references_that_are_counted_in_part_give_a_warning(
    tmp_path, succeed, text, warns
):
  row = dict(prediction=text, references=['a', text])
  path = write(tmp_path / 'p.jsonl', [row])
  warning = (
      '--protocol=locost counts less than half of the letters of the '
      'references: 1 of 1 pairs; --protocol=unicode'
  )
  for metrics in 'rouge', 'rouge,answers':
    _, err = succeed(score, path, f'--metrics={metrics}')
    assert (warning in err) == warns
  out, err = succeed(score, path, '--protocol=unicode', '--format=json')
  assert json.loads(out)['rouge1'] == 100 and not err


@pytest.mark.runs
@pytest.mark.parametrize('name', ['pagesum', 'google', 'unicode'])
def test_processes_do_not_change_scores(name, monkeypatch):
  protocol = protocols.find(name)
  rows = [
      metric.Row(f'a b {i} c {i % 7}', [f'b a {i % 5} {i}']) for i in range(130)
  ]
  seen = []
  expected = rouge.score_rows(rows, protocol)
  monkeypatch.setattr(workers, '_SMALL', 0)
  scores = rouge.score_rows(
      rows, protocol, 2, lambda done, total: seen.append((done, total))
  )
  assert (scores == expected).all() and len(set(scores[:, 0])) > 1
  assert seen[-1] == (130, 130) and len(seen) > 2


@pytest.mark.faults
def test_processes_of_an_evaluation(tmp_path):
  """They import neither the main module nor JAX, which has threads here."""
  program = """
import sys

import jax

from locost_jax.data import workers
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table


class Sized(str):  # its module, the main one, is not imported elsewhere
  pass


assert __name__ == '__main__', 'a process imported the main module'
jax.numpy.ones(3).block_until_ready()
metrics = metric_table.of_summaries(('rouge', 'recall'), 'google')
texts = [f'a cat {i % 9} ran' for i in range(70)]
rows = [
  dict(prediction=one, reference=other, contents=[['cat', 'ran']])
  for one, other in zip(texts, texts[::-1])
]
one = evaluate.score(metrics, rows)
workers._SMALL = 0
assert evaluate.score(metrics, rows) == one and one['rouge1'] < 100, one
print(one['recall'])
"""
  path = tmp_path / 'program.py'
  path.write_text(program)
  done = python.run(path)
  assert done.stdout == '100.0\n', done.stderr


def children(pid):
  """Returns the child processes of a process (Linux)."""
  listed = subprocess.run(
      ['ps', '--ppid', str(pid), '-o', 'pid='], capture_output=True, text=True
  )
  return set(listed.stdout.split())


def is_running(pid):
  """Whether a process runs; a zombie does not."""
  found = subprocess.run(
      ['ps', '-p', pid, '-o', 'stat='], capture_output=True, text=True
  )
  return found.stdout.strip()[:1] not in ('', 'Z')


SCORE = '-m', 'locost_jax.score', '--predictions=p.jsonl', '--processes=2'
# As a corpus is tokenised while a model trains.
TOKENISE = """
import time
from locost_jax.data import workers
started = workers.Workers(time.sleep, [600, 600], ['a', 'b'])
time.sleep(600)
"""


@pytest.mark.faults
@pytest.mark.parametrize('arguments', [SCORE, ('-c', TOKENISE)])
def test_processes_end_with_a_killed_parent(tmp_path, arguments):
  text = ' '.join(f'Word {i % 50} of {i}.' for i in range(3000))
  rows = [dict(prediction=text, reference=text)] * 500  # takes minutes
  write(tmp_path / 'p.jsonl', rows)
  command = subprocess.Popen(
      [sys.executable, *arguments],
      cwd=tmp_path,
      env=os.environ | {'PYTHONPATH': str(python.ROOT)},
      stderr=subprocess.DEVNULL,
  )
  try:
    with deadline.within():
      # Two workers and the resource tracker.
      while len(found := children(command.pid)) < 3:
        time.sleep(0.05)
  finally:
    command.kill()
    command.wait()
  with deadline.within():
    while any(map(is_running, found)):
      time.sleep(0.05)


def test_references_are_not_shortened():
  text = ' '.join(map(str, range(20000)))
  rows = [metric.Row('19999', [text])]
  ((rouge1, *_),) = rouge.score_rows(rows, protocols.find('locost'))
  assert rouge1 == pytest.approx(100 * 2 / 20001)


GOOD = b'{"prediction": "a", "reference": "a"}\n'


@pytest.mark.parametrize(
    'data, expected',
    [
        (b'\n \n', 'has no rows'),
        (GOOD + b'{"reference": "a"}', ":2: no field 'prediction'"),
        (b'{"prediction": 1, "reference": "a"}', 'must be a string, got int'),
        (b'{"prediction": "a", "references": [1]}', 'at least one string'),
        (
            b'{"prediction": "a", "references": ["a"], "reference": "a"}',
            "has 'reference' and 'references'",
        ),
        (GOOD + b'\n{"prediction"', ':3: not JSON'),
        (GOOD + b'{"prediction": "\xff"}', ':2: not UTF-8'),
    ],
)
def test_bad_rows_give_one_line(tmp_path, data, expected):
  path = tmp_path / 'p.jsonl'
  path.write_bytes(data)
  with pytest.raises(InputError) as error:
    predictions.read(str(path))
  assert str(error.value).startswith(str(path))
  assert expected in str(error.value) and '\n' not in str(error.value)


def test_starts_without_jax_and_tensorflow():
  program = (
      'import sys; from locost_jax import score; '
      'print(*sorted({"jax", "flax", "tensorflow", "seqio", "numpy"}'
      '.intersection(sys.modules)))'
  )
  done = python.run('-c', program)
  assert done.stdout == 'numpy\n', done.stderr
