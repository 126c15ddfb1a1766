"""The summarize command: documents in, one line per document out."""

import gzip
import io
import json
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types

import jax
import numpy as np
import pytest

from locost_jax import commands
from locost_jax import decode
from locost_jax import pretrained
from locost_jax import programs
from locost_jax import summaries
from locost_jax import summarize
from locost_jax.data import vocabulary as vocabularies
import tiny_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  directory = tmp_path_factory.mktemp('summarize') / 'run'
  tiny_run.make(directory)
  return directory


@pytest.fixture(autouse=True)
def no_program_cache(monkeypatch):
  monkeypatch.setenv('LOCOST_JAX_CACHE', 'off')


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
      str(files[0]), '7', f'{files[1]}:3', str(files[2]), '-']
  expected = pretrained.load(str(run)).summarize(
      texts + ['From stdin.'], min_length=5)
  assert [row['prediction'] for row in rows] == expected
  assert [row['tokens_read'] for row in rows] == [
      len(text.encode()) + 1 for text in texts + ['From stdin.']]
  assert len([line for line in err.splitlines() if 'tokens read' in line]) == 5


def test_plain_form_has_no_newlines(run, call, tmp_path, monkeypatch):
  monkeypatch.setattr(vocabularies.ByteVocabulary, 'decode',
                      lambda self, ids: 'one\ntwo  three')
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
  assert '11 tokens read, 6 kept' in err and 'peak memory' in err
  assert sorted(p.name for p in tmp_path.iterdir()) == ['a.txt', 'out.jsonl']


def test_a_row_holds_what_reproduces_it(run, call, tmp_path):
  (tmp_path / 'a.txt').write_text('A text.')
  row = json.loads(call('--checkpoint', run, tmp_path / 'a.txt',
                        '--format=json', '--no_repeat_ngram_size=2')[1])
  assert row['source'] == str(tmp_path / 'a.txt')
  assert row['sha256'] == summaries.hash_text('A text.')
  assert row['checkpoint']['path'] == str(run / 'checkpoints' / '2')
  assert row['checkpoint']['step'] == 2 and row['checkpoint']['fingerprint']
  assert (row['dtype'], row['backend'], row['versions']['jax']) == (
      'float32', 'cpu', jax.__version__)
  assert row['peak_memory_bytes'] > 2**20
  assert row['seconds'] == pytest.approx(
      row['seconds_encoding'] + row['seconds_decoding'], abs=2e-3)
  # As trained, as given, as nobody said.
  settings = row['settings']
  assert (settings['max_length'], settings['no_repeat_ngram_size'],
          settings['num_beams'], settings['seed'],
          settings['max_input_length']) == (6, 2, 1, 0, None)
  again = pretrained.load(row['checkpoint']['path']).summarize(
      ['A text.'], no_repeat_ngram_size=2)
  assert again == [row['prediction']]


def test_the_fingerprint_tells_weights_apart(run, tmp_path):
  one = pretrained.load(str(run))
  assert summaries.fingerprint(one) == summaries.fingerprint(
      pretrained.load(str(run)))
  params = jax.tree.map(np.array, one.params)
  jax.tree.leaves(params)[0].reshape(-1)[3] += 1e-3
  other = pretrained.Summarizer(one.model, params, one.vocabulary)
  assert summaries.fingerprint(one) != summaries.fingerprint(other)


