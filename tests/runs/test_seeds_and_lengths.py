"""`main --seeds`, `--lengths` and `--by_length`: results, restarts, errors."""

import json
import statistics

import pytest

import locost_jax
from locost_jax import main
from locost_jax import score
from locost_jax.runs import final_table
from locost_jax.runs import several_seeds
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from tests.runs import test_main

SMALL = [
    *test_main.SMALL,
    '--config.data.vocabulary=byte',
    '--config.eval.baselines=False',
    '--config.train.steps=2',
]


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
  return lambda workdir, *more: run_command(
      main,
      test_main.CONFIG,
      '--config.data.train_files=train.jsonl',
      '--config.data.test_files=test.jsonl',
      f'--workdir={workdir}',
      *SMALL,
      *more,
  )


def times_of_checkpoints(directory):
  return {
      path: path.stat().st_mtime_ns
      for path in directory.glob('seed-*/**/params/*')
  }


def test_seeds(call, run_command, folder):
  status, out, err = call('three', '--seeds=2', '--config.train.seed=4')
  assert status == 0, err
  assert 'seed 4, 1 of 2: three/seed-4' in err
  assert sorted(find.seeds(folder / 'three')) == [4, 5]
  # Seeds give different models, trained on the same records.
  losses = [
      checkpoint.read_metrics(path / 'checkpoints' / '2')['eval/jsonl/loss']
      for path in find.seeds(folder / 'three').values()
  ]
  assert losses[0] != losses[1]
  assert (folder / 'three' / 'cache').is_dir()
  assert not list(folder.glob('three/seed-*/cache'))
  # The table's mean and spread equal those of the standard library.
  status, text, err = call(
      'three', '--seeds=2', '--config.train.seed=4', '--format=json'
  )
  assert status == 0 and err.count('measured before') == 2, err
  (table,) = json.loads(text)['tables']
  *of_seeds, mean, spread = table['rows']
  assert [row['name'] for row in of_seeds] == [
      f'seed {seed}: after training, step 2' for seed in (4, 5)
  ]
  for key in 'loss', 'rouge1':
    values = [row[key] for row in of_seeds]
    assert mean[key] == pytest.approx(statistics.mean(values))
    assert spread[key] == pytest.approx(statistics.stdev(values))
  assert f'{mean["loss"]:.3f}' in out and 'spread' in out
  assert table['signatures']['rouge'] in out.splitlines()
  # A third seed is added; finished seeds take no steps.
  before = times_of_checkpoints(folder / 'three')
  status, _, err = call('three', '--seeds=3', '--config.train.seed=4')
  assert status == 0 and err.count('measured before') == 2, err
  after = times_of_checkpoints(folder / 'three')
  assert before.items() < after.items()

  # WORKDIR stands for its best seed.
  losses = {
      seed: checkpoint.read_metrics(path / 'checkpoints' / '2')[
          'eval/jsonl/loss'
      ]
      for seed, path in find.seeds(folder / 'three').items()
  }
  best = min(losses, key=losses.get)
  find._log_once.cache_clear()
  loaded = locost_jax.load('three')
  own = locost_jax.load(f'three/seed-{best}')
  table = lambda s: s.params['token_embedding']['embedding']
  assert (table(loaded) == table(own)).all()
  status, out, err = call('three', '--evaluate', '--format=json')
  assert status == 0, err
  assert json.loads(out)['workdir'] == f'three/seed-{best}'
  status, _, err = run_command(score, '--predictions=three')
  assert status == 0 and f'seed-{best}/predictions/jsonl-test-2.jsonl' in err

  # Evaluation of each on the test split.
  flags = '--seeds=3', '--config.train.seed=4', '--evaluate', '--format=json'
  status, out, err = call('three', *flags)
  (table,) = json.loads(out)['tables']
  assert status == 0 and table['split'] == 'test' and len(table['rows']) == 5
  assert 'measured before' not in err
  assert call('three', *flags)[2].count('measured before') == 3
  assert 'measured before' not in call('three', *flags, '--overwrite')[2]
  other = '--config.decode.max_length=5'
  assert 'measured before' not in call('three', *flags, other)[2]


