"""--help of every command, and --help=config."""

import importlib
import re

from absl import flags
import pytest

from configs import default
from locost_jax import __main__ as command_list
from locost_jax import main
from locost_jax.config import commands
from locost_jax.config import help_pages
from locost_jax.config import keys
from locost_jax.config import schema
from locost_jax.config import summarize_flags
from locost_jax.data import pages

COMMANDS = command_list.COMMANDS


@pytest.mark.parametrize('command', COMMANDS)
def test_each_flag_once_under_a_heading(command, run_command, monkeypatch):
  monkeypatch.setenv('COLUMNS', '80')
  module = importlib.import_module(f'locost_jax.{command}')
  status, out, err = run_command(module, '--help')
  assert (status, err) == (0, '')
  assert out.startswith(module.__doc__.strip().splitlines()[0])
  listed = out[len(module.__doc__.strip()) :].partition('\nConfig keys:')[0]
  shown = re.findall(r'^  --(\w+)', listed, re.M)
  values = flags.FlagValues()
  module.define_flags(values, ['x'])
  assert sorted(shown) == sorted(set(values))
  assert max(map(len, out.splitlines())) <= 80
  assert 'alsologtostderr' not in out and 'vocabulary_size' not in out
  # The file of the config, not its keys.
  assert ('[configs/default.py]' in out) == command.startswith('data.')


def test_a_flag_has_one_heading():
  names = [name for group in help_pages.GROUPS.values() for name in group]
  assert len(names) == len(set(names))


def test_the_form_of_a_flag(monkeypatch):
  monkeypatch.setenv('COLUMNS', '60')
  values = flags.FlagValues()
  choices = 'spatial', 'discourse', 'document'
  table = {
      'output': 'FILE: where it goes',
      'top_k': (7, 'how many'),
      'overwrite': (False, 'replace'),
      'pages': (None, 'how text is cut into pages [as trained]', choices),
  }
  commands.define(values, table)
  assert help_pages.make('Does it.\n', values) == """Does it.

Output:
  --output=FILE           where it goes
  --overwrite             replace

Writing summaries:
  --top_k=N               how many [7]

Pages and parts of a document:
  --pages=NAME            spatial, discourse, document: how
                          text is cut into pages [as
                          trained]"""


def test_every_key_has_its_default_and_a_meaning(run_command):
  status, out, err = run_command(main, '--help=config')
  assert (status, err) == (0, '')
  assert max(map(len, out.splitlines())) <= 80
  config = default.get_config()
  for key, value in schema.leaves(config):
    (entry,) = re.findall(
        rf'^  --config\.{re.escape(key)}=(.*)\n((?:      .*\n?)*)', out, re.M
    )
    assert entry[0] == repr(value) and entry[1].strip(), key
  assert '      AdamW: decay of the mean gradient (0 <= x < 1)\n' in out
  assert out.index('--config.train.steps=1000') > out.index('config.data.seed')


@pytest.mark.parametrize(
    'config, section, part, absent',
    [
        ('default.py', 'train.lora', 'lora.rank=0', 'optim'),
        ('finetune.py:bart', 'model', 'max_positions=1024', 'model.d_state'),
    ],
)
def test_a_section(run_command, config, section, part, absent):
  config = f'--config=configs/{config}'
  status, out, _ = run_command(main, config, f'--help=config.{section}')
  assert status == 0 and part in out and f'--config.{absent}' not in out


def test_keys_of_models_have_a_meaning():
  assert all(x.text for own in keys.MODELS.values() for x in own.values())


@pytest.mark.parametrize(
    'name, line',
    [
        ('locost', "f, or 'gated-f': 'relu', 'gelu', 'gelu_new', 'silu'"),
        ('pagesum', "'relu', 'gelu', 'gelu_new' or 'silu'"),
    ],
)
def test_the_meaning_is_that_of_the_model(name, line):
  config = default.get_config()
  config.model = getattr(default, name)()
  page = schema.help_page(config, 'x.py', 'model.feed_forward')
  assert page.endswith(f'\n      {line}')


def test_the_forms_of_pages_are_all_flags():
  assert set(summarize_flags.FLAGS['pages'][2]) == set(pages.FORMS)
