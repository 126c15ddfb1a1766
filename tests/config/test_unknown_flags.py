"""What to write instead of a flag or a config that does not exist."""

import pytest

from locost_jax import convert
from locost_jax import main
from locost_jax import score
from locost_jax import summarize
from locost_jax.data import inspect

LIST = '; --help lists them'
CONFIG = '--config=configs/finetune.py'
ROWS = f'{CONFIG} --config.data.train_files=ROWS --config.train.batch_size=4'
BY_ROWS = 'did you mean config.train.steps?; an epoch is'
RATE = 'did you mean config.optim.learning_rate?'


@pytest.mark.parametrize(
    'command, words, expected',
    [
        (
            main,
            '--config.data.task=x',
            ': expected --config=FILE, such as conf',
        ),
        (
            main,
            '--config=configs/fientune.py',
            'did you mean configs/finetune.py',
        ),
        (
            main,
            '--config=quikstart',
            '; did you mean configs/quickstart.py or c',
        ),
        (
            main,
            '--train.steps=2',
            f'; did you mean --config.train.steps?{LIST}',
        ),
        (main, '--train_files=x', 'did you mean --config.data.train_files?'),
        (
            main,
            '--batch_size=2',
            '--config.train.batch_size or --config.eval.batch_size?',
        ),
        (main, f'{CONFIG} --config.train.learning_rate=1', RATE),
        (main, f'{CONFIG} --config.optim.lr=1', RATE),
        (
            main,
            f'{CONFIG} --config.selector.learning_rate=1',
            f'no selector for config.selector.learning_rate; {RATE}',
        ),
        (
            main,
            f'{ROWS} --config.train.epochs=1',
            f'{BY_ROWS} 3 steps (12 rows',
        ),
        (
            main,
            f'{CONFIG} --config.train.epochs=1',
            f'{BY_ROWS} rows / train.batch_size steps',
        ),
        (summarize, '--config.data.task=2', f'is not a flag{LIST}'),
        (summarize, '--num_beam=2', 'did you mean --num_beams?'),
        (summarize, '--length=2', 'did you mean --max_length?'),
        (summarize, '--model=x', 'did you mean --checkpoint?'),
    ],
)
def test_unknown_flags(run_command, tmp_path, command, words, expected):
  (tmp_path / 'rows.jsonl').write_text('{}\n' * 12)
  words = words.replace('ROWS', str(tmp_path / 'rows.jsonl'))
  status, out, err = run_command(command, *words.split())
  assert (status, out, err.count('\n')) == (2, '', 1)
  assert err.startswith('error: ') and expected in err


@pytest.mark.parametrize(
    'command, words, expected',
    [
        (score, 'a.jsonl', 'a.jsonl: cannot be read'),
        (score, 'rows.jsonl b.jsonl', 'b.jsonl: cannot be read'),
        (score, 'a b c', "'c': expected flags only"),
        (score, 'gs://a', '--predictions=gs://a: '),
        (convert, 'a', '--target=DIR is missing'),
        (convert, 'a b', 'a: no such directory'),
        (convert, '--target=b a', 'a: no such directory'),
        (inspect, 'a.jsonl b.jsonl', 'a.jsonl: no such file'),
        (inspect, 'rows.jsonl b.jsonl', 'b.jsonl: no such file'),
        (inspect, 'a.jsonl --config.data.train_files=b', 'expected flags only'),
    ],
)
def test_words_for_flags(
    run_command, tmp_path, monkeypatch, command, words, expected
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'rows.jsonl').write_text('{"prediction": "a", "reference": "a"}')
  status, _, err = run_command(command, *words.split())
  assert status == 2 and expected in err
