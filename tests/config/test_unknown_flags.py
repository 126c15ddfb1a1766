"""Unknown flags, words and configs are refused with what was meant instead."""

import importlib

import pytest

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
main --flagfile=x | error: --flagfile is not a flag; --help lists them
main --help=config.optmi | did you mean config.optim?
main --help=flags | expected --help, --help=config or --help=config.SECTION
summarize --help=config | this command has no config; expected --help
summarize --config.data.task=2 | is not a flag; --help lists them
summarize --num_beam=2 | did you mean --num_beams?
summarize --length=2 | did you mean --max_length?
summarize --model=x | did you mean --checkpoint?
summarize -flagfile x | error: --flagfile is not a flag; --help lists them
score a.jsonl | a.jsonl: cannot be read
score rows.jsonl b.jsonl | b.jsonl: cannot be read
score a b c | 'c': expected flags only
score gs://a | --predictions=gs://a: gs:// cannot be used here
convert a | --target=DIR is missing
convert a b | a: no such directory
convert --target=b a | a: no such directory
data.inspect a.jsonl b.jsonl | a.jsonl: no such file
data.inspect rows.jsonl b.jsonl | b.jsonl: no such file
data.inspect a.jsonl --config.data.train_files=b | expected flags only
""".strip().splitlines()


@pytest.mark.parametrize('case', UNKNOWN)
def test_unknown_flags_and_words(run_command, tmp_path, monkeypatch, case):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'rows.jsonl').write_text('{"prediction": "a", "reference": "a"}')
  words, expected = case.split(' | ')
  command, *words = words.replace('CONFIG', CONFIG).split()
  module = importlib.import_module(f'locost_jax.{command}')
  status, out, err = run_command(module, *words)
  assert (status, out, err.count('\n')) == (2, '', 1)
  assert err.startswith('error: ') and expected in err
