"""`main --by_length`, signatures, and metrics that a config brings along."""

import functools
import json
import mailbox

import pytest

from locost_jax import main
from locost_jax import score
from locost_jax.data import workers
from locost_jax.runs import evaluate_run
from locost_jax.runs import final_table
from tests import test_contributing
from tests import tiny_run
from tests.evaluation.test_protocols import rouge
from tests.runs import test_main

FLAGS = test_main.SMALL + tiny_run.flags(
    'data.train_files=train.jsonl data.test_files=test.jsonl '
    'data.vocabulary=byte eval.baselines=False train.steps=2'
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  directory = tmp_path_factory.mktemp('seeds')
  test_main.write_rows(directory / 'train.jsonl', test_main.pairs(0, 24))
  test_main.write_rows(directory / 'test.jsonl', test_main.pairs(24, 30))
  return directory


@pytest.fixture
def call(run_command, folder, monkeypatch):
  """call(WORKDIR, *flags) -> (status, out, err)."""
  monkeypatch.chdir(folder)
  return (
      lambda workdir, *more, config=test_main.CONFIG, flags=FLAGS: run_command(
          main, config, f'--workdir={workdir}', *flags, *more
      )
  )


CUT = 'jsonl, train: data.max_input_length=64 cuts '


def test_groups(call, folder):
  status, _, err = call('run')
  assert status == 0 and err.count(CUT) == 1
  status, alone, _ = call(
      'run',
      '--evaluate',
      '--config.data.max_input_length=128',
      '--by_length',
      '--format=json',
  )
  report = json.loads(alone)
  # By length: scores of groups equal those of their documents.
  path = folder / 'run/predictions/jsonl-test-2.jsonl'
  rows = test_main.read_rows(path)
  (groups,) = report['by_length']
  names = [row['name'] for row in groups['rows']]
  assert names == ['65 to 128: 4 documents'] and len(rows) == 4
  assert groups['rows'][0]['rouge1'] == pytest.approx(report['rouge1'])

  # The names of the rows.
  row = rows[0]
  assert row['signature'] == report['tables'][0]['signatures']['rouge']
  assert row['test_set'] == report['tables'][0]['test_set'] != ''
  assert row['settings']['max_input_length'] == 128
  assert row['checkpoint']['step'] == 2
  assert len(row['checkpoint']['sha256']) == 64


def test_groups_end_at_powers_of_two():
  """Their scores are those of their documents."""
  row = lambda tokens, text: dict(
      prediction=text, reference='a b', tokens_kept=tokens
  )
  lengths = 1, 2, 3, 4, 5, 8, 9, 1024, 1025
  rows = [row(n, 'a b' if n % 2 else 'a') for n in lengths]
  settings = tiny_run.make_config().eval
  table = evaluate_run.table_by_length(
      final_table.Table('x', 'test', 9, []), rows, settings
  )
  found = {row.name.partition(':')[0]: row.metrics for row in table.rows}
  assert list(found) == [
      *('1 to 1', '2 to 2', '3 to 4', '5 to 8', '9 to 16'),
      *('513 to 1,024', '1,025 to 2,048'),
  ]
  expected = rouge(['a b', 'a'], ['a b'] * 2)
  assert found['3 to 4'] == found['5 to 8'] == pytest.approx(expected)
  assert found['1 to 1']['rouge1'] == 100 > found['2 to 2']['rouge1'] > 0


def test_evaluations_and_their_signatures(call, folder):
  call('run')
  path = folder / 'run' / 'metrics.jsonl'
  rows = test_main.read_rows(path)
  evaluated = [row for row in rows if 'eval/jsonl/rouge1' in row]
  key = 'eval/jsonl/signature/rouge'
  assert evaluated and [row for row in rows if key in row] == evaluated
  assert evaluated[0][key].startswith('rouge|locost|stem:no|')
  documents = evaluated[0][key].rpartition('|n:')[2]
  status, out, err = call('run', '--format=json')
  (table,) = json.loads(out)['tables']
  assert status == 0 and 'warning' not in err and err.count(CUT) == 1
  assert table['signatures'] == {'rouge': evaluated[0][key]}
  assert documents == str(table['documents'])


def test_a_config_of_ones_own(call, folder, run_command, monkeypatch):
  """Objects of a config: config.json has their names; the run continues."""
  own = test_contributing.EXAMPLES[test_contributing.OWN]
  (folder / 'own.py').write_text(own)
  (folder / 'other.py').write_text(own.replace('cosine', 'sine'))
  box = mailbox.mbox(folder / 'mails.mbox')
  for row in test_main.pairs(0, 120):
    box.add(f'Subject: {row["summary"]}\n\n{row["document"]}')
  box.flush()
  # Even where there is much to score: other processes cannot import own.py.
  monkeypatch.setattr(workers, '_FEW', -1)
  monkeypatch.setattr(workers, '_SMALL', -1)
  flags = [flag for flag in FLAGS if 'train_files=' not in flag]
  options = dict(config='--config=own.py', flags=flags)
  for steps in 2, 3:
    run = functools.partial(
        call, 'own', f'--config.train.steps={steps}', **options
    )
    status, out, err = run('--format=json')
    assert status == 0, err
    (table,) = json.loads(out)['tables']
    assert table['rows'][-1]['lines'] >= 0
    config = json.loads((folder / 'own' / 'config.json').read_text())
    assert config['eval']['metrics'] == ['loss', 'rouge', 'lines']
    assert config['data']['train_files'] == 'mails'
    assert config['optim']['schedule'] == 'cosine'
    assert config['train']['steps'] == steps
    assert ('continues from step 2' in err) == (steps == 3)
  rows = test_main.read_rows(folder / 'own' / 'metrics.jsonl')
  assert sum('eval/jsonl/lines' in row for row in rows) >= 2
  status, out, err = run()
  assert ' lines' in out and out.endswith(
      'predictions: own/predictions/jsonl-validation-3.jsonl\n'
      'checkpoints: own/checkpoints\ncurves: own/metrics.jsonl\n'
  )
  status, out, _ = run_command(
      score, '--predictions=own', '--config=own.py', '--metrics=rouge,lines'
  )
  assert status == 0 and '\nlines|n:' in out
  status, _, err = call('own', config='--config=other.py', flags=flags)
  assert status == 2 and 'schedule was "cosine", now "sine"' in err
  status, _, err = run_command(main, '--workdir=own')
  assert status == 2 and 'function of your own config (--config=FILE)' in err
