"""The summarize command: documents in, one line per document out."""

import gzip
import io
import json
import shutil
import sys
import types

import pytest

from locost_jax import commands
from locost_jax import pretrained
from locost_jax import summarize
import tiny_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  directory = tmp_path_factory.mktemp('summarize') / 'run'
  tiny_run.make(directory)
  return directory


@pytest.fixture
def call(capfd):
  """Runs the command; returns (status, stdout, stderr)."""
  def call(*arguments):
    with pytest.raises(SystemExit) as end:
      commands.run(summarize.main, summarize.define_flags, summarize.__doc__,
                   ['summarize', *map(str, arguments)])
    out, err = capfd.readouterr()
    return end.value.code or 0, out, err
  return call


def test_one_line_per_document_in_order(run, call, tmp_path, monkeypatch):
  """Files, JSONL rows, gz and stdin; equal to Summarizer.summarize."""
  texts = ['First text.', 'The second\ntext is longer.', 'Third.', 'Fourth.']
  (tmp_path / 'a.txt').write_text(texts[0])
  (tmp_path / 'b.jsonl').write_text(
      json.dumps({'document': texts[1], 'id': 7}) + '\n\n'
      + json.dumps({'document': texts[2]}) + '\n')
  with gzip.open(tmp_path / 'c.md.gz', 'wb') as f:
    f.write(b'\xef\xbb\xbf' + texts[3].encode())
  stdin = types.SimpleNamespace(buffer=io.BytesIO(b'From stdin.'))
  monkeypatch.setattr(sys, 'stdin', stdin)
  files = [tmp_path / name for name in ('a.txt', 'b.jsonl', 'c.md.gz')]
  status, out, err = call('--checkpoint', run, *files, '-', '--format=json',
                          '--min_length=5')
  rows = [json.loads(line) for line in out.splitlines()]
  assert status == 0
  assert [row['id'] for row in rows] == [
      str(files[0]), '7', f'{files[1]}:2', str(files[2]), '-']
  expected = pretrained.load(str(run)).summarize(
      texts + ['From stdin.'], min_length=5)
  assert [row['prediction'] for row in rows] == expected
  assert [row['tokens_read'] for row in rows] == [
      len(text.encode()) + 1 for text in texts + ['From stdin.']]
  assert len([line for line in err.splitlines() if 'tokens read' in line]) == 5


def test_plain_form_has_no_newlines(run, call, tmp_path, monkeypatch):
  monkeypatch.setattr(pretrained.Summarizer, 'summarize',
                      lambda self, texts, **_: ['one\ntwo  three'])
  (tmp_path / 'a.txt').write_text('x')
  assert call('--checkpoint', run, tmp_path / 'a.txt')[:2] == (
      0, 'one two three\n')


def test_output_file_and_kept_tokens(run, call, tmp_path):
  (tmp_path / 'a.txt').write_text('abcdefghij')
  output = tmp_path / 'out.jsonl'
  status, out, err = call(
      '--checkpoint', run, tmp_path / 'a.txt', f'--output={output}',
      '--max_input_length=6')
  row = json.loads(output.read_text())
  assert (status, out, row['tokens_read'], row['tokens_kept']) == (0, '', 11, 6)
  assert '11 tokens read, 6 kept' in err
  assert [path.name for path in tmp_path.iterdir() if 'tmp' in path.name] == []


@pytest.mark.parametrize('arguments, expected', [
    (['missing.txt', '--checkpoint=RUN'], 'missing.txt: no such file'),
    (['.', '--checkpoint=RUN'], '.: is a directory'),
    (['empty.txt', '--checkpoint=RUN'], 'empty.txt: an empty document'),
    (['latin.txt', '--checkpoint=RUN'], 'latin.txt: not UTF-8 (byte 3)'),
    (['bad.jsonl', '--checkpoint=RUN'], 'bad.jsonl:2: not JSON'),
    (['text.jsonl', '--checkpoint=RUN'], "text.jsonl:1: no field 'document'"),
    (['none.jsonl', '--checkpoint=RUN'], 'none.jsonl: holds no document'),
    (['a.txt', '--checkpoint=nowhere'], 'nowhere: no such directory'),
    (['a.txt', '--checkpoint=.'], 'config.json'),
    (['a.txt'], '--checkpoint=DIR is missing'),
    (['--checkpoint=RUN'], 'no FILE given'),
    (['a.txt', '--checkpoint=RUN', '--max_lenght=3'],
     'did you mean --max_length?'),
    (['a.txt', '--checkpoint=RUN', '--max_length=0'], '--max_length=0'),
    (['a.txt', '--checkpoint=RUN', '--max_length=3', '--min_length=4'],
     '--min_length=4 must not exceed --max_length=3'),
    (['a.txt', '--checkpoint=RUN', '--output=no/dir/x'], 'no directory'),
    # Documents first, then the checkpoint.
    (['missing.txt', '--checkpoint=nowhere'], 'missing.txt: no such file'),
])
def test_bad_input(run, call, tmp_path, monkeypatch, arguments, expected):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'a.txt').write_text('A text.')
  (tmp_path / 'empty.txt').write_text(' \n')
  (tmp_path / 'latin.txt').write_bytes(b'caf\xe9 au lait')
  (tmp_path / 'bad.jsonl').write_text('{"document": "x"}\n{"document"\n')
  (tmp_path / 'text.jsonl').write_text('{"text": "x"}\n')
  (tmp_path / 'none.jsonl').write_text('')
  before = sorted(tmp_path.iterdir())
  status, out, err = call(*(a.replace('RUN', str(run)) for a in arguments))
  assert status == 2 and out == ''
  assert len(err.strip().splitlines()) == 1 and expected in err
  assert sorted(tmp_path.iterdir()) == before


def test_vocabulary_that_does_not_fit(run, call, tmp_path):
  """More tokens than the model has rows: the weights are not even read."""
  copy = tmp_path / 'run'
  shutil.copytree(run, copy)
  config = json.loads((copy / 'config.json').read_text())
  config['model']['vocab_size'] = 100
  (copy / 'config.json').write_text(json.dumps(config))
  (tmp_path / 'a.txt').write_text('A text.')
  status, _, err = call('--checkpoint', copy, tmp_path / 'a.txt')
  assert status == 2 and 'vocabulary' in err and '359' in err and '100' in err
  shutil.rmtree(copy / 'vocabulary')
  status, _, err = call('--checkpoint', copy, tmp_path / 'a.txt')
  assert status == 2 and len(err.strip().splitlines()) == 1


def test_help(call):
  status, out, err = call('--help')
  assert status == 0 and err == ''
  for word in ('--checkpoint', '--max_length', '--output', 'standard input'):
    assert word in out
