"""The list of public checkpoints, used by the command and the page."""

import json
from pathlib import Path
import subprocess
import sys

from absl import flags
import pytest

from locost_jax import known_models
from locost_jax import main
from locost_jax import models
from locost_jax import summarize
from locost_jax.command_line import commands
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import published

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table():
  page = (ROOT / 'docs' / 'models.md').read_text()
  assert '\n'.join(published.table()) in page


@pytest.mark.parametrize('row', published.CHECKPOINTS, ids=lambda row: row.name)
def test_each_row_is_complete(row):
  """Each fact has a source, or is said to be unknown."""
  assert row.architecture in models.MODELS
  assert row.sources and all(x.startswith('https://') for x in row.sources)
  assert row.use and row.rouge and row.where
  if row.where == 'hub':
    facts = row.corpus, row.longest_input, row.licence, row.download
    assert all(facts) and (row.protocol or 'none' in row.rouge)
    assert hub._NAME.fullmatch(row.name)


@pytest.mark.parametrize(
    'row',
    [row for row in published.CHECKPOINTS if row.where == 'hub'],
    ids=lambda row: row.name,
)
def test_commands_have_known_flags(row, monkeypatch):
  monkeypatch.chdir(ROOT)
  _, _, module, *words = published.command(row).split()
  command = {x.__name__: x for x in (main, summarize)}[module]
  values = flags.FlagValues()
  values.set_gnu_getopt(True)
  command.define_flags(values, [module, *words])
  commands.parse_flags(values, [module, *words])


def test_words_choose_rows(run_command):
  status, out, err = run_command(known_models, '--format=json', 'BART', 'xsum')
  (row,) = map(json.loads, out.splitlines())
  assert (status, err) == (0, '')
  assert row['name'] == 'facebook/bart-large-xsum'
  assert row['command'].endswith(
      '--checkpoint=hf://facebook/bart-large-xsum --max_input_length=1024 '
      'report.txt'
  )
  status, out, err = run_command(known_models, 'gpt')
  assert (status, out) == (2, '')
  assert err.startswith("error: 'gpt': no checkpoint has all these words")
  status, out, _ = run_command(known_models)
  assert status == 0
  assert all(row.name in out for row in published.CHECKPOINTS)
  assert max(map(len, out.splitlines())) <= 160


def test_both_names_run():
  outputs = {
      subprocess.check_output(
          [sys.executable, '-m', f'locost_jax.{name}', 'xsum'], cwd=ROOT
      )
      for name in ('models', 'known_models')
  }
  assert len(outputs) == 1 and b'bart-large-xsum' in outputs.pop()
