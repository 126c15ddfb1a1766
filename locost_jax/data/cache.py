"""A task tokenised once into random-access records, reused while unchanged.

`open_cache` builds what is missing, in a directory whose name holds a hash of
everything that makes the records (files with size and time of change or package
versions, fields, gap-sentence settings, the vocabulary's fingerprint, lengths,
the code itself): other settings build another cache beside it, and nothing
stale is ever read. data/records.py has the format and its guarantees.

A training split of many large shards (C4) is cached shard by shard instead:
every shard is a cache of its own in `DIRECTORY/SHARD/`. Background processes
tokenise the shards in the order in which the first epoch wants them, and
training starts when the first window of `config.data.window_shards` shards is
there; later windows are waited for when the stream comes to them
(data/order.py). Which shards exist changes only how long that takes, never the
order. The processes end with their parent, whatever kills it, and a continued
run tokenises the rest. A shard of C4 (1/1024) has 356K documents.

Opening a finished cache needs neither TensorFlow nor SeqIO.
"""

import functools
import hashlib
import json
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
import weakref

from ml_collections import ConfigDict

from locost_jax.data import order
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.progress import Line

# A training split with more bytes than this on disk, in more shards than a
# window has, is cached shard by shard: about an hour's work for two cores.
STREAM_BYTES = 4 * 10**9
FORMAT = 1  # of the records on disk
# The modules whose text decides what a record is. A change elsewhere that does
# so, too, raises FORMAT.
_CODE = ('text.py', 'gsg.py', 'preprocessors.py')


def open_cache(config, vocabulary, split, directory):
  """Opens the records of a split, tokenising them first when they are missing.

  Args:
    config: the run's config.
    vocabulary: one of data/vocabulary.py.
    split: 'train', 'validation' or 'test'.
    directory: where caches lie; used when config.data.cache_dir is ''.

  Returns:
    A records.Cache; a StreamedCache for the training split of a corpus too
    large to tokenise first; None when the task has no such split. Of such a
    corpus the other splits hold the first config.eval.examples records (0:
    all).

  Raises:
    InputError: the corpus cannot be read, or gives no record at all.
  """
  found = tasks.corpus(config)
  if split not in found.splits:
    return None
  streamed = _is_large(config, found)
  limit = config.eval.examples if streamed and split != 'train' else 0
  key = _key(config, found, vocabulary, split, limit)
  path = pathlib.Path(config.data.cache_dir or directory) / _name(key)
  if streamed and split == 'train':
    return StreamedCache(config, vocabulary, found.splits[split], key, path)
  if not records.is_complete(path, key):
    with records.locked(path):
      if not records.is_complete(path, key):  # built while this one waited
        _build(config, vocabulary, found, split, key, path, limit=limit)
  return records.Cache(path)


def _is_large(config, found):
  """Whether the training split is cached shard by shard."""
  shards = found.splits.get('train', ())
  if len(shards) <= config.data.window_shards:
    return False
  files = found.made_of('train').get('files', ())
  return sum(size for _, size, _ in files) > STREAM_BYTES


def _key(config, found, vocabulary, split, limit):
  return json.loads(json.dumps(dict(
      format=FORMAT, task=found.name, split=split, gsg=found.gsg,
      corpus=found.made_of(split), limit=limit,
      vocabulary=vocabulary.fingerprint,
      max_input_length=config.data.max_input_length,
      max_target_length=config.data.max_target_length,
      code=tasks.code_hash(_CODE))))


def _name(key):
  text = json.dumps(key, sort_keys=True)
  return (f'{key["task"]}-{key["split"]}-'
          f'{hashlib.sha256(text.encode()).hexdigest()[:16]}')


def _build(config, vocabulary, found, split, key, path, shard=None, limit=0,
           quiet=False):
  """Tokenises a split, or its shard (number, of how many), into `path`."""
  skipped = []

  def notes():
    return dict(skipped=len(skipped), **found.describe())

  progress = _Progress(f'{found.name} {split}', quiet)
  rows = progress(_examples(config, vocabulary, split, shard, limit, skipped))
  if shard is None:
    rows = _not_empty(rows, config, found, split, skipped)
  stats = records.write(path, key, rows, vocabulary.size, notes)
  progress.done(stats)


