"""The stages of CI, and its lines about tests that it skipped."""

import configparser
import re

import pytest

from tests import browser
from tests import conftest
from tests import python
from tests.python import ROOT

SCRIPT = (ROOT / '.ci' / 'run').read_text(encoding='utf-8')
JOBS = ROOT / '.github' / 'workflows' / 'tests.yml'
WORKFLOW = JOBS.read_text(encoding='utf-8')


def words(text, name):
  """Returns the words of an array of the script or of the workflow."""
  found = re.search(rf'^ *{name}(?:=\(|: \[)(.*?)[)\]]', text, re.S | re.M)[1]
  return set(re.findall(r'\w+', found))


def command_of(stage):
  return re.search(rf'^    {stage}\)(.*?);;$', SCRIPT, re.S | re.M)[1]


def test_every_stage_is_run():
  """By the script without arguments, and by a job of the workflow."""
  stages = {conftest.CORE, 'slow', *conftest.TABLE}
  every = words(SCRIPT, 'every')
  assert 'plain' in every
  in_script = every - {'plain'} | words(SCRIPT, 'plain')
  assert in_script == words(WORKFLOW, 'stage') >= stages
  for stage in every:
    assert command_of(stage)
  for row in sum(conftest.TABLE.values(), ()):
    assert (ROOT / 'tests' / row).exists(), row


def test_each_test_is_in_one_stage():
  assert conftest.stage_of('runs/test_faults.py', True) == 'faults'
  assert conftest.stage_of('config/test_help.py') == 'messages'
  assert conftest.stage_of('config_new/test_x.py') == conftest.CORE
  assert conftest.stage_of('ops/test_ssm.py') == conftest.CORE
  assert conftest.stage_of('ops/test_ssm.py', True) is None  # the stage slow
  rows = [row for rows in conftest.TABLE.values() for row in rows]
  assert len(rows) == len(set(rows))


def collect(*arguments):
  """Returns the ids of the tests that pytest would run."""
  options = '--collect-only', '-n0', '-qq'
  return python.run('-m', 'pytest', *options, *arguments).stdout


def test_a_path_runs_its_tests_and_no_path_the_core():
  core = collect()
  assert 'tests/ops/test_ssm.py' in core
  assert 'tests/test_files.py' not in core
  assert 'tests/test_files.py' in collect('tests/test_files.py')
  assert 'tests/training' not in collect('-m', 'messages', 'tests/config')


def test_what_needs_an_extra_is_run_where_it_is_installed():
  """Every file whose tests ask for torch or libtpu has its stage."""
  asks = {
      'peers': r"importorskip\(\s*'(torch|transformers)'",
      'tpu': r"find_spec\('libtpu'\)",
  }
  for stage, asked in asks.items():
    files = [
        path
        for path in (ROOT / 'tests').rglob('test_*.py')
        if re.search(asked, path.read_text(encoding='utf-8'))
    ]
    also = command_of('slow') if stage == 'peers' else ''
    run = command_of(stage) + also
    assert files and f'use {stage}' in run.replace('peers,', '')
    paths = [ROOT / p for p in re.findall(r'tests/[\w/.]+', run)]
    for file in files:
      assert {file, *file.parents} & set(paths), f'{file} is not run: {stage}'


def test_ci_checks_types_and_docstrings():
  """And .ci/lint runs every tool that the extra `lint` installs."""
  assert '.ci/lint' in command_of('lint')
  lint = (ROOT / '.ci' / 'lint').read_text(encoding='utf-8')
  setup = configparser.ConfigParser()
  setup.read(ROOT / 'setup.cfg')
  tools = re.findall(r'^[a-z]+', setup['options.extras_require']['lint'], re.M)
  assert {'pyright', 'interrogate'} <= set(tools)
  checks = lint[lint.index('else') :]
  for tool in tools:
    assert re.search(rf'^  {tool}\b', checks, re.M), tool
  assert (ROOT / 'locost_jax' / 'py.typed').exists()


def test_the_flags_of_tests_can_be_taken_off():
  """XLA_FLAGS that are set, also to nothing, are those of the tests."""
  program = 'import os, tests.conftest; print(repr(os.environ["XLA_FLAGS"]))'
  assert 'XLA_FLAGS= python -m pytest' in SCRIPT
  for given, expected in (('', "''"), ('--xla_dump_to=x', "'--xla_dump_to=x'")):
    found = python.run('-c', program, XLA_FLAGS=given).stdout
    assert found.strip() == expected


def report(path, *cases):
  """Writes a JUnit report of (file, test, reason or None)."""
  path.write_text(
      '<testsuites><testsuite>'
      + ''.join(
          f'<testcase classname="{file}" name="{name}">'
          + (f'<skipped message="{why}"/>' if why else '')
          + '</testcase>'
          for file, name, why in cases
      )
      + '</testsuite></testsuites>'
  )
  return str(path)


def test_only_what_no_stage_ran_is_listed(tmp_path):
  one = report(
      tmp_path / 'tests.xml',
      ('tests.a', 'test_plain', None),
      ('tests.a', 'test_torch', 'needs torch'),
      ('tests.a', 'test_gpu', 'no GPU'),
      ('', 'tests.whole', 'needs torch'),
      ('', 'tests.never', 'needs a TPU'),
  )
  two = report(
      tmp_path / 'peers.xml',
      ('tests.a', 'test_torch', None),
      ('tests.a', 'test_gpu', 'no GPU'),
      ('tests.whole', 'test_it', None),
  )
  done = python.run('.ci/skipped.py', one, two)
  assert done.stdout.splitlines() == [
      '--- 2 tests were skipped everywhere',
      'tests.a::test_gpu: no GPU',
      'tests.never: needs a TPU',
  ]


@pytest.mark.parametrize(
    'found, environment, reason',
    [
        ('/bin/chromium', {}, ''),
        ('/bin/chromium', {'CI': 'true', 'NO_CHROMIUM': 'none'}, ''),
        (None, {}, 'no Chromium on this machine'),
        (None, {'CI': 'true'}, ''),
        (None, {'CI': 'true', 'NO_CHROMIUM': 'no network'}, 'no network'),
    ],
)
def test_a_missing_browser_fails_in_ci(found, environment, reason):
  assert browser.reason_to_skip(found, environment) == reason
