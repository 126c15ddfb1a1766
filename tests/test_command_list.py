"""`python -m locost_jax` lists every command."""

from pathlib import Path

from locost_jax import __main__ as command_list
from tests import python

PACKAGE = Path(command_list.__file__).parent


def test_every_command_is_listed_with_its_purpose():
  commands = {
      '.'.join(path.relative_to(PACKAGE).with_suffix('').parts)
      for path in PACKAGE.rglob('*.py')
      if '\n  commands.run(' in path.read_text()
  }
  assert commands == set(command_list.COMMANDS)
  done = python.run('-m', 'locost_jax')
  assert not done.stderr
  for command in commands:
    assert f'python -m locost_jax.{command} ' in done.stdout
  assert 'Writes summaries: text in' in done.stdout


def test_a_command_after_a_space_is_one_line():
  done = python.run('-m', 'locost_jax', 'summarize', 'a.txt', status=2)
  assert not done.stdout
  assert done.stderr.count('\n') == 1
  assert 'python -m locost_jax.COMMAND runs one' in done.stderr


def test_on_windows():
  program = 'import sys; sys.platform = "win32"; import locost_jax'
  done = python.run('-c', program, status=1)
  assert done.stderr.endswith('runs on Linux and macOS; on Windows, in WSL\n')
