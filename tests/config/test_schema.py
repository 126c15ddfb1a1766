"""The table of allowed values is complete and checked before any output."""

import dataclasses
import importlib
import math
from pathlib import Path

from absl import flags
import pytest

from bench import __main__ as bench
from configs import default
from locost_jax import __main__ as command_list
from locost_jax import convert
from locost_jax import main
from locost_jax import models
from locost_jax import summarize
from locost_jax.config import keys as keys_table
from locost_jax.config import schema
from locost_jax.data import cache
from locost_jax.data import inspect
from tests.runs import test_main

ROOT = Path(__file__).parents[2]
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


# (key, value, part of the error message).
KEYS = [
    ('optim.b2', 1, 'optim.b2=1: expected 0 <= b2 < 1'),
    ('optim.learning_rate', math.nan, 'optim.learning_rate=nan: expected'),
    ('optim.z_loss', math.inf, 'optim.z_loss=inf: expected'),
    ('optim.clip', -1, 'optim.clip=-1: expected a finite number, clip >= 0'),
    (
        'optim.name',
        'sgd',
        "optim.name='sgd' must be one of 'adamw', 'adafactor'",
    ),
    ('optim.cooldown_steps', 41, 'expected at most train.steps=40'),
    ('optim.cooldown_steps', math.nan, 'expected a whole number of steps'),
    ('optim.groups', "(('*kernel', 0.0),)", "'*kernel' is not a regex: nothin"),
    ('optim.groups', "(('.*', -1.0),)", "('.*', -1.0): expected a finite"),
    ('optim.groups', 'kernel', "'kernel' is not (regex of paths, factor)"),
    ('train.init_map', 'decoder/.*', 'is not (regex of paths, path in the sou'),
    ('train.init_map', "(('decoder/.*', 0.0),)", '0.0): expected a string'),
    ('train.lora.paths', '*a', 'lora.paths=*a: expected a regex: nothing'),
    ('train.lora.alpha', math.nan, 'train.lora.alpha=nan: expected'),
    ('model.num_layers', 10**6, 'expected an integer, 1 <= num_layers'),
    ('train.seed', -1, 'expected an integer, 0 <= seed <= 4,294,967,295'),
    ('data.input_buckets', '(0,)', 'data.input_buckets=(0,): expected ascend'),
    ('data.input_buckets', '(32,16)', '(32, 16): expected ascending lengths'),
    ('data.target_buckets', '("a",)', "data.target_buckets=('a',): expected"),
    ('data.max_input_length', 10**12, '2 <= max_input_length <= 100,000,000'),
    ('data.vocabulary_size', 999999999999, '104 <= vocabulary_size <= 1,0'),
    ('data.task', 'nosuch', "config.data.task='nosuch' is none of the tasks"),
    ('train.batch_size', 10**11, '1 <= batch_size <= 1,000,000'),
    ('train.steps', 10**20, '1 <= steps <= 2,147,483,647'),
    ('decode.temperature', math.nan, 'decode.temperature=nan: expected'),
    ('decode.length_penalty', math.inf, 'expected a finite number'),
    ('decode.forced_first_token', 5000, "below the vocabulary's size, 359"),
    ('decode.forced_last_token', 5000, "below the vocabulary's size, 359"),
    ('checkpoint.keep_best', -1, 'expected an integer, 0 <= keep_best'),
    # Paths that this command cannot use.
    ('data.test_files', 'a.jsonl,s3://b', 's3:// cannot be used here'),
    ('data.vocabulary', 's3://b/v', 's3:// cannot be used here: expected a l'),
    ('train.init_from', 's3://b/c', 'expected a local path or hf://'),
    ('data.cache_dir', 'train.jsonl', 'train.jsonl is not a directory'),
    ('data.cache_dir', 'train.jsonl/c', 'train.jsonl is not a directory'),
]
FLAGS = [
    ('workdir', 's3://bucket/run', 'expected a local path or gs://'),
    ('workdir', 'train.jsonl', 'train.jsonl is not a directory'),
    ('workdir', 'train.jsonl/run', 'train.jsonl is not a directory'),
    ('workdir', '/proc/run', 'is not writable'),
    ('workdir', 'x' * 300, 'longer than 255 bytes'),
    ('profile', '-1', '--profile=-1: expected an integer, 0 <= profile'),
    ('peak_tflops', 'nan', '--peak_tflops=nan: expected a finite number'),
]