def test_the_best_seed_is_named_once(call, folder, capfd):
  status, _, err = call('named', '--seeds=2')
  assert status == 0, err
  find._log_once.cache_clear()
  locost_jax.load('named')
  locost_jax.load('named')
  (line,) = capfd.readouterr().err.splitlines()
  assert line.startswith('named: seed-')
  assert 'the best of 2 seeds (loss ' in line
  # An unfinished seed does not count.
  (best,) = [n for n in find.seeds('named') if f'seed-{n},' in line]
  config = folder / 'named' / f'seed-{best}' / 'config.json'
  config.write_text(config.read_text().replace('"steps": 2', '"steps": 3'))
  assert find.best_seed('named').name == f'seed-{1 - best}'


def test_seeds_with_phases(call, folder):
  phases = "--config.phases=(('one', {'train.seed': 9}), ('two', {'train.steps': 1}))"
  status, out, err = call('phased', '--seeds=2', phases)
  assert status == 0, err
  stored = [
      json.loads((folder / 'phased' / name / 'config.json').read_text())
      for name in ('seed-0/one', 'seed-1/one', 'seed-1/two')
  ]
  assert [config['train']['seed'] for config in stored] == [0, 1, 1]
  assert 'after two, step' in out and 'seed 1' in out
  assert find.find_run(folder / 'phased')[0].endswith('/two')


def test_runs_and_seeds_do_not_mix(call):
  assert call('mixed', '--seeds=1')[0] == 0
  status, _, err = call('mixed')
  assert status == 2 and 'mixed has the runs of --seeds' in err
  status, _, err = call('mixed', '--seeds=2', '--evaluate')
  assert status == 2 and 'mixed has only 1 trained seeds: train' in err
  assert call('single')[0] == 0
  status, _, err = call('single', '--seeds=2')
  assert status == 2 and 'single holds one run' in err


def test_lengths_and_groups(call, folder):
  assert call('run')[0] == 0
  flags = '--evaluate', '--lengths=32,128', '--format=json'
  status, out, err = call('run', *flags)
  assert status == 0, err
  (table,) = json.loads(out)['tables']
  first, second = table['rows']
  assert (first['name'], second['name']) == ('32 tokens', '128 tokens')
  assert 'gain' not in first
  mean = [row['rouge_mean'] for row in table['rows']]
  assert mean[0] == 0 or second['gain'] == pytest.approx(
      100 * (mean[1] - mean[0]) / mean[0]
  )
  written = [
      json.loads(
          (folder / f'run/predictions/{name}').read_text().split('\n')[0]
      )
      for name in ('jsonl-test-2.32.jsonl', 'jsonl-test-2.128.jsonl')
  ]
  assert [row['tokens_kept'] for row in written] == [32, 128]
  assert not (folder / 'run/predictions/jsonl-test-2.jsonl').exists()
  # A new length is measured; the others are not measured again.
  status, _, err = call('run', '--evaluate', '--lengths=32,128,64')
  assert status == 0 and err.count('measured before') == 2, err
  status, text, _ = call('run', '--evaluate', '--lengths=32,128')
  assert 'gain %' in text and '128 tokens' in text
  assert all(len(line) <= 80 for line in text.splitlines())
  again = call('run', *flags, '--overwrite')
  assert 'measured before' not in again[2] and again[1] == out

  # The same length alone gives the same numbers.
  status, alone, _ = call(
      'run',
      '--evaluate',
      '--config.data.max_input_length=128',
      '--by_length',
      '--format=json',
  )
  report = json.loads(alone)
  assert {key: second[key] for key in ('loss', 'rouge1')} == {
      key: report[key] for key in ('loss', 'rouge1')
  }
  # By length: scores of groups equal those of their documents.
  path = folder / 'run/predictions/jsonl-test-2.jsonl'
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  (groups,) = report['by_length']
  names = [row['name'] for row in groups['rows']]
  assert names == ['65 to 128: 4 documents'] and len(rows) == 4
  assert groups['rows'][0]['rouge1'] == pytest.approx(report['rouge1'])

  # The names of the rows.
  row = rows[0]
  assert row['signature'] == report['tables'][0]['signatures']['rouge']
  assert row['settings']['max_input_length'] == 128
  assert row['checkpoint']['step'] == 2
  assert len(row['checkpoint']['sha256']) == 64


