"""Existing files, documents and finished summaries are never lost."""

import csv
import fcntl
import json
import os
from pathlib import Path
import re
import sys

import jax
import pytest

from locost_jax.attribution import page as page_lib
from locost_jax.summarizing import results
from locost_jax.summarizing import summary_form
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.workdir import checkpoint
from tests.data.rows import read_jsonl
from tests.data.rows import write_jsonl
from tests.summarizing.summarize_command import error_line

pytestmark = pytest.mark.usefixtures('guard')

THESIS = 'Ten years of work.'


@pytest.fixture
def thesis(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = tmp_path / 'thesis.txt'
  path.write_text(THESIS)
  return path


def expect_refused(result, expected):
  status, out, err = result
  assert (status, out, err.count('\n')) == (2, '', 1), err
  assert err.startswith('error: ') and expected in err, err


# --- Existing files ----------------------------------------------------------


@pytest.mark.parametrize('flag', ['output', 'report'])
@pytest.mark.parametrize('more', [[], ['--overwrite']])
@pytest.mark.parametrize(
    'name',
    ['a.html', './a.html', 'link.html', 'hard.html', 'folder/a.html'],
)
def test_a_document_is_never_replaced(call, thesis, flag, more, name):
  ending = 'html' if flag == 'report' else 'txt'
  own, name = f'a.{ending}', name.replace('html', ending)
  thesis = thesis.rename(own)
  os.symlink(own, f'link.{ending}')
  os.link(own, f'hard.{ending}')
  os.symlink('.', 'folder')
  before = sorted(os.listdir())
  expect_refused(
      call('--checkpoint=x', f'--{flag}={name}', *more, own),
      f'--{flag}={name}: is the document {own}',
  )
  assert thesis.read_text() == THESIS
  assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    'name, flag, document',
    [
        ('thesis.txt.partial', '--output=thesis.txt', 'thesis.txt.partial'),
        ('page-2.html', '--report=page.html', 'page-2.html'),
        ('sub/a.txt', '--output=sub/a.txt', 'sub'),
        ('odd.csv', '--output=odd.csv', 'odd.csv'),
    ],
)
def test_a_document_is_not_replaced_by_derived_files(
    call, thesis, name, flag, document
):
  os.makedirs('sub')
  Path(name).write_bytes(b'Precious.')
  result = call('--checkpoint=x', flag, '--overwrite', 'thesis.txt', document)
  assert result[0] == 2
  assert 'is the document' in result[2].splitlines()[-1] or (
      name == 'thesis.txt.partial'
  )
  assert Path(name).read_bytes() == b'Precious.'
  assert thesis.read_text() == THESIS


def test_standard_input_is_a_document(call, thesis, monkeypatch):
  with open(thesis) as stdin:
    monkeypatch.setattr(sys, 'stdin', stdin)
    expect_refused(
        call('--checkpoint=x', '--output=thesis.txt', '--overwrite', '-'),
        '--output=thesis.txt: is the document on standard input',
    )
  assert thesis.read_text() == THESIS


@pytest.mark.parametrize('flag', ['output', 'report'])
def test_another_file_is_replaced_only_with_overwrite(run, call, thesis, flag):
  notes = Path('notes.htm' if flag == 'report' else 'notes.csv')
  notes.write_text('My notes.')
  command = '--checkpoint', run, f'--{flag}={notes}', 'thesis.txt'
  expect_refused(call(*command), f'--{flag}={notes}: exists already')
  assert notes.read_text() == 'My notes.'
  assert call(*command, '--overwrite')[0] == 0
  assert notes.read_text() != 'My notes.'
  assert sorted(os.listdir()) == [str(notes), 'thesis.txt']


def test_the_ending_of_a_page_may_be_in_capitals(call, thesis):
  (error,) = call('--checkpoint=x', '--report=A.HTML', thesis)[2:]
  assert '--report' not in error


@pytest.mark.parametrize('flag', ['output', 'report'])
def test_only_regular_files_are_replaced(call, thesis, flag):
  ending = 'html' if flag == 'report' else 'json'
  os.mkfifo(f'pipe.{ending}')
  os.symlink('/dev/null', f'null.{ending}')
  for name, kind in ('null', 'a device'), ('pipe', 'a named pipe'):
    name = f'{name}.{ending}'
    before = os.lstat(name)
    expect_refused(
        call('--checkpoint=x', f'--{flag}={name}', '--overwrite', thesis),
        f'--{flag}={name}: is {kind}, expected a regular file',
    )
    assert os.lstat(name).st_mode == before.st_mode
    assert os.lstat(name).st_ino == before.st_ino


def test_a_link_stays_and_its_file_is_written(run, call, thesis):
  os.makedirs('disk')
  os.symlink('disk/out.txt', 'out.txt')
  assert call('--checkpoint', run, '--output=out.txt', thesis)[0] == 0
  assert os.path.islink('out.txt') and os.listdir('disk') == ['out.txt']
  expect_refused(
      call('--checkpoint', run, '--output=out.txt', thesis),
      '--output=out.txt: exists already',
  )


