"""Files: written whole, continued after a kill, and read if nobody trusts them."""

import json
import os

import pytest

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.errors import InputError
from tests.deadline import within


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


@pytest.mark.parametrize(
    'make, kind',
    [
        (os.mkfifo, 'a named pipe'),
        (os.mkdir, 'a directory'),
        (lambda path: os.symlink('/dev/zero', path), 'a device'),
    ],
)
def test_only_regular_files_are_read_and_replaced(tmp_path, make, kind):
  path = tmp_path / 'file'
  make(path)
  before = os.lstat(path)
  for use in files.read_bytes, lambda path: files.write(path, b'new'):
    message = f'file: is {kind}, expected a regular file'
    with pytest.raises(InputError, match=message), within():
      use(path)
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


@pytest.mark.parametrize(
    'data, words',
    [
        (b'', 'not JSON: Expecting value'),
        (b'{"a": 1', 'not JSON: '),
        (b'\xff\xfe{', 'not JSON: '),
        (b'[1, 2]', 'not a JSON object: [1, 2]'),
        (b'3', 'not a JSON object: 3'),
        (b'{"a": ' * 100_000, 'nested too deep'),
        (b'{"a": ' * 17 + b'1' + b'}' * 17, 'nested too deep; expected at m'),
        (b'{"a": ' + b'9' * 5000 + b'}', 'not JSON: '),
        (b' ' * (1 << 22) + b'{}', 'has 4,194,306 bytes; expected at most'),
    ],
)
def test_data_other_than_an_object_is_one_line(tmp_path, data, words):
  path = tmp_path / 'config.json'
  path.write_bytes(data)
  with pytest.raises(InputError) as error, within():
    files.read_object(path)
  line = str(error.value)
  assert line.startswith(f'{path}: ') and words in line and '\n' not in line
  assert len(line) < len(str(path)) + 200


def test_objects_at_the_limits_are_read(tmp_path):
  path = tmp_path / 'config.json'
  path.write_bytes(b'{"a": ' * 16 + b'NaN' + b'}' * 16)
  (value,) = json.loads(path.read_bytes()).items()
  assert files.read_object(path).keys() == {value[0]}
  with pytest.raises(FileNotFoundError):
    files.read_object(tmp_path / 'none')


def test_a_small_file_needs_little_memory_whatever_the_limit(tmp_path):
  path = tmp_path / 'file'
  path.write_bytes(b'abc')
  assert files.read_bytes(path, 1 << 50) == b'abc'
  assert files.read_bytes(path, 3) == b'abc'
  with pytest.raises(InputError, match='has 3 bytes; expected at most 2'):
    files.read_bytes(path, 2)


def test_links_are_followed_only_on_request(tmp_path):
  (tmp_path / 'blob').write_bytes(b'1')
  os.symlink('blob', tmp_path / 'link')
  assert files.read_bytes(tmp_path / 'link') == b'1'
  with pytest.raises(InputError, match='is a link, expected a regular file'):
    files.open_regular(tmp_path / 'link', follow=False)


@pytest.mark.parametrize(
    'kind, good, bad, words',
    [
        (
            kinds.integer(1, 1000),
            [1, 1000],
            [0, 1001, True, 1.0, '1', None, [1]],
            'an integer, 1 <= key <= 1,000',
        ),
        (
            kinds.number(0, 1),
            [0, 0.5, 1],
            [-0.1, float('nan'), float('inf'), 10**400, True, '0'],
            '0 <= key <= 1',
        ),
        (kinds.BOOLEAN, [True], [1, 'true', None], 'True or False'),
        (kinds.TEXT, ['', 'a'], [1, None, [], '\ud800'], 'a string without .*'),
        (kinds.choice('a', 1), ['a', 1], ['b', True], "one of 'a', 1"),
    ],
)
def test_kinds(kind, good, bad, words):
  for value in good:
    files.check_value('f', 'key', value, kind)
  for value in bad:
    with pytest.raises(InputError, match=f'^f: key=.*: expected {words}$'):
      files.check_value('f', 'key', value, kind)


def test_values_and_names_are_shown_on_one_line():
  shown = files.show_value('x\n' * 100)
  assert len(shown) == 60 and shown.endswith('...') and '\n' not in shown
  assert files.visible('a\x1b[2J\nb\u202ec é') == (r'a\x1b[2J\nb\u202ec é')
