"""Tokenised records on disk: random access, written atomically.

A cache is a directory:

  records.array_record   one msgpack map per record: id (str), inputs and
                         targets (bytes of little-endian integers, eos
                         included), reference (str, the whole target text);
                         optionally references (list of str, all correct
                         ones) and pages (list of int, the length of each
                         page; inputs are the concatenated pages)
  lengths.npy            int32 [n, 2]: tokens of inputs and of targets
  shapes.npy             only if inputs are pages, int32 [n, 3]: pages, tokens
                         of the longest page, tokens of targets
  key.json               everything that determines the records
  stats.json             records, tokens, the integer type, bytes, notes of
                         the writer (documents skipped)
  manifest.json          checksums of all these files (workdir/manifest.py).
                         Older caches have checksums.json, one checksum a file,
                         or nothing: these are not verified

A cache is written to `NAME.partial` in the same parent directory, flushed to
disk and renamed, so a directory with its final name is complete. A killed build
leaves only `NAME.partial`, which the next build removes. A lock on `NAME.lock`
keeps two processes (hosts of a run share a file system) from building the same
cache; the operating system releases it when its holder dies.

Reading needs neither TensorFlow nor SeqIO.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import threading

import msgpack
import numpy as np

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.errors import InputError
from locost_jax.workdir import manifest

RECORDS, LENGTHS = 'records.array_record', 'lengths.npy'
SHAPES = 'shapes.npy'
KEY, STATS = 'key.json', 'stats.json'
_OLD_CHECKSUMS = 'checksums.json'
FILES = RECORDS, LENGTHS, SHAPES, KEY, STATS
_MOST_KEY_BYTES = 1 << 30  # key.json lists every file of the corpus
_COUNT = kinds.integer(0, 10**15)
_STATS_KINDS = {
    'records': _COUNT,
    'input_tokens': _COUNT,
    'target_tokens': _COUNT,
    'bytes': _COUNT,
    'dtype': kinds.choice('<u2', '<i4'),
}


class TrainingSet:
  """A training set of one part for data/pipeline.py: one window an epoch."""

  windows = 1

  def total(self):
    """Returns the number of records in an epoch."""
    return len(self)

  def sizes(self, epoch, index):
    """Returns the number of records of each part of a window."""
    return [len(part) for part in self.window(epoch, index)]

  def window(self, epoch, index):
    """Returns the parts of a window, as caches."""
    del epoch, index
    return [self]


class Cache(TrainingSet):
  """The records of one split (or of one shard of it).

  `len(cache)` is the number of records. `cache[i]` is a dict of id (str),
  inputs and targets (int32 [length], eos included), reference (str) and
  optionally references and pages (see the top of this module). Several threads
  may read.

  Attributes:
    lengths: int32 [n, 2], tokens of inputs and of targets.
    shapes: the shapes that batches are padded to: `lengths`, or int32 [n, 3] if
      inputs are pages.
  """

  def __init__(self, path, verify=True):
    """Opens a complete cache.

    Args:
      verify: whether to verify the checksum of the records in the background.
        If they are damaged, a later read raises an InputError.
    """
    # It belongs to the `train` extra.
    from array_record.python import array_record_module

    self.path = pathlib.Path(path)
    known = _read_checksums(self.path)
    for name in known.keys() - {RECORDS}:
      _verify(self.path, name, known[name])
    self.stats = read_stats(self.path)
    self.lengths = _load(self.path, LENGTHS, self.stats, 2)
    self.shapes = self.lengths
    if (self.path / SHAPES).exists():
      self.shapes = _load(self.path, SHAPES, self.stats, 3)
    with _damage(self.path, RECORDS) as file:
      files.open_regular(file).close()
      self._reader = array_record_module.ArrayRecordReader(str(file))
    self._lock = threading.Lock()
    self._error = self._check = None
    if verify and RECORDS in known:

      def check():
        try:
          _verify(self.path, RECORDS, known[RECORDS])
        except InputError as error:
          self._error = error

      self._check = threading.Thread(target=check, daemon=True)
      self._check.start()

  def __len__(self):
    return len(self.lengths)

  def __getitem__(self, index):
    if not 0 <= index < len(self):
      raise IndexError(f'record {index} of {len(self)} in {self.path}')
    return self.read([index])[0]

  def read(self, indices):
    """Returns the records with these indices as a list of dicts, in order."""
    return [self._unpack(row) for row in self.read_packed(indices)]

  def read_packed(self, indices):
    """Returns the records with these indices as msgpack bytes."""
    if self._error is not None:
      raise self._error
    with self._lock, _damage(self.path, RECORDS):
      return self._reader.read([int(i) for i in indices])

  def _unpack(self, row):
    with _damage(self.path, RECORDS):
      record = msgpack.unpackb(row)
    for name in 'inputs', 'targets':
      ids = np.frombuffer(record[name], self.stats['dtype'])
      record[name] = ids.astype(np.int32)
    return record


def read_stats(path):
  """Returns the contents of stats.json; InputError: it is invalid."""
  with _damage(path, STATS) as file:
    stats = files.read_object(file)
    for key, kind in _STATS_KINDS.items():
      files.check_value(file, key, stats.get(key), kind)
    return stats


def _load(path, name, stats, columns):
  """Returns an array of a cache; InputError: it contradicts stats.json."""
  expected = stats['records'], columns
  with _damage(path, name) as file:
    with files.open_regular(file) as opened:
      array = np.load(opened)
    if array.dtype != np.int32 or array.shape != expected:
      raise ValueError(
          f'{array.dtype}{list(array.shape)}; expected int32{list(expected)}'
      )
    tokens = [stats['input_tokens'], stats['target_tokens']]
    if columns == 2 and array.sum(axis=0, dtype=np.int64).tolist() != tokens:
      raise ValueError(f'its sums differ from the tokens in {STATS}')
  return array


@contextlib.contextmanager
def _damage(directory, name):
  """Yields a file's path; any error becomes the InputError of its damage."""
  path = directory / name
  try:
    yield path
  except Exception as error:  # array_record documents no types
    reason = getattr(error, 'strerror', None) or str(error).strip()
    reason = reason.split('\n')[0]
    if not isinstance(error, InputError):
      reason = f'{path}: {reason}'
    raise InputError(
        f'{reason}; remove {directory} to have it made again'
    ) from error


