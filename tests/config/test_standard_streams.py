"""Streams that are closed, full or without a reader; names with escapes."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from locost_jax.config import commands
from locost_jax.errors import InputError

def define_flags(values, argv):
  pass

def main(values, arguments):
  if arguments[0] == 'many':
    for i in range(100_000):
      print('line', i)
  if arguments[0] == 'text':
    print('caf\\xe9')
  if arguments[0] == 'file':
    with open(arguments[1], 'w') as file:
      os.write(2, b'of a library')
      file.write('mine')
  if arguments[0] == 'wrong':
    raise InputError('a\\x1b[31m\\u202e: no such file')
  if arguments[0] == 'other':
    raise BrokenPipeError('of a worker')

commands.run(main, define_flags, 'Help.')
"""


def start(script, *arguments, status=None, **environment):
  """Runs a shell script in which "$@" is the command."""
  done = subprocess.run(
      ['bash', '-c', script, '-', sys.executable, '-c', PROGRAM, *arguments],
      capture_output=True,
      timeout=60,
      env={'PYTHONPATH': '.', 'PATH': '/usr/bin:/bin', **environment},
  )
  return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize('arguments', [['many'], ['text'], ['--help']])
def test_without_a_reader(arguments):
  """`| head` ends a command silently, even at its last line."""
  status, out, err = start('"$@" | true; exit ${PIPESTATUS[0]}', *arguments)
  assert (status, out, err) == (141, '', '')


def test_other_broken_pipes_are_reported():
  status, _, err = start('"$@"', 'other')
  assert status == 1 and 'of a worker' in err


def test_errors_are_never_written_to_stdout():
  assert start('"$@" 2>&-', 'wrong') == (2, '', '')
  assert start('"$@" >&-', 'text') == (0, '', '')


def test_a_file_does_not_take_the_place_of_stderr(tmp_path):
  path = tmp_path / 'file'
  assert start('"$@" 2>&-', 'file', str(path)) == (0, '', '')
  assert path.read_text() == 'mine'


def test_characters_missing_in_the_encoding():
  done = start('"$@"', 'text', PYTHONIOENCODING='ascii')
  assert done == (0, 'caf\\xe9\n', '')


def test_escape_codes_of_names_are_visible():
  line = 'error: a\\x1b[31m\\u202e: no such file\n'
  assert start('"$@"', 'wrong') == (2, '', line)
