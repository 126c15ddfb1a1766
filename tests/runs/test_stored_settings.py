"""`main --workdir=WORKDIR` without --config: the run's own settings."""

import json
from pathlib import Path
import shutil

import pytest

from locost_jax import main
from locost_jax.config import commands
from locost_jax.config import schema
from locost_jax.runs import resume
from locost_jax.workdir import phases as phases_lib
from tests import tiny_run
from tests.runs import test_main

ROOT = Path(__file__).parents[2]
KEYS = [
    test_main.CONFIG,
    *test_main.SMALL,
    *test_main.LOSS_ONLY,
    *tiny_run.flags(
        'data.train_files=train.jsonl data.vocabulary=byte train.steps=4 '
        'optim.warmup_steps=0.5 optim.cooldown_steps=0'
    ),
]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A directory with a run in `run`, and the command that trained it."""
  directory = tmp_path_factory.mktemp('stored')
  test_main.write_rows(directory / 'train.jsonl', test_main.pairs(0, 40))
  return directory


@pytest.fixture
def call(run_command, succeed, folder, monkeypatch):
  """Runs `main` in the folder; returns (status, stdout, stderr)."""
  monkeypatch.chdir(folder)
  if not Path('run').exists():
    succeed(main, *KEYS, '--workdir=run')
  return lambda *words: run_command(main, *words)


def test_evaluate_takes_the_settings_of_the_run(call):
  words = '--workdir=run', '--evaluate', '--format=json'
  (first, own, err), (second, given, _) = call(*words), call(*KEYS, *words)
  assert first == second == 0, err
  assert json.loads(own) == json.loads(given)
  # Single keys can be changed.
  more = (
      '--workdir run --evaluate --format=json --config.eval.examples=1 '
      "--config.decode.num_beams=2 --config.eval.metrics=('loss','rouge')"
  )
  status, out, err = call(*more.split())
  assert status == 0, err
  assert json.loads(out)['documents'] == 1
  assert 'rouge1' in json.loads(out).keys() - json.loads(own).keys()


def test_another_model_is_refused(call):
  other = '--config.model.d_ff=32', '--config.model.num_heads=1'
  status, _, err = call('--workdir=run', '--evaluate', *other)
  assert status == 2 and len(err.splitlines()) == 1
  assert (
      'config.model.d_ff was 16, now 32; config.model.num_heads was 2, '
      'now 1: give --config.model.d_ff=16 --config.model.num_heads=2, or'
  ) in err


def test_a_run_continues_with_its_own_settings(call):
  stored = phases_lib.read_config('run')
  assert stored['shares'] == {'optim.warmup_steps': 0.5}
  shutil.rmtree('run/checkpoints/4')  # as if killed before the last step
  status, out, err = call('--workdir=run')
  assert status == 0 and 'after training' in out, err
  assert Path('run/checkpoints/4').is_dir()
  assert phases_lib.read_config('run') == stored


def test_a_run_keeps_its_metric(call):
  """Also with its config, which says 'auto', and without phases."""
  path = Path('run/config.json')
  text = path.read_text()
  path.write_text(text.replace('"metric": "loss"', '"metric": "accuracy"'))
  flags = [flag for flag in KEYS if 'checkpoint.metric' not in flag]
  status, _, err = call(*flags, '--workdir=run')
  assert status == 0 and '; the best by accuracy of' in err, err
  path.write_text(text)


def test_every_config_survives_its_file():
  """The exact values, and no difference to the run's own check."""
  for path in sorted((ROOT / 'configs').glob('[!_]*.py')):
    config = commands.load_config(str(path))
    stored = json.loads(json.dumps(phases_lib.to_dict(config)))
    found = resume.make_config(stored)
    keys = dict(schema.leaves(phases_lib.to_dict(found)))
    assert dict(schema.leaves(stored)).items() <= keys.items(), path
    assert resume.list_differences(stored, found) == {}, path


def test_phases_keep_the_values_of_the_command_line(tmp_path):
  """Only the first phase takes the start of the command line."""
  config = commands.load_config(f'{ROOT}/configs/quickstart.py')
  rows = (('encoder/.*', ''),)
  overrides = {'train.steps': 7, 'train.init_from': 'x', 'train.init_map': rows}
  for key, value in overrides.items():
    section, name = key.split('.')
    config[section][name] = value
  before = phases_lib.make_phases(config, overrides, tmp_path)
  phases_lib.write_config(tmp_path, config)
  found, _ = resume.find_settings(str(tmp_path), is_needed=True)
  after = phases_lib.make_phases(found, {}, tmp_path)
  keys = 'steps', 'init_from', 'init_map'
  for phases in before, after:
    found = [[phase.config.train[key] for key in keys] for phase in phases]
    assert found == [[7, 'x', rows], [7, f'{tmp_path}/pretrain', ()]]
  for one, other in zip(before, after):
    stored = phases_lib.to_dict(one.config)
    assert resume.list_differences(stored, other.config) == {}
