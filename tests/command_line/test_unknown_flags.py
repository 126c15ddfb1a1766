"""A flag that a command does not have: what to write instead."""

import pytest

from locost_jax import main
from locost_jax import summarize


@pytest.mark.parametrize(
    'command, flag, expected',
    [
        (
            main,
            '--config.data.train_files=x',
            '--config.data.train_files is a key of a config: expected '
            '--config=FILE, such as configs/finetune.py',
        ),
        (
            main,
            '--train.steps=3',
            '--train.steps is not a flag; keys of a config are --config.KEY; '
            '--help lists them',
        ),
        (
            summarize,
            '--config.data.train_files=x',
            '--config.data.train_files is not a flag; --help lists them',
        ),
        (
            summarize,
            '--num_beam=2',
            '--num_beam is not a flag; did you mean --num_beams?; --help lists '
            'them',
        ),
    ],
)
def test_unknown_flags(run_command, command, flag, expected):
  status, out, err = run_command(command, flag)
  assert (status, out, err) == (2, '', f'error: {expected}\n')