def test_a_partial_file_of_another_program(call, run, thesis):
  """It ends without a newline, like the file of a killed process."""
  partial = Path('out.txt.partial')
  for more in [], ['--overwrite']:
    partial.write_text('My notes.')
    expect_refused(
        call('--checkpoint', run, '--output=out.txt', *more, thesis),
        'out.txt.partial: is no result of this command',
    )
    assert partial.read_text() == 'My notes.'


def test_every_form_has_every_document(run, call, tmp_path, monkeypatch):
  """Each line has its file, in the order of `ls`; a reason where none is."""
  monkeypatch.chdir(tmp_path)
  os.makedirs('in')
  for name, text in ('a', 'Long' * 9), ('b', ' '), ('c', 'It, "too"'):
    Path(f'in/{name}.txt').write_text(text)
  command = '--checkpoint', run, '--max_input_length=20', 'in'
  _, out, err = call(*command)
  lines = [line.partition(': ') for line in out.splitlines()]
  assert [line[0] for line in lines] == ['in/a.txt', 'in/b.txt', 'in/c.txt']
  assert lines[1][2] == '(left out: an empty document)'
  assert lines[0][2].endswith(' (cut at 6 tokens)')
  advice = '; --parts=rank or hierarchical reads all of it)'
  assert f'in/a.txt: read the first 54% (20 of 37 tokens{advice}' in err
  assert ', peak memory ' in err
  for ending in 'txt', 'csv', 'json', 'jsonl':
    assert call(*command, f'--output=o.{ending}', '--report=r.html')[0] == 2
  assert Path('o.txt').read_text() == out
  rows = read_jsonl(Path('o.jsonl'))
  same = lambda rows: [(x['id'], x['prediction'], x['sha256']) for x in rows]
  assert same(json.loads(Path('o.json').read_text())) == same(rows)
  counts = [(row['tokens_read'], row['tokens_total']) for row in rows]
  assert counts == [(20, 37), (10, 10)]
  assert [row['cut_at'] for row in rows] == [6, 6]
  with open('o.csv', encoding='utf-8-sig', newline='') as file:
    table = list(csv.reader(file))
  texts = [line[2] for line in lines]
  assert table == [
      ['file', 'summary', 'tokens', 'left out'],
      ['in/a.txt', texts[0], '37', '17 tokens'],
      ['in/b.txt', '', '', 'an empty document'],
      ['in/c.txt', texts[2], '10', ''],
  ]
  _, shown, _ = call(*command, '--format=csv')
  assert list(csv.reader(shown.splitlines())) == table
  assert 'in/b.txt<p>an empty document' in Path('r.html').read_text()
  call(*command[:-1], '--report=one.html', 'in/b.txt', 'in/c.txt')
  assert 'in/b.txt: an empty document' in Path('one.html').read_text()


# --- Finished summaries ------------------------------------------------------


def test_a_lock_on_a_removed_file_is_retried(tmp_path, monkeypatch):
  """The first process ends after the second opens the file, before it locks."""
  path = str(tmp_path / 'out.txt')
  first, flock = results.Results(path, {}), fcntl.flock

  def late(*arguments):
    monkeypatch.setattr(fcntl, 'flock', flock)
    first.close()
    flock(*arguments)

  monkeypatch.setattr(fcntl, 'flock', late)
  second = results.Results(path, {})
  second.add(dict(id='a', source='s', prediction='p', sha256='0'))
  assert os.path.getsize(path + '.partial')
  second.finish([('s', 'a', '0')])
  second.close()
  assert (tmp_path / 'out.txt').read_text() == 'p\n'


def test_a_failed_page_does_not_stop_the_summaries(
    run, call, thesis, monkeypatch
):
  (thesis.parent / 'b.txt').write_text('Another text.')
  render, seen = page_lib.render, []

  def fail(name, *arguments):
    seen.append(Path('out.jsonl.partial').read_text().count('\n'))
    if name == 'thesis.txt':
      raise OSError(28, 'No space left on device', 'p-1.html')
    return render(name, *arguments)

  monkeypatch.setattr(page_lib, 'render', fail)
  command = '--checkpoint', run, '--report=p.html', 'thesis.txt', 'b.txt'
  status, _, err = call(*command, '--output=out.jsonl')
  assert status == 2 and len(read_jsonl(thesis.parent / 'out.jsonl')) == 2
  assert min(seen) >= 1  # the summary is on disk
  line = error_line(err)
  assert 'the page of thesis.txt' in line and 'No space left' in line
  assert 'p-1.html' in line and os.path.exists('p-2.html')
  for name in 'p.html', 'p-2.html', 'out.jsonl':
    os.remove(name)
  monkeypatch.setattr(page_lib, 'render', lambda *_: 1 / 0)
  open('out.jsonl.partial', 'w').close()
  status, out, err = call(*command)
  assert status == 2 and len(out.splitlines()) == 2
  assert err.count('ZeroDivisionError') == 2
  assert err.splitlines()[-1] == '2 documents summarised'


