"""launch/summarize_beam.py on Beam's local runners writes what the command does."""

import contextlib
import gzip
import json
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from locost_jax import summarize
from tests import python
from tests import tiny_run
from tests.data.rows import read_jsonl
from tests.data.rows import write_jsonl

pytest.importorskip('apache_beam')

from apache_beam.io import localfilesystem

from launch import summarize_beam

GOOD, BAD = 180, 20
SCRIPT = Path(summarize_beam.__file__)
# They depend on the machine and on which documents share a batch.
VARYING = re.compile('seconds.*|documents_in_batch|peak_memory_bytes')


def write_bad(path, kind):
  """Writes a document that cannot be read."""
  if kind == 0:
    path.with_suffix('.txt').write_text(' \n')
  elif kind == 1:
    path.with_suffix('.md').write_bytes(b'\0\1\xff\xfe\x81' * 50)
  elif kind == 2:
    path.with_suffix('.docx').write_bytes(b'PK\3\4' + b'damaged' * 9)
  else:
    os.mkfifo(path.with_suffix('.html'))


@pytest.fixture(scope='module')
def given(tmp_path_factory):
  """A run, and a folder of 200 documents, 20 of them bad."""
  place = tmp_path_factory.mktemp('beam')
  tiny_run.make(place / 'run')
  (place / 'texts' / 'below').mkdir(parents=True)
  generator = np.random.default_rng(0)
  text = lambda i: f'Document {i}: ' + 'word ' * generator.integers(1, 60)
  rows = [{'document': text(i), 'id': f'row {i}'} for i in range(40)]
  write_jsonl(place / 'texts' / 'rows.jsonl', rows)
  for i in range(40, GOOD):
    folder = place / 'texts' / ('below' if i % 3 else '.')
    (folder / f'{i * 7919 % 1000:03}.txt').write_text(text(i))
  for i in range(BAD):
    write_bad(place / 'texts' / 'below' / f'bad{i:02}', i % 4)
  return place


@pytest.fixture(scope='module')
def expected(given):
  """Returns (rows, lines of errors) of the summarize command."""
  output = given / 'expected.jsonl'
  command = f'--checkpoint={given / "run"}', f'--output={output}'
  done = python.run(
      *('-m', 'locost_jax.summarize', *command, given / 'texts'), status=2
  )
  errors = re.findall('^error: (.*)$', done.stderr, re.M)
  rows = read_jsonl(output)
  assert (len(rows), len(errors)) == (GOOD, BAD)
  return rows, errors


def without_times(rows):
  return [
      {key: x for key, x in row.items() if not VARYING.fullmatch(key)}
      for row in rows
  ]


def check(output, expected, err):
  """Checks FILE, its errors, the counters, and that nothing else is left."""
  rows, errors = expected
  found = read_jsonl(output)
  assert without_times(found) == without_times(rows)
  lines = Path(f'{output}.errors').read_text().splitlines()
  assert lines == errors
  tokens = sum(row['tokens_read'] for row in rows)
  assert (
      f'{GOOD} documents ({tokens:,} tokens) summarised, {BAD} left out; see '
      f'{output} and {output}.errors\n' in err
  )
  assert not Path(f'{output}.partial').exists()


def test_a_bundle_that_fails_writes_nothing_twice(
    given, expected, run_command, monkeypatch
):
  """The first attempt of a bundle fails after a few documents; Beam repeats it."""
  output, written = given / 'retried.jsonl', []
  write = summarize_beam.write_file

  def failing(path, data):
    written.append(path)
    if len(written) == 30:
      raise ConnectionResetError('this worker was lost')
    write(path, data)

  monkeypatch.setattr(summarize_beam, 'write_file', failing)
  status, _, err = run_command(
      summarize_beam,
      f'--checkpoint={given / "run"}',
      f'--output={output}',
      given / 'texts',
      *('--', '--runner=BundleBasedDirectRunner'),
  )
  assert status == 2
  check(output, expected, err)
  # Each row once, but the one that failed twice; then the two files.
  assert len(written) == GOOD + 1 + 2 and len(set(written)) == GOOD + 1


def children(process):
  """Returns the ids of the processes below a process."""
  found, todo = [], [process.pid]
  while todo:
    folder = Path(f'/proc/{todo.pop()}/task')
    for task in folder.glob('*/children'):
      todo += map(int, task.read_text().split())
      found += todo[-1:]
  return found


def test_a_killed_worker_loses_only_what_it_was_writing(given, expected):
  """SIGKILL to a worker process; the same command writes what is missing."""
  output, log = given / 'killed.jsonl', given / 'log'
  partial = Path(f'{output}.partial')
  command = [SCRIPT, f'--checkpoint={given / "run"}', f'--output={output}']
  command += [given / 'texts', '--', '--runner=FnApiRunner']
  many = ['--direct_running_mode=multi_processing', '--direct_num_workers=2']
  with open(log, 'wb') as file:
    job = subprocess.Popen(
        [sys.executable, *command, *many],
        env={**os.environ, 'PYTHONPATH': str(SCRIPT.parents[1])},
        stderr=file,
        start_new_session=True,
    )
  try:
    deadline = time.monotonic() + 300
    while len(list(partial.glob('*.json'))) < 5:
      assert job.poll() is None and time.monotonic() < deadline, log.read_text()
      time.sleep(0.05)
    workers = [
        pid
        for pid in children(job)
        if b'sdk_worker_main' in Path(f'/proc/{pid}/cmdline').read_bytes()
    ]
    assert len(workers) >= 2
    for pid in workers:  # a worker's shell ends with it
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
  finally:  # Beam's local runner waits for a lost worker
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
  assert not output.exists()
  kept = {}
  for path in partial.glob('*.json'):
    try:
      kept[path.name] = json.loads(path.read_text())
    except ValueError:  # killed while it was written
      pass
  assert 0 < len(kept) < GOOD
  done = python.run(*command, status=2)
  check(output, expected, done.stderr)
  rows = read_jsonl(output)
  assert all(row in rows for row in kept.values())  # with their times


