"""A task tokenised once into random-access records, reused while it is the same.

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
import sys
import time

from locost_jax.data import order
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.errors import InputError

# A training split with more bytes than this on disk, in more shards than a
# window has, is cached shard by shard: about an hour's work for two cores.
STREAM_BYTES = 4 * 10**9
FORMAT = 1  # of the records on disk
_CODE = ('text.py', 'gsg.py', 'sources.py', 'documentation.py',
         'preprocessors.py', 'tasks.py')


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
      max_target_length=config.data.max_target_length, code=_code())))


@functools.cache
def _code():
  """Hash of the modules that turn documents into records."""
  here = pathlib.Path(__file__).parent
  digest = hashlib.sha256()
  for name in _CODE:
    if (here / name).exists():
      digest.update((here / name).read_bytes())
  return digest.hexdigest()


def _name(key):
  text = json.dumps(key, sort_keys=True)
  return (f'{key["task"]}-{key["split"]}-'
          f'{hashlib.sha256(text.encode()).hexdigest()[:16]}')


def _build(config, vocabulary, found, split, key, path, shard=None, limit=0,
           quiet=False):
  """Tokenises a split, or one shard of it, into `path`."""
  skipped = []
  progress = _Progress(f'{found.name} {split}', quiet)
  rows = progress(_examples(config, vocabulary, split, shard, limit, skipped))
  if shard is None:
    rows = _not_empty(rows, config, found, split, skipped)
  stats = records.write(
      path, key, rows, vocabulary.size, lambda: len(skipped))
  progress.done(stats)


def _examples(config, vocabulary, split, shard, limit, skipped):
  """Yields the records of a split, in the corpus's order."""
  task = tasks.make_task(config, vocabulary, skipped.append)
  import seqio
  shards = task.source.list_shards(split) if shard is not None else ()
  dataset = task.get_dataset(
      dict(inputs=config.data.max_input_length,
           targets=config.data.max_target_length),
      split=split, shuffle=False, try_in_mem_cache=False,
      trim_output_features=False,
      shard_info=None if shard is None else seqio.ShardInfo(shard, len(shards)))
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
    self._what, self._quiet = what, quiet
    self._start = time.monotonic()

  def __call__(self, rows):
    shown = self._start
    interval = 1 if sys.stderr.isatty() else 10  # seconds
    for count, row in enumerate(rows):
      if time.monotonic() - shown > interval and not self._quiet:
        shown = time.monotonic()
        self._show(f'{count} records', end='\r')
      yield row

  def done(self, stats):
    if not self._quiet:
      seconds = time.monotonic() - self._start
      self._show(
          f'{stats["records"]} records, {stats["skipped"]} skipped, '
          f'{stats["input_tokens"]} + {stats["target_tokens"]} tokens in '
          f'{seconds:.0f} s')

  def _show(self, text, end='\n'):
    end = end if sys.stderr.isatty() else '\n'
    print(f'tokenising {self._what}: {text}', end=end, file=sys.stderr,
          flush=True)