def _examples(config, vocabulary, split, shard, limit, skipped):
  """Yields the records of a split, in the corpus's order."""
  task = tasks.make_task(config, vocabulary, skipped.append)
  import seqio
  dataset = task.get_dataset(
      dict(inputs=config.data.max_input_length,
           targets=config.data.max_target_length),
      split=split, shuffle=False, try_in_mem_cache=False,
      trim_output_features=False,
      shard_info=shard and seqio.ShardInfo(*shard))
  if limit:
    dataset = dataset.take(limit)
  try:
    for row in dataset.as_numpy_iterator():
      yield dict(id=row['id'].decode('utf-8', 'replace'),
                 inputs=row['inputs'], targets=row['targets'],
                 reference=row['targets_pretokenized'].decode(
                     'utf-8', 'replace'))
  except Exception:
    # TensorFlow's own exceptions hide what the reader of the rows said.
    if getattr(task.source, 'error', None):
      raise task.source.error from None
    raise


def _not_empty(rows, config, found, split, skipped):
  """The same rows; an InputError when there is none."""
  first = next(rows, None)
  if first is None:
    raise tasks.empty_error(config, found, split, len(skipped))
  yield first
  yield from rows


class _Progress:
  """Counts records on stderr while they are tokenised."""

  def __init__(self, what, quiet):
    self._what, self._quiet = f'tokenising {what}:', quiet
    self._line, self._start = Line(seconds=10.0), time.monotonic()

  def __call__(self, rows):
    for count, row in enumerate(rows):
      if not self._quiet:
        self._line.show([f'{self._what} {count} records'])
      yield row

  def done(self, stats):
    if not self._quiet:
      seconds = time.monotonic() - self._start
      self._line.note(
          f'{self._what} {stats["records"]} records, {stats["skipped"]} '
          f'skipped, {stats["input_tokens"]} + {stats["target_tokens"]} tokens '
          f'in {seconds:.0f} s')
      if 'checksum' in stats:
        _tell_corpus(stats['checksum'], tuple(stats['counts'].items()))


@functools.lru_cache  # once, however many tasks read the corpus
def _tell_corpus(checksum, counts):
  counts = ', '.join(f'{n:,} {name.replace("_", " ")}' for name, n in counts)
  print(f'corpus checksum {checksum[:12]}: {counts}', file=sys.stderr,
        flush=True)


