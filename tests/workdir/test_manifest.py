"""Untrusted manifests."""

import json
import os

import pytest

from locost_jax.workdir import manifest
from tests.deadline import within

GOOD = 'params/a'
DIGEST = '3 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae'


@pytest.fixture
def directory(tmp_path):
  """A directory with a manifest, and a secret next to it."""
  (tmp_path / 'secret').write_text('foo')
  directory = tmp_path / '7'
  (directory / 'params').mkdir(parents=True)
  (directory / GOOD).write_text('foo')
  manifest.write(directory)
  assert json.loads((directory / 'manifest.json').read_text()) == {
      GOOD: [DIGEST]
  }
  return directory


@pytest.mark.parametrize(
    'name',
    ['../secret', 'params/../../secret', '/etc/passwd', 'params//a', 'a', '']
    + ['params/', './params/a', 'params/\0', 'params/..'],
)
def test_names_outside_the_directory_are_refused(directory, name):
  (directory / 'manifest.json').write_text(
      json.dumps({GOOD: [DIGEST], name: [DIGEST]})
  )
  damage = manifest.find_damage(directory)
  assert damage.startswith('manifest.json: names ') and '\n' not in damage
  assert damage.endswith('expected files in subdirectories')


@pytest.mark.parametrize(
    'text, words',
    [
        ('', 'not JSON'),
        ('[]', 'not a JSON object'),
        ('{"params/a": "3"}', 'params/a="3": expected a list'),
        ('{"params/a": []}', 'expected a list'),
        ('{"params/a": ["three abc"]}', 'expected a list'),
        ('{"params/\\u001b[2J": 3}', r'params/\x1b[2J=3: expected a list'),
        ('{"a": ' * 100_000, 'nested too deep'),
        ('{"params/b": ["%s"]}' % DIGEST, 'params/b is missing'),
    ],
)
def test_an_invalid_manifest_is_described(directory, text, words):
  (directory / 'manifest.json').write_text(text)
  with within():
    damage = manifest.find_damage(directory)
  assert words in damage and '\n' not in damage and len(damage) < 200


@pytest.mark.parametrize(
    'make, words',
    [
        (os.mkfifo, 'params/a: is a named pipe, expected a regular file'),
        (lambda path: os.symlink('../../secret', path), 'is a link, expected'),
        (lambda path: os.symlink('/dev/zero', path), 'is a link, expected'),
        (os.mkdir, 'params/a: is a directory, expected a regular file'),
    ],
)
def test_only_regular_files_are_opened(directory, make, words):
  (directory / GOOD).unlink()
  make(directory / GOOD)
  with within():
    assert words in manifest.find_damage(directory)


def test_directories_that_are_links_are_not_entered(directory, tmp_path):
  os.rename(directory / 'params', tmp_path / 'elsewhere')
  os.symlink(tmp_path / 'elsewhere', directory / 'params')
  assert manifest.find_damage(directory) == (
      'params: is a link, expected a directory'
  )
