"""Files are written whole, and continued after a kill."""

import os

import pytest

from locost_jax import files
from locost_jax.errors import InputError


@pytest.mark.parametrize(
    'content,expected',
    (
        ('a\nb\r\né\n', b'a\nb\r\n\xc3\xa9\n'),
        (b'\x00\xff\r\n', b'\x00\xff\r\n'),
        ('', b''),
    ),
)
def test_text_and_bytes_are_written_unchanged(tmp_path, content, expected):
  longest = 'x' * 255  # bytes that a name may have
  path = tmp_path / 'new' / longest
  files.write(path, content)
  assert path.read_bytes() == expected
  assert os.listdir(path.parent) == [longest]


@pytest.mark.parametrize('fails', ('fsync', 'replace'))
def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch, fails):
  path = tmp_path / 'file'
  files.write(path, 'old')
  seen = []

  def fail(*arguments):
    seen.append(sorted(os.listdir(tmp_path)))
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, fails, fail)
  with pytest.raises(OSError, match='No space') as error:
    files.write(path, b'new')
  assert error.value.filename == str(path)
  assert seen == [['file', f'file.tmp{os.getpid()}']]
  assert os.listdir(tmp_path) == ['file']
  assert path.read_text() == 'old'


def test_permissions_are_those_of_any_new_file(tmp_path):
  (tmp_path / 'plain').write_text('')
  files.write(tmp_path / 'whole', b'')
  modes = [os.stat(tmp_path / name).st_mode for name in ('plain', 'whole')]
  assert modes[0] == modes[1]


@pytest.mark.parametrize('kind', ('pipe', 'directory', 'device'))
def test_only_regular_files_are_replaced(tmp_path, kind):
  path = tmp_path / 'file'
  if kind == 'pipe':
    os.mkfifo(path)
  elif kind == 'directory':
    path.mkdir()
  else:
    path.symlink_to('/dev/null')
  before = os.lstat(path)
  with pytest.raises(InputError, match=f'file: is a .*{kind}, expected a reg'):
    files.write(path, b'new')
  assert os.lstat(path) == before and os.listdir(tmp_path) == ['file']


def test_a_journal_continues_after_its_last_complete_line(tmp_path):
  path = tmp_path / 'file'
  open_ = lambda header: files.Journal(open(path, 'a+b', buffering=0), header)
  for header, lines in (
      ({'a': 1}, []),
      ({'a': 1}, [b'{"n": 0}', b'{"n": 1}']),
      ({'a': 1}, [b'{"n": 0}', b'{"n": 0}', b'{"n": 1}']),
      ({'a': 2}, []),
      (None, [b'{"a": 2}', b'{"n": 0}', b'{"n": 1}']),
  ):
    journal = open_(header)
    assert journal.lines == lines
    journal.keep(1 if len(lines) == 2 else None)
    for n in range(2):
      journal.add({'n': n})
    journal.write(b'{"n": ')  # killed
    journal.close()
  journal = open_(None)
  assert (len(journal.lines), journal.torn) == (5, b'{"n": ')