class StreamedCache:
  """A training split whose shards are tokenised while training runs.

  data/pipeline.py reads it window by window. `window(0, 0)` gives the caches of
  the first window, which stand for the corpus where a part of it suffices.
  """

  def __init__(self, config, vocabulary, shards, key, path):
    """Starts the processes that tokenise the shards that are missing.

    Args:
      config: the run's config.
      vocabulary: one of data/vocabulary.py.
      shards: names of the shards.
      key: JSON object, everything that makes the records.
      path: directory for the shards' caches.
    """
    self._path, self._shards = path, len(shards)
    self._size, self._seed = config.data.window_shards, config.data.seed
    self.windows = -(-self._shards // self._size)
    self._records = {}  # shard -> its number of records
    self._opened = functools.lru_cache(maxsize=2)(self._open)
    path.mkdir(parents=True, exist_ok=True)
    (path / records.KEY).write_text(json.dumps(key, indent=2, sort_keys=True))
    self._workers = []
    if self.total() is None:
      first = order.permutation(self._shards, self._seed, order.SHARDS, 0)
      job = pickle.dumps(dict(
          config=config.to_dict(), vocabulary=vocabulary, path=path,
          split=key['split'], shards=first.tolist()))
      for number in range(min(8, max(1, os.cpu_count() // 4))):
        self._workers.append(_start_worker(job, path / f'worker-{number}.log'))
    # Also when the interpreter ends.
    self._finalizer = weakref.finalize(self, _stop_workers, self._workers)

  def close(self):
    """Ends the background processes."""
    self._finalizer()

  def total(self):
    """Records in an epoch, or None while shards are missing."""
    for shard in range(self._shards):
      if not self._is_there(shard):
        return None
    return sum(self._records.values())

  def sizes(self, epoch, index):
    """The records of each shard of a window; waits until they exist."""
    shards = order.window_shards(
        self._shards, self._size, self._seed, epoch, index)
    self._wait(shards)
    return [self._records[shard] for shard in shards]

  def window(self, epoch, index):
    """The caches of a window's shards; waits until they exist."""
    return self._opened(epoch, index)

  def _open(self, epoch, index):
    shards = order.window_shards(
        self._shards, self._size, self._seed, epoch, index)
    self._wait(shards)
    return [records.Cache(_shard_path(self._path, s)) for s in shards]

  def _is_there(self, shard):
    if shard not in self._records:
      path = _shard_path(self._path, shard)
      if not records.is_complete(path, _shard_key(self._path, shard)):
        return False
      stats = json.loads((path / records.STATS).read_text())
      self._records[shard] = stats['records']
    return True

  def _wait(self, shards):
    shown = 0.
    while True:
      # Before looking for the shards: a worker may finish one in between.
      ended = [worker.poll() for worker in self._workers]
      there = sum(map(self._is_there, shards))
      if there == len(shards):
        return
      for worker, status in zip(self._workers, ended):
        if status:
          raise _worker_error(worker)
      if None not in ended:
        raise RuntimeError(f'{self._path}: shards are missing, and no process '
                           'tokenises them any more')
      if time.monotonic() - shown > 10:
        shown = time.monotonic()
        begun = sum(file.stat().st_size for file in self._path.glob(
            f'*.partial/{records.RECORDS}'))
        print(f'waiting for {len(shards)} shards: {there} tokenised, '
              f'{begun / 1e6:.0f} MB of the next', file=sys.stderr, flush=True)
      time.sleep(0.2)


def _shard_path(path, shard):
  return path / f'{shard:05d}'


def _shard_key(path, shard):
  # The directory's name has the hash of all the rest.
  return dict(corpus=path.name, shard=shard)


def _start_worker(job, log):
  """Starts a process that does `job`; it lives until its stdin closes."""
  environment = dict(
      os.environ, JAX_PLATFORMS='cpu', CUDA_VISIBLE_DEVICES='',
      TF_CPP_MIN_LOG_LEVEL='3',
      PYTHONPATH=os.pathsep.join(os.path.abspath(p) for p in sys.path))
  code = 'from locost_jax.data import cache; cache.tokenise_shards()'
  with open(log, 'wb') as stderr:
    worker = subprocess.Popen(
        [sys.executable, '-c', code], env=environment, stderr=stderr,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
  worker.stdin.write(job)
  worker.stdin.flush()
  worker.log = log
  return worker


def _stop_workers(workers):
  for worker in workers:
    worker.kill()
    worker.wait()
    worker.stdin.close()
    worker.stdout.close()


def _worker_error(worker):
  """What a failed worker said, as the exception to raise here."""
  lines = worker.stdout.read().decode('utf-8', 'replace').splitlines()
  if lines and lines[-1].startswith('InputError: '):
    return InputError(lines[-1].removeprefix('InputError: '))
  return RuntimeError(
      f'a process that tokenises shards failed: see {worker.log}')


def tokenise_shards():
  """Main function of a background process: tokenises shard after shard.

  Reads its job (pickled) from stdin, and ends when stdin closes: the system
  closes it when the parent dies. Any number of such processes, of any number of
  hosts, share the work: each takes the next shard that nobody has locked.
  """
  job = pickle.load(sys.stdin.buffer)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  os.nice(10)  # the training loop comes first
  config, path, split = ConfigDict(job['config']), job['path'], job['split']
  try:
    found = tasks.corpus(config)
    # At first what nobody works at; then wait for what others have begun.
    for wait in False, True:
      for shard in job['shards']:
        place, key = _shard_path(path, shard), _shard_key(path, shard)
        if records.is_complete(place, key):
          continue
        with records.locked(place, wait) as held:
          if held and not records.is_complete(place, key):
            _build(config, job['vocabulary'], found, split, key, place,
                   shard=(shard, len(job['shards'])), quiet=True)
  except InputError as error:
    print(f'InputError: {error}', flush=True)
    sys.exit(1)


def _end_with_parent():
  while sys.stdin.buffer.read(1):
    pass
  os._exit(1)  # at once, whatever the main thread does
