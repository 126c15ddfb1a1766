"""The table of allowed values is complete and checked before any output."""

import dataclasses
import importlib

from absl import flags
import pytest

from bench import __main__ as bench
from configs import default
from locost_jax import __main__ as command_list
from locost_jax import main
from locost_jax import models
from locost_jax.config import keys as keys_table
from locost_jax.config import schema
from locost_jax.data import cache
from locost_jax.data import inspect
from tests.python import ROOT
from tests.runs import test_main

CONFIG = f'--config={ROOT}/configs/finetune.py'
# Without buckets, because repeated flags of tuples accumulate.
SMALL = [flag for flag in test_main.SMALL if 'buckets' not in flag]
TRAIN = [CONFIG, '--config.data.train_files=train.jsonl']
TRAIN += ['--config.data.vocabulary=byte', *SMALL]


@pytest.fixture
def place(tmp_path, monkeypatch):
  """The working directory; only train.jsonl is in it."""
  monkeypatch.chdir(tmp_path)
  test_main.write_rows(tmp_path / 'train.jsonl', test_main.pairs(0, 20))
  return tmp_path


def test_every_config_key_is_in_the_table():
  keys = {
      key
      for key, _ in schema.leaves(default.get_config())
      if not key.startswith('model.')
  }
  keys -= {'gsg', 'phases'}
  keys |= {f'gsg.{key}' for key in schema.defaults('gsg')}
  known = set(keys_table.KEYS)
  of_table = {key for key in known if key.startswith('model.')}
  assert known - of_table == keys
  of_models = {
      f'model.{field.name}'
      for Config, _ in models.MODELS.values()
      for field in dataclasses.fields(Config)
  }
  assert of_table == of_models | {'model.name'}


def test_every_default_is_allowed():
  config = default.get_config()
  config.gsg = dict(schema.defaults('gsg'))
  for model in models.MODELS:
    config.unlock()
    config.model = schema.make_model(model)
    schema.check_config(config)


@pytest.mark.parametrize('command', command_list.COMMANDS)
def test_every_flag_is_in_the_table(command):
  module = importlib.import_module(f'locost_jax.{command}')
  values = flags.FlagValues()
  module.define_flags(values, ['x'])
  for name in values:
    if values[name].flag_type() in ('bool', 'string enum') or name == 'config':
      continue
    assert name in keys_table.FLAGS, name
    schema.check_flags({name: values[name].default}, command.split('.')[-1])


def test_help_does_not_print_a_config(run_command):
  for command in bench, inspect, cache:
    status, out, _ = run_command(command, '--help')
    assert status == 0 and 'vocabulary_size' not in out
    assert '[configs/default.py]' in out


def test_the_corrected_command_runs(run_command, guard, place):
  """A refused run leaves nothing that stops a correct one."""
  keys = 'train.steps=1', 'optim.cooldown_steps=0', 'checkpoint.metric=loss'
  keys += ("eval.metrics=('loss',)",)
  command = TRAIN + [f'--config.{key}' for key in keys]
  for wrong in '--config.optim.name=sgd', '--config.checkpoint.keep_latest=0':
    status, _, _ = run_command(main, *command, wrong)
    assert status == 2
  status, _, err = run_command(main, *command)
  assert status == 0, err
