"""The summarize command: interrupted, continued, and run again."""

import os
from pathlib import Path
import signal
import subprocess
import sys
import textwrap
import time

import jax
import pytest

from locost_jax.config import speed
from locost_jax.summarizing import summary_form
from tests import python
from tests.data.rows import read_jsonl
from tests.data.rows import write_jsonl

PROGRAM = textwrap.dedent("""
    import signal, sys, time
    from locost_jax.config import commands
    from locost_jax.summarizing.summarizer import Summarizer
    from locost_jax import summarize
    # Who runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    generate = Summarizer.generate
    def slow(self, inputs, *arguments, **named):
      tokens = generate(self, inputs, *arguments, **named)
      time.sleep(600 if inputs[0, 0] == ord('d') + 3 else 0)
      return tokens
    Summarizer.generate = slow
    commands.run(summarize.main, summarize.define_flags, '', sys.argv)
""")


def documents(tmp_path):
  """Writes six documents; the slow process needs 10 minutes for the fourth."""
  rows = [{'document': letter * 20, 'id': letter} for letter in 'abcdef']
  path = tmp_path / 'in.jsonl'
  write_jsonl(path, rows)
  return path


@pytest.mark.parametrize(
    'name, number, status',
    [('out.jsonl', signal.SIGKILL, -9), ('out.txt', signal.SIGINT, 130)],
)
def test_killed_and_continued(
    run, call, tmp_path, batches, name, number, status
):
  """Three rows are on disk; the next call adds the other three."""
  output, partial = tmp_path / name, tmp_path / (name + '.partial')
  command = ['--checkpoint', run, documents(tmp_path), '--batch_size=1']
  unbroken = call(*command)[1]
  command.append(f'--output={output}')
  process = subprocess.Popen(
      [sys.executable, '-c', PROGRAM, *map(str, command)],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      env={**os.environ, 'PYTHONPATH': str(python.ROOT)},
  )
  deadline = time.monotonic() + 120
  while not partial.exists() or partial.read_bytes().count(b'\n') < 3:
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < deadline
    time.sleep(0.05)
  time.sleep(0.5)  # the process is busy with the fourth
  locked = call(*command)
  assert locked[0] == 2 and 'another process is writing it' in locked[2]
  process.send_signal(number)
  _, err = process.communicate(timeout=30)
  assert process.returncode == status
  assert ('interrupted; what is done is in' in err) == (status == 130)
  assert not output.exists()
  with open(partial, 'ab') as f:
    f.write(b'{"id": "d", "predic')  # as SIGKILL may leave it
  batches.clear()
  result = call(*command)
  assert result[0] == 0 and '3 of 6 documents were done before' in result[2]
  assert len(batches) == 3 and not partial.exists()
  if name == 'out.txt':
    assert output.read_text() == unbroken
  else:
    assert [row['id'] for row in read_jsonl(output)] == list('abcdef')
    rows = map(summary_form.text_line, read_jsonl(output))
    assert list(rows) == unbroken.splitlines()


def test_a_finished_file_keeps_its_rows(run, call, tmp_path, batches):
  path, output = documents(tmp_path), tmp_path / 'out.jsonl'
  command = ['--checkpoint', run, f'--output={output}']
  assert call(*command, path)[0] == 0
  before, computed = output.read_text(), len(batches)
  assert call(*command, path)[0] == 0
  assert (output.read_text(), len(batches)) == (before, computed)
  # A new text under an old id, and a new document.
  path.write_text(
      '{"document": "new", "id": "a"}\n{"document": "zz", "id": "z"}\n'
  )
  status, _, err = call(*command, path)
  assert status == 0 and 'keeps 5 summaries of documents' in err
  assert [row['id'] for row in read_jsonl(output)] == list('bcdefaz')
  # Other settings.
  before = output.read_text()
  status, _, err = call(*command, path, '--min_length=3')
  assert status == 2 and output.read_text() == before
  assert 'min_length was 0, now 3' in err and len(err.splitlines()) == 1
  assert not Path(f'{output}.partial').exists()
  assert call(*command, path, '--min_length=3', '--overwrite')[0] == 0
  assert [row['id'] for row in read_jsonl(output)] == ['a', 'z']


def test_a_file_with_other_contents_is_not_changed(run, call, tmp_path):
  output = tmp_path / 'out.jsonl'
  output.write_text('{"precious": 1}\n')
  status, _, err = call(
      '--checkpoint', run, documents(tmp_path), f'--output={output}'
  )
  assert status == 2 and 'out.jsonl:1: no field' in err
  assert '--overwrite' in err and output.read_text() == '{"precious": 1}\n'


def test_programs_are_kept_between_calls(tmp_path):
  """The second process loads the first one's programs and compiles nothing.

  The encoder has three (embed, a layer, finish), decoding three (begin,
  advance, finish), and no small ones come from operations outside of them.
  """
  (tmp_path / 'a.txt').write_text('A text.')
  outputs, counts, files = [], [], []
  for _ in range(2):
    model = 'builtin:documentation'  # with a copy head
    command = 'summarize', '--checkpoint', model, tmp_path / 'a.txt'
    cache = dict(LOCOST_JAX_CACHE='', XDG_CACHE_HOME=str(tmp_path / 'xdg'))
    out, count = python.count(*command, **cache)
    outputs.append(out)
    counts.append(count)
    kept = (tmp_path / 'xdg/locost_jax/xla').glob('*-cache')
    files.append(sorted(path.name for path in kept))
  assert outputs[0] == outputs[1] and files[0] == files[1] and files[0]
  assert counts == [(0, 6), (6, 0)]


@pytest.mark.parametrize(
    'given, environment, expected',
    [
        ('flag', dict(LOCOST_JAX_CACHE='env'), 'flag/xla'),
        (None, dict(LOCOST_JAX_CACHE='env', XDG_CACHE_HOME='xdg'), 'env/xla'),
        (None, dict(XDG_CACHE_HOME='xdg'), 'xdg/locost_jax/xla'),
        (None, dict(HOME='home'), 'home/.cache/locost_jax/xla'),
        ('flag', dict(JAX_COMPILATION_CACHE_DIR='/jax'), '/jax'),
        ('off', {}, None),
        (None, dict(LOCOST_JAX_CACHE='off'), None),
        (None, dict(LOCOST_JAX_CACHE='file/below'), None),
    ],
)
def test_where_programs_are_kept(
    tmp_path, monkeypatch, given, environment, expected
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').write_text('')
  for name in 'LOCOST_JAX_CACHE', 'XDG_CACHE_HOME', 'JAX_COMPILATION_CACHE_DIR':
    monkeypatch.delenv(name, raising=False)
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  set_to = {}
  monkeypatch.setattr(jax.config, 'update', set_to.__setitem__)
  directory = speed.keep_programs(given)
  if expected and not expected.startswith('/'):
    expected = str(tmp_path / expected)
    assert set_to['jax_compilation_cache_dir'] == expected
    assert os.path.isdir(expected)
  else:
    assert not set_to
  assert directory == expected
