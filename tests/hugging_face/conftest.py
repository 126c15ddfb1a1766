"""Fixtures for tests of convert."""

import json
import shutil
import sys

import pytest

from locost_jax import convert
from tests import tiny_run
from tests.hugging_face.converting import GOLDEN
from tests.hugging_face.converting import WEIGHTS


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A WORKDIR of a short training run with bytes as tokens."""
  directory = tmp_path_factory.mktemp('runs') / 'run'
  tiny_run.make(directory)
  return directory


@pytest.fixture
def release(tmp_path):
  """A copy of a Hugging Face directory, for tests that change it."""
  target = tmp_path / 'release'
  target.mkdir()
  shutil.copy(GOLDEN / 'locost_a_tiny' / 'config.json', target)
  shutil.copy(
      GOLDEN / 'locost_a_tiny' / 'state_dict.safetensors', target / WEIGHTS
  )
  return target


@pytest.fixture
def call(succeed):
  """call(source, target, *flags) -> the report; asserts status 0."""

  def call(source, target, *flags):
    places = f'--source={source}', f'--target={target}'
    out, err = succeed(convert, *places, '--format=json', *flags)
    assert not err or 'torch' in sys.modules  # its libraries may warn
    return json.loads(out)

  return call


@pytest.fixture
def refuse(run_command, tmp_path):
  """refuse(source, ..., message=...): one line, status 2, nothing written."""

  def refuse(source, *flags, message):
    before = sorted(tmp_path.rglob('*'))
    status, out, err = run_command(
        convert, f'--source={source}', f'--target={tmp_path / "target"}', *flags
    )
    assert (status, out) == (2, ''), err
    assert err.count('\n') == 1 and err.startswith('error: ')
    assert message in err
    assert sorted(tmp_path.rglob('*')) == before

  return refuse