@pytest.mark.parametrize('arguments, expected', [
    (['missing.txt', '--checkpoint=RUN'], 'missing.txt: no such file'),
    (['nothing', '--checkpoint=RUN'], 'nothing: a directory with nothing'),
    (['empty.txt', '--checkpoint=RUN'], 'empty.txt: an empty document'),
    (['latin.txt', '--checkpoint=RUN'], 'latin.txt: not UTF-8 (byte 3'),
    (['bad.jsonl', '--checkpoint=RUN'], 'bad.jsonl:1: not JSON'),
    (['text.jsonl', '--checkpoint=RUN'], "text.jsonl:1: no field 'document'"),
    (['none.jsonl', '--checkpoint=RUN'], 'none.jsonl: holds no document'),
    (['a.txt', '--checkpoint=nowhere'], 'nowhere: no such directory'),
    (['a.txt', '--checkpoint=.'], 'config.json'),
    (['a.txt'], '--checkpoint=DIR is missing'),
    (['--checkpoint=RUN'], 'no FILE given'),
    (['a.txt', '--checkpoint=RUN', '--max_lenght=3'],
     'did you mean --max_length?'),
    (['a.txt', '--checkpoint=RUN', '--max_length=0'], '--max_length=0'),
    (['a.txt', '--checkpoint=nowhere', '--num_beams=0'], '--num_beams=0'),
    (['a.txt', '--checkpoint=nowhere', '--max_length=3', '--min_length=4'],
     '--min_length=4 must lie between 0 and max_length=3'),
    (['a.txt', '--checkpoint=RUN', '--min_length=7'],
     '--min_length=7 must lie between 0 and max_length=6'),
    (['a.txt', '--checkpoint=nowhere', '--temperature=0'], '--temperature=0'),
    (['a.txt', '--checkpoint=nowhere', '--top_p=1.5'], '--top_p=1.5 must be'),
    (['a.txt', '--checkpoint=nowhere', '--num_beams=2', '--top_k=3'],
     "--num_beams=2 must be 1 with method='sample'"),
    (['a.txt', '--checkpoint=nowhere', '--num_beams=2', '--method=greedy'],
     "--num_beams=2 must be 1 with method='greedy'"),
    (['a.txt', '--checkpoint=RUN', '--method=beam'], '--num_beams=1 must be'),
    (['a.txt', '--checkpoint=RUN', '--output=no/dir/x'], 'no directory'),
    (['a.txt', '--checkpoint=RUN', '--output=nothing'], 'is a directory'),
    # Documents first, then the checkpoint.
    (['missing.txt', '--checkpoint=nowhere'], 'missing.txt: no such file'),
])
def test_bad_input(run, call, tmp_path, monkeypatch, arguments, expected):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'a.txt').write_text('A text.')
  (tmp_path / 'empty.txt').write_text(' \n')
  (tmp_path / 'latin.txt').write_bytes(b'caf\xe9 au lait')
  (tmp_path / 'bad.jsonl').write_text('{"document"\n')
  (tmp_path / 'text.jsonl').write_text('{"text": "x"}\n')
  (tmp_path / 'none.jsonl').write_text('')
  (tmp_path / 'nothing').mkdir()
  before = sorted(tmp_path.iterdir())
  status, out, err = call(*(a.replace('RUN', str(run)) for a in arguments))
  assert status == 2 and out == ''
  assert len(err.strip().splitlines()) == 1 and expected in err
  assert sorted(tmp_path.iterdir()) == before


def test_bad_documents_do_not_stop_the_others(run, call, tmp_path):
  (tmp_path / 'a.jsonl').write_text(
      '{"document": "One."}\n{"document"\n{"document": "Two."}\n')
  (tmp_path / 'b.txt').write_bytes(b'\xff')
  output = tmp_path / 'out.jsonl'
  status, _, err = call(
      '--checkpoint', run, tmp_path / 'a.jsonl', tmp_path / 'missing.txt',
      tmp_path / 'b.txt', f'--output={output}')
  assert status == 2
  assert [row['id'][-2:] for row in rows_of(output)] == [':1', ':3']
  errors = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(errors) == 3 and 'a.jsonl:2' in errors[0]
  assert 'missing.txt' in errors[1] and 'b.txt' in errors[2]


@pytest.mark.parametrize('given, expected', [
    ({}, dict(method='beam', num_beams=4, length_penalty=0.8)),
    (dict(num_beams=1), dict(method='greedy', num_beams=1)),
    (dict(method='greedy'), dict(method='greedy', num_beams=1)),
    (dict(num_beams=2), dict(method='beam', num_beams=2)),
    (dict(top_k=5), dict(method='sample', num_beams=1, top_k=5)),
    (dict(method='sample', seed=3), dict(method='sample', seed=3)),
    (dict(length_penalty=2.0), dict(method='beam', length_penalty=2.0)),
])
def test_settings_as_given_then_as_trained(given, expected):
  values = commands.flags.FlagValues()
  summarize.define_flags(values, [])
  values(['x', *(f'--{key}={value}' for key, value in given.items())])
  settings = summarize.choose_settings(
      values, decode.Settings(num_beams=4, length_penalty=0.8))
  assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize('flags', [
    dict(num_beams=3, length_penalty=0.5, early_stopping=True),
    dict(temperature=0.7, top_k=9, top_p=0.9, seed=5)])
