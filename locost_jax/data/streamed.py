"""A corpus that is tokenised shard by shard while training runs.

Every shard is a cache of its own in `DIRECTORY/SHARD/`. Background processes
tokenise the shards in the order in which the first epoch wants them, and
training starts when the first window of `config.data.window_shards` shards is
there; later windows are waited for when the stream comes to them
(data/order.py). Which shards exist changes only how long that takes, never the
order. The processes end with their parent, whatever kills it, and a continued
run tokenises the rest. A shard of C4 (1/1024) has 356K documents. On a cluster
data/beam.py makes the same shards.
"""

import functools
import json
import os
import time

from ml_collections import ConfigDict

from locost_jax.command_line.progress import Line
from locost_jax.data import blocks
from locost_jax.data import order
from locost_jax.data import records
from locost_jax.data import workers
from locost_jax.hosts import watchdog


class StreamedCache:
  """A training split whose shards are tokenised while training runs.

  data/pipeline.py reads it window by window. `window(0, 0)` gives the caches of
  the first window, which stand for the corpus where a part of it suffices.
  """

  def __init__(self, config, vocabulary, shards, key, path, processes=None):
    """Starts the processes that tokenise the shards that are missing.

    Args:
      config: the run's config.
      vocabulary: one of vocabularies/vocabulary.py.
      shards: names of the shards.
      key: JSON object, everything that makes the records.
      path: directory for the shards' caches.
      processes: how many; None: a quarter of the cores, at most 8.
    """
    self._path, self._shards = path, len(shards)
    self._size, self._seed = config.data.window_shards, config.data.seed
    self.windows = -(-self._shards // self._size)
    self._records = {}  # shard -> its number of records
    self._opened = functools.lru_cache(maxsize=2)(self._open)
    path.mkdir(parents=True, exist_ok=True)
    (path / records.KEY).write_text(records.dump_key(key))
    processes = processes or min(8, max(1, os.cpu_count() // 4))
    processes = 0 if self.total() is not None else processes
    first = order.permutation(self._shards, self._seed, order.SHARDS, 0)
    job = dict(
        config=config.to_dict(),
        vocabulary=vocabulary,
        path=path,
        split=key['split'],
        shards=first.tolist(),
    )
    self._workers = workers.Workers(
        'locost_jax.data.streamed:tokenise_shards',
        [job] * processes,
        [path / f'worker-{number}.log' for number in range(processes)],
    )

  def close(self):
    """Ends the background processes."""
    self._workers.close()

  def total(self):
    """Records in an epoch, or None while shards are missing."""
    for shard in range(self._shards):
      if not self._is_there(shard):
        return None
    return sum(self._records.values())

  def sizes(self, epoch, index):
    """The records of each shard of a window; waits until they exist."""
    shards = order.window_shards(
        self._shards, self._size, self._seed, epoch, index
    )
    self.wait(shards)
    return [self._records[shard] for shard in shards]

  def window(self, epoch, index):
    """The caches of a window's shards; waits until they exist."""
    return self._opened(epoch, index)

  def _open(self, epoch, index):
    shards = order.window_shards(
        self._shards, self._size, self._seed, epoch, index
    )
    self.wait(shards)
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
    line, looked, begun = Line(seconds=10.0, at_once=True), -1.0, 0
    while True:
      # Before looking for the shards: a worker may finish one in between.
      statuses = self._workers.poll()
      there = sum(map(self._is_there, shards))
      if there == len(shards):
        line.wipe()
        return
      if not self._workers.running(statuses):
        raise RuntimeError(
            f'{self._path}: shards are missing, and no process '
            'tokenises them any more'
        )
      if time.monotonic() - looked > 5:
        before, (looked, begun) = begun, (time.monotonic(), self._begun())
        if begun != before:
          watchdog.alive()
      line.show(
          [
              f'waiting for {len(shards)} shards: {there} tokenised, '
              f'{begun / 1e6:.0f} MB of the next'
          ],
          there / len(shards),
          1,
      )
      time.sleep(0.2)

  def _begun(self):
    """Bytes of the shards that are being made."""
    total = 0
    try:
      for file in self._path.glob(f'*.parts/*/{records.RECORDS}'):
        total += file.stat().st_size
    except FileNotFoundError:
      pass  # one was finished meanwhile
    return total


def shard_path(path, shard):
  """Where a shard of a streamed cache lies."""
  return path / f'{shard:05d}'


def shard_key(path, shard):
  """The key of a shard; the directory's name has the hash of all the rest."""
  return dict(corpus=path.name, shard=shard)


def tokenise_shards(job):
  """Tokenises shard after shard, in a background process.

  Any number of such processes, of any number of hosts, share the work: each
  takes the next shard that nobody has locked.
  """
  config, path = ConfigDict(job['config']), job['path']
  # At first what nobody works at; then wait for what others have begun.
  for wait in False, True:
    for shard in job['shards']:
      place, key = shard_path(path, shard), shard_key(path, shard)
      if records.is_complete(place, key):
        continue
      with records.locked(place, wait) as held:
        if held and not records.is_complete(place, key):
          blocks.build(
              config, job['vocabulary'], job['split'], key, place, [shard]
          )