def dump_key(key):
  """Returns the contents of key.json."""
  return json.dumps(key, indent=2, sort_keys=True)


def find_keys(directory, pattern='*'):
  """Yields (path, key) of the caches in a directory; passes over the rest."""
  for path in sorted(pathlib.Path(directory).glob(pattern)):
    with contextlib.suppress(OSError, ValueError):
      key = files.read_object(path / KEY, _MOST_KEY_BYTES)
      if not path.suffix:
        yield path, key


def is_complete(path, key):
  """Whether `path` is a complete cache with this key."""
  path = pathlib.Path(path)
  try:
    stats = files.read_object(path / STATS)
    return (
        files.read_object(path / KEY, _MOST_KEY_BYTES) == key
        and (path / RECORDS).stat().st_size == stats['bytes']
        and (path / SHAPES).exists() == stats['paged']
        and len(np.load(path / LENGTHS, mmap_mode='r')) == stats['records']
    )
  except (OSError, EOFError, ValueError, KeyError):
    return False


def check_whole(path, key):
  """Raises an InputError unless the copy of a cache in a bucket is complete.

  ArrayRecord takes a missing or a truncated file for one without records.
  """
  if not is_complete(path, key):
    raise InputError(
        f'{path}: is missing, or differs from its {STATS} and {KEY}: expected a '
        'whole cache, made by `python -m locost_jax.data.cache` with the same '
        '--config and copied there'
    )


@contextlib.contextmanager
def locked(path, wait=True):
  """Holds the lock of a cache, so that no other process builds it.

  Yields whether it holds the lock, which may be False without `wait`.
  """
  try:
    file = files.open_locked(f'{path}.lock', wait, parents=True)
  except BlockingIOError:
    yield False
  else:
    with file:
      yield True


