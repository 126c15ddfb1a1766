"""Untrusted files: which contents are accepted or refused."""

import json
import os

import pytest

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.errors import InputError
from tests.deadline import within


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


@pytest.mark.parametrize(
    'make, words',
    [
        (os.mkfifo, 'is a named pipe, expected a regular file'),
        (os.mkdir, 'is a directory, expected a regular file'),
        (lambda path: os.symlink('/dev/zero', path), 'is a device, expected'),
    ],
)
def test_only_regular_files_are_opened(tmp_path, make, words):
  path = tmp_path / 'file'
  make(path)
  with pytest.raises(InputError, match=words), within():
    files.read_bytes(path)


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
        (kinds.TEXT, ['', 'a'], [1, None, []], 'a string'),
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
