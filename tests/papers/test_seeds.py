"""`papers.seeds`: runs of several seeds and lengths, their mean and gain."""

import json
from pathlib import Path
import statistics
import subprocess

import pytest

from locost_jax import main
from papers import seeds
from tests.runs import test_by_length
from tests.runs import test_main


@pytest.fixture
def call(run_command, tmp_path, monkeypatch, capfd):
  """call(*flags) -> JSON report; runs `main` in this process."""
  test_main.write_rows(tmp_path / 'train.jsonl', test_main.pairs(0, 24))
  test_main.write_rows(tmp_path / 'test.jsonl', test_main.pairs(24, 30))
  monkeypatch.chdir(tmp_path)

  def run(command):
    status, out, err = run_command(main, *command[3:])
    assert status == 0, err
    return subprocess.CompletedProcess(command, status, out.encode())

  monkeypatch.setattr(seeds, 'call', run)

  def call(*flags):
    keys = 'data.train_files=train.jsonl', 'data.test_files=test.jsonl'
    command = [test_main.CONFIG, *(f'--config.{key}' for key in keys)]
    assert seeds.main([*command, *test_by_length.FLAGS, *flags]) == 0
    return capfd.readouterr().out

  return call


def test_seeds(call):
  flags = '--workdir=two', '--seeds=2', '--config.train.seed=4'
  (table,) = json.loads(call(*flags, '--format=json'))['tables']
  *rows, mean, spread = table['rows']
  assert [row['name'] for row in rows] == ['seed 4', 'seed 5']
  assert rows[0]['loss'] != rows[1]['loss']
  for key in 'loss', 'rouge1':
    values = [row[key] for row in rows]
    assert mean[key] == pytest.approx(statistics.mean(values))
    assert spread[key] == pytest.approx(statistics.stdev(values))
  # All share the records, and a finished seed takes no steps.
  paths = sorted(Path('two').glob('seed-*'))
  assert [path.name for path in paths] == ['seed-4', 'seed-5']
  assert all((path / 'cache').resolve().parent.name == 'two' for path in paths)
  again = call(*flags)
  assert f'{mean["loss"]:.3f}' in again and 'spread' in again


@pytest.mark.parametrize(
    'flags',
    [
        '--seeds=0 --workdir=x',
        '--seeds=2 --workdir=.',
        '--seeds=2 --lengths=4 --workdir=x',
        '--lengths=4,8 --workdir=x',
        '--lengths=4,4 --workdir=x --evaluate',
        '--seeds=2',
    ],
)
def test_bad_flags(flags, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'config.json').write_text('{}')
  with pytest.raises(SystemExit) as end:
    seeds.main(flags.split())
  assert end.value.code == 2 and not (tmp_path / 'x').exists()
