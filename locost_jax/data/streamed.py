"""A corpus that is tokenised shard by shard while training runs.

Every shard is a cache of its own in `DIRECTORY/SHARD/`. Background processes
tokenise the shards in the order in which the first epoch reads them. Training
starts when the first window of `config.data.window_shards` shards is complete,
and waits for a later window when it reaches it (data/order.py). The shards that
exist already shorten the wait; they do not change the order. The processes end
with their parent, even if it is killed, and a resumed run tokenises the rest. A
shard of C4 (1/1024) has 356K documents.

Finished shards in a bucket (config.data.cache_dir) are copied window by window.
"""

import dataclasses
import functools
import json
import os
import time

from locost_jax.config import object_store
from locost_jax.config.progress import Progress
from locost_jax.data import blocks
from locost_jax.data import order
from locost_jax.data import records
from locost_jax.data import workers
from locost_jax.devices import watchdog
from locost_jax.errors import InputError


class _Shards:
  """A training split of several shards, each with a cache of its own.

  data/pipeline.py reads it window by window. `window(0, 0)`, the caches of the
  first window, represents the corpus where a part of it is enough.
  """

  def __init__(self, data, shards, path):
    self._path, self._shards = path, shards
    self._size, self._seed = data.window_shards, data.seed
    self.windows = -(-shards // self._size)
    self.window = functools.lru_cache(maxsize=2)(self._open)
    self._records = {}  # shard -> its number of records

  def total(self):
    """Returns the number of records in an epoch; None if shards are missing."""
    is_whole = all(map(self._is_there, range(self._shards)))
    return sum(self._records.values()) if is_whole else None

  def sizes(self, epoch, index):
    """Returns the number of records of each shard of a window; may wait."""
    return [self._records[s] for s in self._find_window(epoch, index)]

  def close(self):
    """Ends the processes that work for it, if there are any."""

  def wait(self, shards=None):
    """Waits until shards exist (None: all)."""

  def _is_there(self, shard):
    return shard in self._records

  def _find_window(self, epoch, index):
    """Returns the numbers of the shards of a window, which exist then."""
    shards = order.window_shards(
        self._shards, self._size, self._seed, epoch, index
    )
    self.wait(shards)
    return shards


class BucketCache(_Shards):
  """A training split whose shards are in a bucket.

  A window is copied when it is needed. The copies of earlier ones stay until
  they all have more than config.data.bucket_disk GiB; the last two always stay.
  """

  def __init__(self, config, shards, path):
    """Reads the sizes of all shards, and copies nothing else.

    Args:
      path: with the stats.json of every shard.

    Raises:
      InputError: a shard is missing, or two windows are larger than the disk.
    """
    data = config.data
    super().__init__(data, shards, path)
    self._uri, self._disk = f'{data.cache_dir}/{path.name}', data.bucket_disk
    self._bytes, self._copies = {}, {}  # shard -> of its records; its copy
    for shard in range(shards):
      stats = records.read_stats(shard_path(path, shard))
      self._records[shard] = stats['records']
      self._bytes[shard] = stats['bytes']
    most = sum(sorted(self._bytes.values())[-2 * self._size :])
    if most > self._disk * object_store.GIB:
      raise InputError(
          f'{self._uri}: two windows of config.data.window_shards={self._size} '
          f'shards have up to {most / object_store.GIB:,.4g} GiB; expected at '
          f'most config.data.bucket_disk={self._disk:g}'
      )

  def _open(self, epoch, index):
    """Returns the caches of the shards of a window, copying what is missing."""
    shards = self._find_window(epoch, index)
    kept = [*self._copies][-self._size :] + shards  # the last two windows
    needed = sum(self._bytes[s] for s in {*self._copies, *shards})
    for shard in [s for s in self._copies if s not in kept]:
      if needed > self._disk * object_store.GIB:
        object_store.remove_copy(self._copies.pop(shard))
        needed -= self._bytes[shard]
    for shard in shards:
      uri, key = f'{self._uri}/{shard:05d}', shard_key(self._path, shard)
      self._copies.pop(shard, None)  # it becomes the last one
      self._copies[shard] = object_store.local(uri, disk=self._disk, say=False)
      records.check_whole(self._copies[shard], key)
    return [records.Cache(self._copies[shard]) for shard in shards]


class StreamedCache(_Shards):
  """A training split whose shards are tokenised while training runs."""

  def __init__(self, config, vocabulary, shards, key, path, processes=None):
    """Starts the processes that tokenise the missing shards.

    Args:
      key: JSON object of everything that determines the records.
      processes: number of processes; None: a quarter of the cores, at most 8.
    """
    super().__init__(config.data, len(shards), path)
    path.mkdir(parents=True, exist_ok=True)
    (path / records.KEY).write_text(records.dump_key(key))
    processes = processes or min(8, max(1, os.cpu_count() // 4))
    processes = 0 if self.total() is not None else processes
    first = order.permutation(self._shards, self._seed, order.SHARDS, 0)
    job = blocks.Job(
        config.to_dict(),
        vocabulary,
        key['split'],
        tuple(first.tolist()),
        plain_text=key.get('plain_text', 0),
    )
    self._workers = workers.Workers(
        tokenise_shards,
        [(job, path)] * processes,
        [path / f'worker-{number}.log' for number in range(processes)],
    )
    self.close = self._workers.close  # ends the background processes

  def _open(self, epoch, index):
    """Returns the caches of the shards of a window; may wait."""
    shards = self._find_window(epoch, index)
    return [records.Cache(shard_path(self._path, s)) for s in shards]

  def _is_there(self, shard):
    if shard not in self._records:
      path = shard_path(self._path, shard)
      if not records.is_complete(path, shard_key(self._path, shard)):
        return False
      stats = json.loads((path / records.STATS).read_text())
      self._records[shard] = stats['records']
    return True

  def wait(self, shards=None):
    """Waits until shards exist (None: all), with progress on stderr."""
    shards = range(self._shards) if shards is None else shards
    progress, looked, begun = Progress(seconds=10.0, at_once=True), -1.0, 0
    while True:
      there = sum(map(self._is_there, shards))
      if there == len(shards):
        progress.wipe()
        return
      # Look again: a worker may have finished one in the meantime.
      if not self._workers.running() and not all(map(self._is_there, shards)):
        raise RuntimeError(
            f'{self._path}: shards are missing, but the processes that '
            'tokenise have ended'
        )
      if time.monotonic() - looked > 5:
        before, (looked, begun) = begun, (time.monotonic(), self._begun())
        if begun != before:
          watchdog.heartbeat()
      progress.write(
          [
              f'waiting for {len(shards)} shards: {there} tokenised, '
              f'{begun / 1e6:.0f} MB of the next'
          ],
          there / len(shards),
          1,
      )
      time.sleep(0.2)

  def _begun(self):
    """Returns the bytes of the unfinished shards."""
    total = 0
    try:
      for file in self._path.glob(f'*.parts/*/{records.RECORDS}'):
        total += file.stat().st_size
    except FileNotFoundError:
      pass  # a shard was finished in the meantime
    return total


def shard_path(path, shard):
  """Returns the path of a shard of a streamed cache."""
  return path / f'{shard:05d}'


def shard_key(path, shard):
  """Returns the key of a shard; the directory's name hashes the rest."""
  return dict(corpus=path.name, shard=shard)


def tokenise_shards(job):
  """Tokenises shards in a background process.

  Any number of processes on any number of hosts share the work. Each takes the
  next shard that is not locked.
  """
  job, path = job
  # First the shards without a lock; then wait for those of other processes.
  for wait in False, True:
    for shard in job.shards:
      place, key = shard_path(path, shard), shard_key(path, shard)
      if records.is_complete(place, key):
        continue
      with records.locked(place, wait) as is_locked:
        if is_locked and not records.is_complete(place, key):
          blocks.build(dataclasses.replace(job, shards=(shard,)), key, place)
