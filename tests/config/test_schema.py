"""The table of allowed values is complete and checked before any output."""

import dataclasses
import importlib

from absl import flags
import pytest

from configs import default
from locost_jax import __main__ as command_list
from locost_jax import models
from locost_jax.config import keys as keys_table
from locost_jax.config import schema
from tests.python import ROOT
from tests.runs import test_main

CONFIG = f'--config={ROOT}/configs/finetune.py'
# Without buckets, because repeated flags of tuples accumulate.
SMALL = [flag for flag in test_main.SMALL if 'buckets' not in flag]
TRAIN = [CONFIG, '--config.data.train_files=train.jsonl']
TRAIN += ['--config.data.vocabulary=byte', *SMALL]


def test_every_config_key_is_in_the_table():
  keys = {
      key
      for key, _ in schema.leaves(default.get_config())
      if not key.startswith('model.')
  }
  keys -= {'gsg', 'phases'}
  keys |= {f'gsg.{key}' for key in schema.defaults('gsg')}
  known = {key for key in keys_table.KEYS if not key.startswith('model.')}
  assert known == keys
  for name, (Config, _) in models.MODELS.items():
    fields = {field.name for field in dataclasses.fields(Config)}
    assert fields == keys_table.MODELS[name].keys()


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