MODEL = '--checkpoint=x'
# Name of a config -> its own line.
ODD = {
    'empty': 'c = ConfigDict()',
    'exit': 'import sys; sys.exit(0)',
    'keys': "c.phases = (('a', {1: 2}),)",
    'number': 'c.gsg = 5',
}
PHASES = "--config.phases=(('a', {'optim.b1': 2.0}),)"
OTHER_COMMANDS = [
    (bench, ['encode', '--seconds=nan'], '--seconds=nan: expected a finite'),
    (bench, ['encode', '--memory_limit=-1'], 'memory_limit > 0'),
    (bench, ['encode', '--output=gs://b/c'], 'gs:// cannot be used here'),
    (bench, ['train', '--config.optim.b1=2'], 'optim.b1=2: expected 0 <= b1 <'),
    (summarize, [MODEL, '--memory_limit=nan', 'a'], 'a finite number, memory_'),
    (summarize, [MODEL, '--temperature=nan', 'a'], '--temperature=nan: expect'),
    (summarize, ['--checkpoint=s3://b/c', 'a'], 'path or hf:// or gs://\n'),
    (summarize, [MODEL, '--report=s3://a.html', 'a'], 's3:// cannot be used'),
    (summarize, [MODEL, 's3://b/a.txt'], 'FILE=s3://b/a.txt: s3:// cannot be '),
    (summarize, [MODEL, 'az://b/a'], 'used here: expected a local path or gs:'),
    (convert, ['--source=s3://b', '--target=x'], '--source=s3://b: s3:// can'),
    (convert, ['--source=x', '--target=gs://b'], '--target=gs://b: gs:// can'),
    (inspect, ['--config.data.train_files=s3://b/*'], 'train_files=s3://b/*: '),
    (inspect, ['--config.data.max_input_length=1000000000000'], '<= 100,000'),
    (cache, ['--output=gs://b/caches'], '--output=gs://b/caches: gs:// cann'),
    (main, [CONFIG, '--preflight', '--workdir=s3://b/run'], 's3:// cannot be'),
    (main, [CONFIG, '--workdir', '--dry_run'], '--dry_run comes next; expecte'),
    (main, ['--config=empty.py'], 'empty.py: get_config() returned a config '),
    (main, ['--config=exit.py', *TRAIN[1:]], 'line 5: SystemExit: 0'),
    (main, ['--config=keys.py', *TRAIN[1:]], 'a: 1: expected a key such as'),
    (main, ['--config=number.py', *TRAIN[1:]], 'gsg=5: expected a section'),
    (main, [*TRAIN[:2], PHASES], 'optim.b1=2: expected 0 <= b1 < 1'),
]
STEPS = '--config.train.steps=40'
FLAGS += [(f'config.{key}', *rest) for key, *rest in KEYS]
REFUSED = [
    (main, [*TRAIN, STEPS, f'--{flag}={value}'], expected)
    for flag, value, expected in FLAGS
]


@pytest.mark.parametrize(
    'command, arguments, expected', REFUSED + OTHER_COMMANDS
)
def test_a_value_is_refused_before_anything_is_written(
    run_command, guard, place, command, arguments, expected
):
  (place / 'configs').symlink_to(ROOT / 'configs')
  for name, line in ODD.items():
    (place / f'{name}.py').write_text(
        'from ml_collections import ConfigDict\nfrom configs import default\n'
        'def get_config():\n  c = default.get_config().unlock()\n'
        f'  {line}\n  return c\n'
    )
  before = sorted(place.rglob('*'))
  status, out, err = run_command(command, *arguments)
  assert (status, out) == (2, ''), err
  assert err.count('\n') == 1 and expected in err, err
  assert sorted(place.rglob('*')) == before


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