def write(path, key, records, vocabulary_size, notes=dict):
  """Writes a cache, whose lock the caller holds; returns its stats.

  Args:
    path: anything there is replaced.
    key: JSON object of everything that determines the records.
    records: iterable of dicts as in `Cache`.
    vocabulary_size: up to 2^16, an id takes two bytes.
    notes: function () -> dict to add to the stats; called at the end.
  """
  dtype = '<u2' if vocabulary_size <= 2**16 else '<i4'

  def pack():
    for record in records:
      packed = {
          name: record[name]
          for name in ('id', 'reference', 'references', 'pages')
          if record.get(name)
      }
      packed = {'id': '', 'reference': '', **packed}
      for name in 'inputs', 'targets':
        packed[name] = np.asarray(record[name], dtype).tobytes()
      lengths = len(record['inputs']), len(record['targets'])
      pages = record.get('pages')
      yield (
          msgpack.packb(packed),
          lengths,
          lengths if pages is None else (len(pages), max(pages), lengths[1]),
      )

  return _write(path, key, pack(), dtype, notes)


def join(path, key, parts, limit=0, notes=dict):
  """Writes a cache that concatenates the records of others; see `write`.

  Args:
    parts: directories of complete caches of one vocabulary, at least one.
    limit: maximum records; 0: all.
  """

  def packed():
    for part in parts:
      cache = Cache(part, verify=False)
      for start in range(0, len(cache), 256):
        indices = range(start, min(start + 256, len(cache)))
        yield from zip(
            cache.read_packed(indices),
            cache.lengths[start : start + 256].tolist(),
            cache.shapes[start : start + 256].tolist(),
        )

  dtype = read_stats(pathlib.Path(parts[0]))['dtype']
  return _write(
      path, key, itertools.islice(packed(), limit or None), dtype, notes
  )


def _write(path, key, packed, dtype, notes):
  """Writes records given as (bytes, (input, target) lengths, shape)."""
  from array_record.python import array_record_module

  path = pathlib.Path(path)
  partial = pathlib.Path(f'{path}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    lengths, shapes = [], []
    # One record per chunk, for random access.
    writer = array_record_module.ArrayRecordWriter(
        str(partial / RECORDS), 'group_size:1,zstd:1'
    )
    try:
      for data, length, shape in packed:
        writer.write(data)
        lengths.append(length)
        shapes.append(shape)
    finally:
      writer.close()
    lengths = np.asarray(lengths, np.int32).reshape(-1, 2)
    tokens = lengths.sum(axis=0, dtype=np.int64)
    stats = dict(
        records=len(lengths),
        input_tokens=int(tokens[0]),
        target_tokens=int(tokens[1]),
        dtype=dtype,
        paged=bool(shapes) and len(shapes[0]) > 2,
        bytes=(partial / RECORDS).stat().st_size,
        **notes(),
    )
    np.save(partial / LENGTHS, lengths)
    if stats['paged']:
      np.save(partial / SHAPES, np.asarray(shapes, np.int32))
    (partial / KEY).write_text(dump_key(key))
    (partial / STATS).write_text(json.dumps(stats, indent=2))
    manifest.write(partial, sorted(os.listdir(partial)))
    shutil.rmtree(path, ignore_errors=True)
    os.rename(partial, path)
    files.sync(path.parent)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise
  return stats


def _read_checksums(directory):
  """Returns {name: ['BYTES SHA-256']} of a cache; {} if it has no checksums."""
  for name in manifest.FILE, _OLD_CHECKSUMS:
    with _damage(directory, name) as path:
      if os.path.lexists(path):
        return manifest.read(directory, FILES, name)
  return {}


def _verify(directory, name, checksums):
  """Raises an InputError if a file of a cache differs from its checksums."""
  with _damage(directory, name) as path:
    with files.open_regular(path) as file:
      if files.describe(file) not in checksums:
        raise ValueError('has other contents than were written')