def test_rows_are_kept_by_document_text_and_model(tmp_path):
  """A row of another text or model is not taken, nor one that is cut off."""
  job = lambda source, name, sha256: types.SimpleNamespace(
      document=types.SimpleNamespace(source=source, id=name), sha256=sha256
  )
  path = lambda model, *document: summarize_beam.Model.row_path(
      types.SimpleNamespace(key={'seed': model}), 'o', job(*document)
  )
  others = [(1, *'abc'), (0, *'xbc'), (0, *'axc'), (0, *'abx')]
  every = [path(0, *'abc'), *(path(*other) for other in others)]
  assert len(set(every)) == 5 and path(0, *'abc') == every[0]
  row = tmp_path / 'row.json'
  assert summarize_beam._load(str(row)) is None
  row.write_text('{"id": "a", "predic')
  assert summarize_beam._load(str(row)) is None


class Disk(localfilesystem.LocalFileSystem):
  """An object store: disk://PATH is /PATH."""

  @classmethod
  def scheme(cls):
    return 'disk'

  def delete(self, paths):
    for path in paths:
      assert path.endswith('/')  # all that is below it
      shutil.rmtree(path.removeprefix('disk:/'))

  def exists(self, path):
    return os.path.isfile(path.removeprefix('disk:/'))

  def create(self, path, *arguments, **options):
    path = Path(path.removeprefix('disk:/'))
    path.parent.mkdir(exist_ok=True)
    return super().create(str(path), *arguments, **options)

  def rename(self, source_file_names, destination_file_names):
    super().rename(
        *(
            [path.removeprefix('disk:/') for path in paths]
            for paths in (source_file_names, destination_file_names)
        )
    )


def test_documents_in_a_bucket(given, run_command, tmp_path, bucket):
  """The rows and errors of the command; FILE is in another kind of bucket."""
  for name, data in {
      'a.txt': 'One text.',
      'b.docx': b'PK\3\4',
      'c.png': b'\x89PNG',
      'd.jsonl': '{"document": "A"}\n{}\n{"document": "B"}\n',
      'e.txt.gz': gzip.compress(b'A compressed text.'),
  }.items():
    bucket.put(f'texts/{name}', data)
  given = f'--checkpoint={given / "run"}', f'gs://{bucket.name}/texts'
  output, own = tmp_path / 'found.jsonl', tmp_path / 'own.jsonl'
  beam = f'--output=disk:/{output}', '--', '--runner=FnApiRunner'
  status, _, err = run_command(summarize_beam, *given, *beam)
  assert status == 2 and 'passed over 1 of other kinds' in err
  _, _, err = run_command(summarize, *given, f'--output={own}')
  rows = read_jsonl(output)
  assert without_times(rows) == without_times(read_jsonl(own))
  assert len(rows) == 4 and rows[0]['source'] == f'{given[1]}/a.txt'
  errors = Path(f'{output}.errors').read_text().splitlines()
  assert errors == re.findall('^error: (.*)$', err, re.M) and len(errors) == 2
  assert not Path(f'{output}.partial').exists()


@pytest.mark.parametrize(
    'words, message',
    [
        ('', '--checkpoint=DIR is missing'),
        ('--checkpoint=RUN TEXTS', '--output=: expected FILE.jsonl'),
        ('--checkpoint=RUN TEXTS --output=o.txt', 'o.txt: expected FILE.jsonl'),
        ('--checkpoint=RUN TEXTS --output=o.jsonl --format=csv', 'no --format'),
        ('--checkpoint=RUN TEXTS --output=README.md.jsonl', 'exists; expected'),
        ('--checkpoint=RUN TEXTS --output=no://b/o.jsonl', '--output=no://b'),
        ('--checkpoint=RUN no/file --output=o.jsonl', 'no/file: no such file'),
        (
            '--checkpoint=RUN s3://b/c --output=o.jsonl',
            's3://b/c: no such file',
        ),
        ('--checkpoint=no TEXTS --output=o.jsonl', 'no: no such directory'),
        (
            '--checkpoint=RUN T --output=o.jsonl -- --runner=X',
            'pipeline runner',
        ),
        (
            '--checkpoint=RUN T --output=o.jsonl -- --runer=DirectRunner',
            '--runer is not an option of Beam; did you mean --runner?',
        ),
        (
            '--checkpoint=RUN T --output=o.jsonl -- --direct_num_workers=x',
            'after --: argument --direct_num_workers: invalid int value',
        ),
    ],
)
def test_wrong_flags(given, run_command, tmp_path, monkeypatch, words, message):
  monkeypatch.chdir(tmp_path)
  Path('README.md.jsonl').touch()
  words = words.replace('RUN', str(given / 'run'))
  words = words.replace('TEXTS', str(given / 'texts'))
  status, _, err = run_command(summarize_beam, *words.split())
  assert status == 2 and message in err and err.count('\n') == 1, err
  assert os.listdir() == ['README.md.jsonl']


def test_beam_may_be_missing():
  program = f"""
import runpy, sys
sys.modules['apache_beam'] = None
runpy.run_path({str(SCRIPT)!r}, run_name='__main__')
"""
  done = python.run('-c', program, status=1)
  assert done.stderr.startswith('error: apache-beam is missing: pip install')
  assert done.stderr.count('\n') == 1
