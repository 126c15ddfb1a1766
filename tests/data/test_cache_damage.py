"""Damaged token caches give a one-line error, never wrong records."""

import json
import os

import pytest

from locost_jax.data import records
from locost_jax.errors import InputError
from locost_jax.workdir import manifest
from tests.deadline import within

FILES = records.LENGTHS, records.STATS, records.KEY, records.RECORDS
ROWS = [
    dict(
        id=f'row {i}',
        inputs=list(range(3, 9 + i)),
        targets=[7, 1],
        reference=f'some text {i}' * 20,
    )
    for i in range(50)
]


@pytest.fixture
def path(tmp_path):
  records.write(tmp_path / 'cache', dict(made='so'), ROWS, 300)
  return tmp_path / 'cache'


def flip(file, at=None):
  data = bytearray(file.read_bytes())
  data[len(data) // 2 if at is None else at] ^= 1
  file.write_bytes(data)


def read_all(path):
  cache = records.Cache(path)
  rows = [cache[i] for i in range(len(cache))]
  if cache._check is not None:
    cache._check.join()
    cache[0]  # raises what the check found
  return cache, rows


def test_a_whole_cache_is_read(path):
  known = json.loads((path / manifest.FILE).read_text())
  assert sorted(known) == sorted(FILES)
  _, rows = read_all(path)
  assert [row['id'] for row in rows] == [row['id'] for row in ROWS]


@pytest.mark.parametrize('name', [*FILES, manifest.FILE])
@pytest.mark.parametrize(
    'spoil',
    [
        flip,
        lambda file: os.truncate(file, file.stat().st_size // 2),
        lambda file: os.truncate(file, 0),
        lambda file: file.write_bytes(b'[' * 100_000),
        os.unlink,
        lambda file: (os.unlink(file), os.mkfifo(file)),
    ],
    ids=['flip', 'cut', 'empty', 'deep', 'missing', 'pipe'],
)
def test_damage_is_one_line(path, name, spoil):
  spoil(path / name)
  if name == manifest.FILE and not (path / name).exists():
    read_all(path)  # like caches of older versions
    return
  with pytest.raises(InputError) as error, within():
    read_all(path)
  line = str(error.value)
  # A flipped bit in a checksum looks like damage to its file.
  assert line.startswith(f'{path}/') and '\n' not in line
  assert line.startswith(f'{path / name}: ') or name == manifest.FILE
  assert line.endswith(f'; remove {path} to have it made again')


def test_each_flipped_bit_of_the_records_is_found(path):
  """Found by the reader or the checksum; no wrong row is returned."""
  size = (path / records.RECORDS).stat().st_size
  for at in range(0, size, max(1, size // 60)):
    flip(path / records.RECORDS, at)
    with pytest.raises(InputError), within():
      read_all(path)
    flip(path / records.RECORDS, at)
  read_all(path)


def test_damage_found_in_the_background_ends_the_next_read(path):
  read_all(path)
  flip(path / records.RECORDS)
  cache = records.Cache(path)
  cache._check.join()
  with pytest.raises(InputError, match='has other contents'):
    cache.read_packed([0])


@pytest.mark.parametrize(
    'change, words',
    [
        (dict(dtype='<f8'), "dtype=\"<f8\": expected one of '<u2', '<i4'"),
        (dict(records=-1), 'records=-1: expected an integer'),
        (dict(records='9'), 'records="9": expected an integer'),
        (dict(input_tokens=1), 'its sums differ from the tokens'),
        (dict(records=49), 'expected int32[49, 2]'),
    ],
)
def test_caches_without_checksums_are_checked(path, change, words):
  (path / manifest.FILE).unlink()
  read_all(path)
  stats = json.loads((path / records.STATS).read_text())
  (path / records.STATS).write_text(json.dumps(stats | change))
  with pytest.raises(InputError) as error:
    read_all(path)
  assert words in str(error.value) and '; remove ' in str(error.value)


@pytest.mark.parametrize('flipped', [None, *FILES])
def test_old_checksums_are_read(path, flipped):
  """Older versions wrote one checksum a file, not a list."""
  known = json.loads((path / manifest.FILE).read_text())
  (path / manifest.FILE).unlink()
  (path / 'checksums.json').write_text(
      json.dumps({name: checksum for name, (checksum,) in known.items()})
  )
  read_all(path)
  if flipped:
    flip(path / flipped)
    with pytest.raises(InputError, match=f'{flipped}: .*; remove '):
      read_all(path)
