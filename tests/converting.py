"""Fixtures of the tests of convert."""

import json
from pathlib import Path
import shutil

import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

from locost_jax import convert
import tiny_run

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / 'tests' / 'golden'
WEIGHTS = 'model.safetensors'


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A WORKDIR that was trained for a moment, with bytes as tokens."""
  directory = tmp_path_factory.mktemp('runs') / 'run'
  tiny_run.make(directory)
  return directory


@pytest.fixture
def release(tmp_path):
  """A Hugging Face directory that may be damaged."""
  target = tmp_path / 'release'
  target.mkdir()
  shutil.copy(GOLDEN / 'locost_a_tiny' / 'config.json', target)
  shutil.copy(GOLDEN / 'locost_a_tiny' / 'state_dict.safetensors',
              target / WEIGHTS)
  return target


def rewrite(directory, change):
  """Applies a change to the directory's dict of tensors."""
  tensors = load_file(directory / WEIGHTS)
  change(tensors)
  save_file(tensors, directory / WEIGHTS)


@pytest.fixture
def call(run_command):
  """call(source, target, *flags) -> the report; other statuses are errors."""
  def call(source, target, *flags):
    status, out, err = run_command(
        convert, f'--source={source}', f'--target={target}', '--format=json',
        *flags)
    assert status == 0, err
    assert not err
    return json.loads(out)
  return call


@pytest.fixture
def refuse(run_command, tmp_path):
  """refuse(source, ..., message=...): one line, status 2, nothing written."""
  def refuse(source, *flags, message):
    before = sorted(tmp_path.rglob('*'))
    status, out, err = run_command(
        convert, f'--source={source}', f'--target={tmp_path / "target"}',
        *flags)
    assert (status, out) == (2, ''), err
    assert err.count('\n') == 1 and err.startswith('error: ')
    assert message in err
    assert sorted(tmp_path.rglob('*')) == before
  return refuse


def listed(report, side):
  return {row[side]['name']: row[side] for row in report['tensors']}
