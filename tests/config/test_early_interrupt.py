"""Ctrl-C while a command is still importing its modules."""

import signal

import pytest

from locost_jax.config import commands
from tests import python

# The tests may run in the background of a shell, which ignores SIGINT.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = sys.argv[1]
import locost_jax
print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)
"""


@pytest.mark.parametrize('name, expected', [('-m', 'True'), ('x.py', 'False')])
def test_a_command_ends_at_once_and_a_program_keeps_its_handler(name, expected):
  assert python.run('-c', PROGRAM, name).stdout.strip() == expected


def test_a_running_command_handles_the_signal():
  before, seen = signal.getsignal(signal.SIGINT), []

  def main(values, arguments):
    del values, arguments
    seen.append(signal.getsignal(signal.SIGINT))

  try:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with pytest.raises(SystemExit):
      commands.run(main, lambda values, argv: None, 'Doc.', ['command'])
  finally:
    signal.signal(signal.SIGINT, before)
  assert seen == [signal.default_int_handler]