def test_the_flags_arrive(run, call, tmp_path, flags):
  text = 'A text to be read in full.'
  (tmp_path / 'a.txt').write_text(text)
  _, out, _ = call('--checkpoint', run, tmp_path / 'a.txt', '--format=json',
                   *(f'--{key}={value}' for key, value in flags.items()))
  expected, = pretrained.load(str(run)).summarize(text, **flags)
  assert json.loads(out)['prediction'] == expected
  assert {key: json.loads(out)['settings'][key] for key in flags} == flags


# --- Batches and memory ------------------------------------------------------


def rows_of(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def batches(monkeypatch):
  """Shapes of the batches that were computed."""
  shapes, generate = [], pretrained.Summarizer.generate
  def spy(self, inputs, *arguments, **named):
    shapes.append(inputs.shape)
    return generate(self, inputs, *arguments, **named)
  monkeypatch.setattr(pretrained.Summarizer, 'generate', spy)
  return shapes


def test_documents_of_like_length_share_a_batch(run, call, tmp_path, batches):
  """And each is written as soon as those before it are, in their order."""
  lengths = [10, 200, 20, 30, 210, 40]
  (tmp_path / 'a.jsonl').write_text(''.join(
      json.dumps({'document': chr(97 + i) * n}) + '\n'
      for i, n in enumerate(lengths)))
  status, out, _ = call('--checkpoint', run, tmp_path / 'a.jsonl',
                        '--format=json', '--batch_size=3')
  rows = [json.loads(line) for line in out.splitlines()]
  assert status == 0
  assert [row['tokens_read'] for row in rows] == [n + 1 for n in lengths]
  assert batches == [(3, 64), (2, 256), (1, 64)]
  alone = call('--checkpoint', run, tmp_path / 'a.jsonl', '--batch_size=1')[1]
  assert [row['prediction'] for row in rows] == alone.splitlines()


def test_batches_come_in_the_order_they_are_wanted():
  rows = lambda length: {8: 2, 16: 1, 32: 0}[length]
  assert summaries.make_batches(
      [(8, 'a'), (16, 'b'), (32, 'c'), (8, 'd'), (16, 'e'), (8, 'f'),
       (32, 'g')], lambda job: job[0], rows) == [
           (8, [(8, 'a'), (8, 'd')]), (16, [(16, 'b')]), (32, [(32, 'c')]),
           (16, [(16, 'e')]), (8, [(8, 'f')]), (32, [(32, 'g')])]


def test_too_large_for_the_memory(run, call, tmp_path, batches):
  """A batch shrinks; a document that does not fit alone is refused, and the
  length that is named fits."""
  (tmp_path / 'small.jsonl').write_text(
      '\n'.join(json.dumps({'document': 'x' * 5000}) for _ in range(4)))
  (tmp_path / 'large.txt').write_text('y' * 30_000)
  files = [tmp_path / 'large.txt', tmp_path / 'small.jsonl']
  status, out, err = call('--checkpoint', run, *files, '--format=json',
                          '--memory_limit=0.276')
  assert status == 2 and len(out.splitlines()) == 4
  assert batches == [(2, 6144), (2, 6144)]
  line, = [line for line in err.splitlines() if line.startswith('error: ')]
  assert 'large.txt: 30001 tokens need about 2' in line
  assert 'encoding 36 MiB' in line and '283 MiB are available' in line
  fits = int(line.split('--max_input_length=')[1].split()[0])
  batches.clear()
  assert call('--checkpoint', run, files[0], '--memory_limit=0.276',
              f'--max_input_length={fits}')[0] == 0
  assert batches == [(1, fits)]


def test_a_device_that_ends_its_memory_gets_less(run, call, tmp_path,
                                                 monkeypatch):
  generate = pretrained.Summarizer.generate
  def small_device(self, inputs, *arguments, **named):
    if inputs.shape[0] * inputs.shape[1] > 128:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory')
    return generate(self, inputs, *arguments, **named)
  monkeypatch.setattr(pretrained.Summarizer, 'generate', small_device)
  (tmp_path / 'a.jsonl').write_text('\n'.join(
      json.dumps({'document': 'x' * n}) for n in (10, 11, 200, 12, 13, 14)))
  status, out, err = call('--checkpoint', run, tmp_path / 'a.jsonl',
                          '--format=json')
  assert status == 2
  assert [json.loads(line)['tokens_read'] for line in out.splitlines()] == [
      11, 12, 13, 14, 15]
  line, = [line for line in err.splitlines() if line.startswith('error: ')]
  assert 'a.jsonl:3: the device has not the memory for its 201 tokens' in line


# --- Interrupted and continued -----------------------------------------------

PROGRAM = textwrap.dedent("""
    import signal, sys, time
    from locost_jax import commands, pretrained, summarize
    # Who runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    generate = pretrained.Summarizer.generate
    def slow(self, inputs, *arguments, **named):
      tokens = generate(self, inputs, *arguments, **named)
      time.sleep(600 if inputs[0, 0] == ord('d') + 3 else 0)
      return tokens
    pretrained.Summarizer.generate = slow
    commands.run(summarize.main, summarize.define_flags, '', sys.argv)
""")
ROOT = Path(__file__).parent.parent


def start(program, *arguments, **environment):
  return subprocess.Popen(
      [sys.executable, '-c', program, *map(str, arguments)], cwd=ROOT,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
      env={**os.environ, 'PYTHONPATH': str(ROOT), **environment})


def documents(tmp_path):
  """Six documents; the fourth takes the slow process ten minutes."""
  path = tmp_path / 'in.jsonl'
  path.write_text('\n'.join(
      json.dumps({'document': letter * 20, 'id': letter})
      for letter in 'abcdef'))
  return path


@pytest.mark.parametrize('name, number, status', [
    ('out.jsonl', signal.SIGKILL, -9), ('out.txt', signal.SIGINT, 130)])
def test_killed_and_continued(run, call, tmp_path, batches, name, number,
                              status):
  """Three are on disk; the next call does the other three: as if unbroken."""
  output, partial = tmp_path / name, tmp_path / (name + '.partial')
  command = ['--checkpoint', run, documents(tmp_path), f'--output={output}',
             '--batch_size=1']
  process = start(PROGRAM, *command)
  deadline = time.monotonic() + 120
  while not partial.exists() or partial.read_bytes().count(b'\n') < 3:
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < deadline
    time.sleep(0.05)
  time.sleep(0.5)  # it is in the fourth
  locked = call(*command)
  assert locked[0] == 2 and 'another process is writing it' in locked[2]
  process.send_signal(number)
  _, err = process.communicate(timeout=30)
  assert process.returncode == status
  assert ('interrupted; what is done is in' in err) == (status == 130)
  assert not output.exists()
  with open(partial, 'ab') as f:
    f.write(b'{"id": "d", "predic')  # what SIGKILL may leave
  batches.clear()
  result = call(*command)
  assert result[0] == 0 and '3 of 6 documents were done before' in result[2]
  assert len(batches) == 3 and not partial.exists()
  unbroken = call(*command[:-2], '--batch_size=1')[1]
  if name == 'out.txt':
    assert output.read_text() == unbroken
  else:
    assert [row['id'] for row in rows_of(output)] == list('abcdef')
    assert [row['prediction'] for row in rows_of(output)] == (
        unbroken.splitlines())


def test_a_finished_file_is_completed_not_redone(run, call, tmp_path, batches):
  path, output = documents(tmp_path), tmp_path / 'out.jsonl'
  command = ['--checkpoint', run, f'--output={output}']
  assert call(*command, path)[0] == 0
  before, computed = output.read_text(), len(batches)
  assert call(*command, path)[0] == 0
  assert (output.read_text(), len(batches)) == (before, computed)
  # Another text under an old id, and a new document.
  path.write_text('{"document": "new", "id": "a"}\n'
                  '{"document": "zz", "id": "z"}\n')
  status, _, err = call(*command, path)
  assert status == 0 and 'keeps 5 summaries of documents' in err
  assert [row['id'] for row in rows_of(output)] == list('bcdefaz')
  # Other settings.
  before = output.read_text()
  status, _, err = call(*command, path, '--min_length=3')
  assert status == 2 and output.read_text() == before
  assert 'min_length was 0, now 3' in err and len(err.splitlines()) == 1
  assert not Path(f'{output}.partial').exists()
  assert call(*command, path, '--min_length=3', '--overwrite')[0] == 0
  assert [row['id'] for row in rows_of(output)] == ['a', 'z']


def test_a_file_of_something_else_is_not_touched(run, call, tmp_path):
  output = tmp_path / 'out.jsonl'
  output.write_text('{"precious": 1}\n')
  status, _, err = call('--checkpoint', run, documents(tmp_path),
                        f'--output={output}')
  assert status == 2 and 'out.jsonl:1: no field' in err
  assert '--overwrite' in err and output.read_text() == '{"precious": 1}\n'


def test_programs_are_kept_between_calls(run, tmp_path):
  """The second process loads what the first compiled, and adds nothing."""
  program = textwrap.dedent("""
      import collections, sys
      import jax
      from locost_jax import commands, programs, summarize
      programs._SHORTEST = 0.0  # seconds: a small model's programs too
      events = collections.Counter()
      jax.monitoring.register_event_listener(
          lambda event, **_: events.update([event.rpartition('/')[2]]))
      try:
        commands.run(summarize.main, summarize.define_flags, '', sys.argv)
      finally:
        print(events['cache_hits'], events['cache_misses'], file=sys.stderr)
  """)
  (tmp_path / 'a.txt').write_text('A text.')
  outputs, counts, files = [], [], []
  for _ in range(2):
    process = start(program, '--checkpoint', run, tmp_path / 'a.txt',
                    LOCOST_JAX_CACHE='', XDG_CACHE_HOME=str(tmp_path / 'xdg'))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    outputs.append(out)
    counts.append(tuple(map(int, err.splitlines()[-1].split())))
    files.append(sorted(
        p.name for p in (tmp_path / 'xdg/locost_jax/xla').iterdir()
        if p.name.endswith('-cache')))
  assert outputs[0] == outputs[1] and files[0] == files[1] and files[0]
  assert counts[0][0] == 0 and counts[0][1] > 0
  assert counts[1] == (counts[0][1], 0)


@pytest.mark.parametrize('given, environment, expected', [
    ('flag', dict(LOCOST_JAX_CACHE='env'), 'flag/xla'),
    (None, dict(LOCOST_JAX_CACHE='env', XDG_CACHE_HOME='xdg'), 'env/xla'),
    (None, dict(XDG_CACHE_HOME='xdg'), 'xdg/locost_jax/xla'),
    (None, dict(HOME='home'), 'home/.cache/locost_jax/xla'),
    ('flag', dict(JAX_COMPILATION_CACHE_DIR='/jax'), '/jax'),
    ('off', {}, None), (None, dict(LOCOST_JAX_CACHE='off'), None),
    ('file/below', {}, None),
])
def test_where_programs_are_kept(tmp_path, monkeypatch, given, environment,
                                 expected):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').write_text('')
  for name in ('LOCOST_JAX_CACHE', 'XDG_CACHE_HOME',
               'JAX_COMPILATION_CACHE_DIR'):
    monkeypatch.delenv(name, raising=False)
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  set_to = {}
  monkeypatch.setattr(jax.config, 'update', set_to.__setitem__)
  directory = programs.keep(given)
  if expected and not expected.startswith('/'):
    expected = str(tmp_path / expected)
    assert set_to['jax_compilation_cache_dir'] == expected
    assert os.path.isdir(expected)
  else:
    assert not set_to
  assert directory == expected


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
