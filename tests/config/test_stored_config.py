"""Errors of a changed config.json in WORKDIR: one line, before all else."""

import json

import pytest

import locost_jax
from locost_jax.errors import InputError
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib
from tests import tiny_run
from tests.deadline import within


@pytest.fixture
def run(tmp_path):
  """A run, and the contents of its config.json."""
  directory = tmp_path / 'run'
  tiny_run.make(directory)
  return directory, json.loads((directory / 'config.json').read_text())


def changed(config, key, value):
  *sections, last = key.split('.')
  for section in sections:
    config = config[section]
  config[last] = value


TAMPERED = [
    ('model', [], 'model=[]: expected an object'),
    ('model', {}, 'lacks model.name'),
    ('model.name', 3, 'model.name=3: expected a string'),
    ('model.name', 'gpt', "model.name='gpt' must be one of"),
    ('model.num_layers', 10**6, 'num_layers=1000000: expected an integer'),
    ('model.num_layers', True, 'model.num_layers=true: expected an integer'),
    ('model.dropout_rate', float('nan'), 'dropout_rate=NaN: expected 0 <= d'),
    ('model.dropout_rate', 'x' * 1000, 'model.dropout_rate="xxx'),
    ('model.gating', 'yes', 'model.gating="yes": expected True or False'),
    ('model.variant', ['release'], 'model.variant=["release"]: expected one'),
    ('model.feed_forward', 'x\x1b[2J', r'="x\u001b[2J": expected one of'),
    ('train', {}, 'lacks train.steps'),
    ('decode', [1], 'decode=[1]: expected an object'),
    ('phases', [3], 'phases: 3: expected ["name"'),
    ('phases', 'x', 'phases="x": expected a list'),
    ('phases', [['../../x', {}]], 'phases: ["../../x", {}]: expected ["name"'),
    ('shares', {'optim.warmup_steps': 'x'}, 'expected 0 <= warmup_steps <= 1'),
]


@pytest.mark.parametrize('key, value, words', TAMPERED)
def test_a_changed_value_is_one_line(run, key, value, words):
  directory, config = run
  changed(config, key, value)
  path = directory / 'config.json'
  path.write_text(json.dumps(config))
  with pytest.raises(InputError) as error, within():
    locost_jax.load(directory)
  line = str(error.value)
  assert line.startswith(f'{path}: ') and words in line
  assert '\n' not in line and len(line) < len(str(path)) + 300


def test_a_damaged_file_is_one_line(run):
  """Other contents: tests/test_files.py."""
  path = run[0] / 'config.json'
  path.write_text('{"train": {"steps": 3}, "model": ')
  with pytest.raises(InputError, match=f'^{path}: not JSON'):
    locost_jax.load(run[0])


def test_a_config_of_another_program_is_not_checked(tmp_path):
  (tmp_path / 'config.json').write_text('{"model": 3}')
  assert phases_lib.read_config(tmp_path) == {'model': 3}
  assert find.find_run(tmp_path) is None
