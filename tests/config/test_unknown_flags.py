"""A flag that a command does not have: what to write instead."""

import pytest

from locost_jax import main
from locost_jax import summarize

KEY = 'a key of a config: expected --config=FILE, such as configs/finetune.py'
SECTION = 'not a flag; keys of a config are --config.KEY; --help lists them'
UNLIKE = 'not a flag; --help lists them'
LIKE = 'not a flag; did you mean --num_beams?; --help lists them'


@pytest.mark.parametrize(
    'command, flag, expected',
    [
        (main, '--config.data.train_files', KEY),
        (main, '--train.steps', SECTION),
        (summarize, '--config.data.train_files', UNLIKE),
        (summarize, '--num_beam', LIKE),
    ],
)
def test_unknown_flags(run_command, command, flag, expected):
  result = run_command(command, f'{flag}=2')
  assert result == (2, '', f'error: {flag} is {expected}\n')
