"""Tokenised records on disk: random access, written atomically.

A cache is a directory:

  records.array_record   one msgpack map per record: id (str), inputs and
                         targets (bytes of little-endian integers, eos
                         included), reference (str, the whole target text);
                         where there are, references (list of str, all that
                         count as right) and pages (list of int: the length
                         of each page; inputs are the pages in order)
  lengths.npy            int32 [n, 2]: tokens of inputs and of targets
  shapes.npy             int32 [n, 3], where inputs are pages: pages, tokens of
                         the longest page, tokens of targets
  key.json               everything that made the records
  stats.json             records, tokens, the integer type, bytes, notes of
                         the writer (documents skipped, the corpus's checksum)
  checksums.json         of all these files: data/checksums.py

It is written under a temporary name in the same directory, flushed to the disk and
renamed, so a directory with its final name is complete: a build that is killed
leaves only `NAME.partial`, which the next build removes. Builders of the same
cache (the hosts of a run share a file system) exclude each other by a lock on
`NAME.lock`, which the operating system drops when its holder dies.

Reading needs neither TensorFlow nor SeqIO.
"""

import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import threading

import msgpack
import numpy as np

from locost_jax import files
from locost_jax import untrusted
from locost_jax.data import checksums
from locost_jax.errors import InputError

RECORDS, LENGTHS = 'records.array_record', 'lengths.npy'
SHAPES = 'shapes.npy'
KEY, STATS = 'key.json', 'stats.json'
FILES = RECORDS, LENGTHS, SHAPES, KEY, STATS
_MOST_KEY_BYTES = 1 << 30  # key.json lists every file of the corpus
_COUNT = untrusted.integer(0, 10**15)
_STATS_KINDS = {
    'records': _COUNT,
    'input_tokens': _COUNT,
    'target_tokens': _COUNT,
    'bytes': _COUNT,
    'dtype': untrusted.one_of('<u2', '<i4'),
}


class Cache:
  """The records of one split (or of one shard of it).

  `len(cache)` is their number, `cache[i]` a dict of id (str), inputs and
  targets (int32 [length], eos included) and reference (str), perhaps references
  and pages (see above), `cache.lengths` int32 [n, 2], `cache.shapes` what a
  batch is padded to: the same, or int32 [n, 3] where inputs are pages.
  `cache.stats` is what was counted when the cache was made. Safe to read from
  several threads.
  """

  def __init__(self, path, verify=True):
    """Opens a complete cache.

    Args:
      path: its directory.
      verify: whether to compare the records with their checksum, in the
        background: a later read raises if they are damaged.

    Raises:
      InputError: a file is not what was written.
    """
    # Imported here: array_record belongs to the `train` extra.
    from array_record.python import array_record_module

    self.path = pathlib.Path(path)
    known = checksums.read(self.path, FILES)
    for name in known.keys() - {RECORDS}:
      checksums.check(self.path, name, known)
    self.stats = _read_stats(self.path)
    self.lengths = _load(self.path, LENGTHS, self.stats, 2)
    self.shapes = self.lengths
    if (self.path / SHAPES).exists():
      self.shapes = _load(self.path, SHAPES, self.stats, 3)
    with checksums.open_file(self.path, RECORDS):
      self._reader = self._trying(
          array_record_module.ArrayRecordReader, str(self.path / RECORDS)
      )
    self._lock = threading.Lock()
    self._check = None
    if verify and RECORDS in known:
      self._check = checksums.Background(self.path, RECORDS, known)

  def __len__(self):
    return len(self.lengths)

  def __getitem__(self, index):
    if not 0 <= index < len(self):
      raise IndexError(f'record {index} of {len(self)} in {self.path}')
    return self.read([index])[0]

  def read(self, indices):
    """The records with these indices, as a list of dicts in their order."""
    return [self._unpack(row) for row in self.read_packed(indices)]

  def read_packed(self, indices):
    """The same as bytes, as they lie in the file."""
    if self._check is not None and self._check.error is not None:
      raise self._check.error
    with self._lock:
      return self._trying(self._reader.read, [int(i) for i in indices])

  def wait_until_checked(self):
    """Returns when the records are compared with their checksum.

    Raises:
      InputError: they are not what was written.
    """
    if self._check is not None:
      self._check.wait()
      if self._check.error is not None:
        raise self._check.error

  def _trying(self, read, argument):
    """Calls what reads the records; any failure of it is their damage."""
    try:
      return read(argument)
    except Exception as error:  # of which kind, the reader does not promise
      reason = str(error).strip().split('\n')[0]
      raise checksums.damaged(
          self.path, f'{self.path / RECORDS}: cannot be read: {reason}'
      ) from error

  # What data/pipeline.py asks of a training set: here all is one window.
  windows = 1

  def total(self):
    """Records in an epoch."""
    return len(self)

  def sizes(self, epoch, index):
    """The records of each part of a window."""
    del epoch, index
    return [len(self)]

  def window(self, epoch, index):
    """The parts of a window, as caches."""
    del epoch, index
    return [self]

  def _unpack(self, row):
    record = self._trying(msgpack.unpackb, row)
    for name in 'inputs', 'targets':
      ids = np.frombuffer(record[name], self.stats['dtype'])
      record[name] = ids.astype(np.int32)
    return record


