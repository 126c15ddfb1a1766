"""What to write instead of a flag or a config that does not exist."""

import pytest

from locost_jax import convert
from locost_jax import main
from locost_jax import score
from locost_jax import summarize
from locost_jax.data import inspect

CONFIG = '--config=configs/finetune.py'
# Command, words | part of the error line.
UNKNOWN = """
main --config.data.task=x | : expected --config=FILE, such as conf
main --config=configs/fientune.py | did you mean configs/finetune.py
main --config=quikstart | ; did you mean configs/quickstart.py or c
main --train.steps=2 | ; did you mean --config.train.steps?; --help lists them
main --train_files=x | did you mean --config.data.train_files?
main --batch_size=2 | --config.train.batch_size or --config.eval.batch_size?
main CONFIG --config.train.learning_rate=1 | mean config.optim.learning_rate?
main CONFIG --config.optim.lr=1 | did you mean config.optim.learning_rate?
main CONFIG --config.selector.learning_rate=1 | no selector for \
config.selector.learning_rate; did you mean config.optim.learning_rate?
main CONFIG --config.train.epochs=1 | did you mean config.train.steps?; an \
epoch is rows / train.batch_size steps
summarize --config.data.task=2 | is not a flag; --help lists them
summarize --num_beam=2 | did you mean --num_beams?
summarize --length=2 | did you mean --max_length?
summarize --model=x | did you mean --checkpoint?
""".strip().splitlines()


@pytest.mark.parametrize('case', UNKNOWN)
def test_unknown_flags(run_command, case):
  words, expected = case.split(' | ')
  command, *words = words.replace('CONFIG', CONFIG).split()
  status, out, err = run_command({'main': main}.get(command, summarize), *words)
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