def test_pages_continue_with_their_summaries(run, call, thesis):
  """Pages that exist stay; those of other documents are never replaced."""
  (thesis.parent / 'b.txt').write_text('Another text.')
  command = '--checkpoint', run, '--report=p.html', '--output=out.jsonl'
  documents = 'thesis.txt', 'b.txt'
  assert call(*command, *documents)[0] == 0
  pages = sorted(p for p in os.listdir() if p.endswith('.html'))
  assert pages == ['p-1.html', 'p-2.html', 'p.html']
  first = {name: Path(name).read_text() for name in pages}
  os.remove('p-2.html')
  assert call(*command, *documents)[0] == 0
  assert {name: Path(name).read_text() for name in pages} == first
  expect_refused(call(*command, 'thesis.txt'), 'exists already')
  # Another document in front: its page takes the number of another one.
  Path('a.txt').write_text('A new text.')
  assert call(*command, 'a.txt', *documents)[0] == 0
  index = Path('p.html').read_text()
  names = dict(re.findall(r'href="(p-\d\.html)">([\w.]+)<', index))
  assert list(names) == ['p-1.html', 'p-2.html', 'p-3.html']
  assert list(names.values()) == ['a.txt', 'thesis.txt', 'b.txt']
  for file, name in names.items():
    assert f'<h1>{name}</h1>' in Path(file).read_text()
  Path('p-2.html').write_text('Mine.')
  expect_refused(call(*command, 'a.txt', *documents), 'exists already')


def test_equal_ids_of_two_files(run, call, thesis, tmp_path):
  for name in 'ab':
    row = {'document': f'The text of {name}.', 'id': '1'}
    write_jsonl(tmp_path / f'{name}.jsonl', [row])
  command = '--checkpoint', run, '--output=out.jsonl'
  for name in 'ab':
    assert call(*command, f'{name}.jsonl')[0] == 0
  rows = read_jsonl(tmp_path / 'out.jsonl')
  assert [row['source'] for row in rows] == ['a.jsonl', 'b.jsonl']
  assert {row['id'] for row in rows} == {'1'}


def test_a_full_disk_error_names_the_file(run, call, thesis, monkeypatch):
  def fail(*_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, 'fsync', fail)
  result = call('--checkpoint', run, '--output=o.txt', thesis)
  assert result[0] == 2
  line = result[2].splitlines()[-1]
  assert line.startswith('error: o.txt.partial: No space left on device')


# --- Output that cannot be written -------------------------------------------


def test_a_closed_stdout(call, thesis, monkeypatch):
  monkeypatch.setattr(sys, 'stdout', None)
  status, _, err = call('--checkpoint=x', thesis)
  assert status == 2 and err.count('\n') == 1
  assert 'standard output is closed' in err and '--output=FILE' in err


def test_a_full_stdout(run, call, thesis, monkeypatch):
  full = open('/dev/full', 'w')
  monkeypatch.setattr(sys, 'stdout', full)
  status, _, err = call('--checkpoint', run, thesis)
  assert status == 2
  line = err.splitlines()[-1]
  assert line == 'error: standard output: No space left on device'
  with pytest.raises(OSError):
    full.close()


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_weights_that_are_not_finite(run, call, thesis, monkeypatch, value):
  load_params = checkpoint.load_params
  monkeypatch.setattr(
      checkpoint,
      'load_params',
      lambda *arguments: jax.tree.map(
          lambda leaf: leaf * value, load_params(*arguments)
      ),
  )
  expect_refused(call('--checkpoint', run, thesis), 'is not a finite number')


def test_json_on_a_stdout_with_ascii_encoding(run, call, thesis, monkeypatch):
  monkeypatch.setattr(
      byte_vocabulary.ByteVocabulary,
      'decode',
      lambda self, ids: 'caf\xe9\n  au',
  )
  with open('out', 'w', encoding='ascii') as stdout:
    monkeypatch.setattr(sys, 'stdout', stdout)
    status, _, err = call('--checkpoint', run, thesis, '--format=json')
    monkeypatch.undo()
  assert status == 0, err
  (row,) = read_jsonl(thesis.parent / 'out')
  assert row['prediction'] == 'caf\xe9\n  au'
  assert summary_form.text_line(row) == 'caf\xe9 au (cut at 6 tokens)'


def test_names_with_escape_codes(run, call, thesis):
  name = 'a\n\x1b[31m\u202e.txt'
  Path(name).write_text('Read.')
  Path('b' + name).write_text('')
  status, out, err = call('--checkpoint', run, name, 'b' + name)
  assert status == 2 and len(out.splitlines()) == 2
  assert '\x1b' not in out + err and '\u202e' not in out + err
  shown = 'a\\n\\x1b[31m\\u202e.txt'
  assert out.splitlines()[1] == f'b{shown}: (left out: an empty document)'
  assert f'error: b{shown}: an empty document' in err.splitlines()
  assert any(f'1/1  {shown}: 6 tokens read' in x for x in err.splitlines())