def _read_stats(path):
  """Returns stats.json; InputError: it is not what a cache has."""
  try:
    stats = untrusted.read_object(path / STATS)
    for key, kind in _STATS_KINDS.items():
      untrusted.check(path / STATS, key, stats.get(key), kind)
    return stats
  except FileNotFoundError:
    raise checksums.damaged(path, f'{path / STATS}: is missing') from None
  except InputError as error:
    raise checksums.damaged(path, error) from None


def _load(path, name, stats, columns):
  """Returns an array of a cache; InputError: it does not fit its stats."""
  path = pathlib.Path(path)
  expected = stats['records'], columns
  try:
    with checksums.open_file(path, name) as file:
      array = np.load(file)
  except InputError:
    raise
  except (OSError, EOFError, ValueError) as error:
    reason = str(error).split('\n')[0]
    raise checksums.damaged(path, f'{path / name}: {reason}') from None
  if array.dtype != np.int32 or array.shape != expected:
    raise checksums.damaged(
        path,
        f'{path / name}: {array.dtype}{list(array.shape)}; expected '
        f'int32{list(expected)}',
    )
  tokens = [stats['input_tokens'], stats['target_tokens']]
  if columns == 2 and array.sum(axis=0, dtype=np.int64).tolist() != tokens:
    raise checksums.damaged(
        path, f'{path / name}: its sums are not the tokens of {STATS}'
    )
  return array


def dump_key(key):
  """Returns the contents of key.json."""
  return json.dumps(key, indent=2, sort_keys=True)


def is_complete(path, key):
  """Whether `path` holds a whole cache that `key` made."""
  path = pathlib.Path(path)
  try:
    stats = untrusted.read_object(path / STATS)
    return (
        untrusted.read_object(path / KEY, _MOST_KEY_BYTES) == key
        and (path / RECORDS).stat().st_size == stats['bytes']
        and (path / SHAPES).exists() == stats['paged']
        and len(np.load(path / LENGTHS, mmap_mode='r')) == stats['records']
    )
  except (OSError, EOFError, ValueError, KeyError):
    return False


@contextlib.contextmanager
def locked(path, wait=True):
  """Holds the lock of the cache `path` against other builders of it.

  Args:
    path: the cache's directory, which need not exist.
    wait: whether to wait for another holder.

  Yields:
    True, or False when another process holds the lock and `wait` is False.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  with open(f'{path}.lock', 'w') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
      yield False
    else:
      yield True


def write(path, key, records, vocabulary_size, notes=dict):
  """Writes a cache; call it with the lock of `path` held.

  Args:
    path: directory of the cache; anything there is replaced.
    key: JSON object, everything that makes the records.
    records: iterable of dicts as `Cache` gives them.
    vocabulary_size: ids are smaller; below 2^16 they take two bytes each.
    notes: called at the end; gives a dict that is kept with the stats.

  Returns:
    The stats: dict of records, input_tokens, target_tokens, dtype, paged,
    bytes, and the notes.
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
  """Writes a cache of the records of others, one cache after the other.

  Args:
    path: directory of the cache; anything there is replaced.
    key: JSON object, everything that makes the records.
    parts: directories of complete caches of one vocabulary, at least one.
    limit: the number of records; 0: all.
    notes: see `write`.

  Returns:
    The stats, see `write`.
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

  dtype = _read_stats(pathlib.Path(parts[0]))['dtype']
  return _write(
      path, key, itertools.islice(packed(), limit or None), dtype, notes
  )


def _write(path, key, packed, dtype, notes):
  """`write` of (bytes, (input, target) lengths, shape) of each record."""
  from array_record.python import array_record_module

  path = pathlib.Path(path)
  partial = pathlib.Path(f'{path}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    lengths, shapes = [], []
    # One record per chunk: what random access asks for.
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
    checksums.write(partial)
    for file in partial.iterdir():
      files.sync(file)
    files.sync(partial)
    shutil.rmtree(path, ignore_errors=True)
    os.rename(partial, path)
    files.sync(path.parent)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise
  return stats