def test_a_damaged_result_is_measured_again(call, folder):
  assert call('damaged')[0] == 0
  flags = 'damaged', '--evaluate', '--lengths=32'
  assert call(*flags)[0] == 0
  (path,) = (folder / 'damaged' / 'evaluations').iterdir()
  whole = path.read_text()
  for text in '{"tables": 3}', '{', whole.replace('"rows"', '"lines"'):
    path.write_text(text)
    status, _, err = call(*flags)
    assert status == 0 and 'the file is damaged, measuring again' in err
    assert path.read_text() == whole
  # Another checkpoint is another result.
  saved = folder / 'damaged' / 'checkpoints' / '2' / 'manifest.json'
  entries = json.loads(saved.read_text())
  del entries[next(name for name in entries if name.startswith('params/'))]
  saved.write_text(json.dumps(entries))
  assert 'measured before' not in call(*flags)[2]


def test_evaluations_and_their_signatures(call, folder):
  assert call('signed')[0] == 0
  path = folder / 'signed' / 'metrics.jsonl'
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  evaluated = [row for row in rows if 'eval/jsonl/rouge1' in row]
  key = 'eval/jsonl/signature/rouge'
  assert evaluated and [row for row in rows if key in row] == evaluated
  assert evaluated[0][key].startswith('rouge|locost|stem:no|')
  documents = evaluated[0][key].rpartition('|n:')[2]
  status, out, err = call('signed', '--format=json')
  (table,) = json.loads(out)['tables']
  assert status == 0 and 'warning' not in err
  assert table['signatures'] == {'rouge': evaluated[0][key]}
  assert documents == str(table['documents'])
  # As written by an older version with another sentence splitter.
  path.write_text(path.read_text().replace('locost_jax-2', 'locost_jax-1'))
  status, _, err = call('signed')
  (line,) = [line for line in err.splitlines() if 'warning' in line]
  assert status == 0 and 'split:locost_jax-1' in line
  assert 'do not compare these numbers' in line


@pytest.mark.parametrize(
    'flags, expected',
    [
        (['--by_length'], '--by_length needs --evaluate'),
        (['--lengths=32'], '--lengths needs --evaluate'),
        (['--overwrite'], '--overwrite needs --lengths or --seeds'),
        (['--seeds=2', '--dry_run'], '--dry_run and --seeds: expected one'),
        (['--seeds=0'], 'seeds=0: expected an integer, 1 <= seeds'),
        (['--evaluate', '--lengths=32,x'], '--lengths=32,x: expected differ'),
        (['--evaluate', '--lengths=32,32'], 'expected different numbers'),
        (['--evaluate', '--lengths=1'], 'expected different numbers of tok'),
        (['--evaluate', '--seeds=2'], 'none has only 0 trained seeds: train'),
        (
            ['--evaluate', '--lengths=32', '--by_length'],
            '--by_length and --lengths: expected one',
        ),
        (
            ['--seeds=2', '--config.train.seed=4294967295'],
            'train.seed=4294967296: expected',
        ),
    ],
)
def test_bad_flags_are_one_line(call, folder, flags, expected):
  status, out, err = call('none', *flags)
  assert (status, out) == (2, '') and expected in err and err.count('\n') == 1
  assert not (folder / 'none').exists()


def test_statistics_by_hand():
  rows = [
      final_table.Row('a', {'loss': 1.0, 'rouge1': 10.0}),
      final_table.Row('b', {'loss': 4.0}),
  ]
  mean, spread = several_seeds.statistics(rows)
  assert mean.metrics == {'loss': 2.5}
  assert spread.metrics == {'loss': pytest.approx(4.5**0.5)}
  (mean,) = several_seeds.statistics(rows[:1])
  assert mean.metrics == rows[0].metrics
