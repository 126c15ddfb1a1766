"""Tokenises a task once into random-access records that later runs reuse.

  python -m locost_jax.data.cache --task=arxiv --output=caches
  python -m locost_jax.main --config=configs/finetune_arxiv.py \\
      --config.data.cache_dir=caches

A run makes the caches it needs. This command makes them in advance, with
several processes, for every split (--split) of a task or of all tasks of a
mixture, with the settings of --config. An interrupted command resumes where it
stopped.

`open_cache` builds a missing cache in a directory whose name contains a hash of
everything that determines the records: the files (with size and modification
time) or package versions, fields, gap-sentence settings, the vocabulary's
fingerprint, lengths, and the versions in data/record_versions.py. So a stale
cache is never read, and other settings build another cache next to it. In
config.data.cache_dir only this command builds another one; a run stops and
reports the difference. data/records.py defines the format, data/blocks.py
tokenises.

A training split of many large shards (C4) is instead cached shard by shard
while training runs; see data/streamed.py.

Opening a finished cache needs neither TensorFlow nor SeqIO.
"""

import hashlib
import itertools
import json
import os
import pathlib
import sys
import time

from locost_jax import files
from locost_jax.config import commands
from locost_jax.config import object_store
from locost_jax.config.progress import duration
from locost_jax.config.progress import Progress
from locost_jax.data import blocks
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import mixture
from locost_jax.data import pages
from locost_jax.data import record_versions
from locost_jax.data import records
from locost_jax.data import streamed
from locost_jax.data import tasks
from locost_jax.data import text as text_lib
from locost_jax.data import words
from locost_jax.errors import InputError
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# A training split with more bytes on disk than this, in more shards than a
# window has, is cached shard by shard. Two cores tokenise it in about an hour.
STREAM_BYTES = 4 * 10**9
FORMAT = 2  # of the records on disk
_SAMPLE = 20  # documents whose script is examined


def open_cache(
    config,
    vocabulary,
    split,
    directory,
    processes=None,
    allow_other_caches=False,
):
  """Opens the records of a split; tokenises them first if they are missing.

  Args:
    directory: the directory of caches if config.data.cache_dir is ''.
    processes: number of processes that tokenise. None: one; for a corpus that
      is cached shard by shard a quarter of the cores, at most 8.
    allow_other_caches: whether to build a cache in config.data.cache_dir if it
      has one of the same text with other settings.

  Returns:
    None if the task has no such split. Otherwise
    - usually a records.Cache;
    - for a training split with config.data.train_examples a mixture.Subset;
    - for a training split that is cached shard by shard (see `is_large`) a
      streamed.StreamedCache, or in a bucket a streamed.BucketCache; the other
      splits of such a corpus hold the first config.eval.examples records (0:
      all);
    - for a mixture a mixture.Mixture of the training splits, or a dict of task
      -> records.Cache of the tasks that have this other split.
  """
  found, few = {}, config.data.train_examples
  members = tasks.members(config)
  for task, member in members.items() if few or len(members) > 1 else ():
    if split == 'train' and is_large(member, corpus_lib.corpus(member)):
      what = f'for config.data.train_examples={few}'
      raise InputError(
          f'{task}: too large {what if few else "to be part of a mixture"}: '
          'expected a training split that is tokenised as a whole'
      )
  for task, member in members.items():
    found[task] = _open(
        member, vocabulary, split, directory, processes, allow_other_caches
    )
    if split == 'train':
      found[task] = mixture.choose_examples(task, found[task], config.data)
  if len(found) == 1:
    return found[task]
  found = {task: cache for task, cache in found.items() if cache is not None}
  if split == 'train':
    return mixture.Mixture(found, config.data.mixture_cap, config.data.seed)
  return found or None


def _open(config, vocabulary, split, directory, processes, allow_other_caches):
  found = corpus_lib.corpus(config)
  if split not in found.splits:
    return None
  path, key = locate(config, found, vocabulary, split, directory)
  is_streamed = split == 'train' and is_large(config, found)
  inner = f'*/{records.STATS}' if is_streamed else '**'
  if in_bucket := object_store.is_uri(config.data.cache_dir):
    path = object_store.copy_cache(config.data, path.name, inner)
  name = path.name
  path, key = _find_earlier(path, key)
  if in_bucket and path.name != name:
    path = object_store.copy_cache(config.data, path.name, inner)
  is_given = config.data.cache_dir and not allow_other_caches
  if is_given and not _is_begun(path):
    _refuse_others(path, key)
  if in_bucket and is_streamed:
    return streamed.BucketCache(config, len(found.splits[split]), path)
  if in_bucket:
    records.check_whole(path, key)
  if is_streamed:
    return streamed.StreamedCache(
        config, vocabulary, found.splits[split], key, path, processes
    )
  if not records.is_complete(path, key):
    with records.locked(path):
      if not records.is_complete(path, key):  # built while this one waited
        _build(config, vocabulary, found, split, key, path, processes or 1)
  return records.Cache(path)


def _caches_beside(path):
  """Yields (path, key) of the caches of the same task and split."""
  pattern = f'{path.name.rpartition("-")[0]}-*'
  yield from records.find_keys(path.parent, pattern)


def _find_earlier(path, key):
  """Returns (path, key) of the cache to read instead, if there is one.

  Records used to be made with an older `plain_text`, or without, and the
  built-in corpus used to be read from the installed packages. A run or a cache
  that began with such records continues with them.
  """
  older = {name: key[name] for name in key if name != 'plain_text'}
  for made_by in key | dict(plain_text=1), older:
    earlier = path.with_name(_name(made_by))
    if _is_begun(earlier) and not _is_begun(path):
      return earlier, made_by
  if key['task'] in corpus_lib.BUILT_IN and not path.exists():
    for other, made_by in _caches_beside(path):
      corpus = made_by.get('corpus') or {}
      if 'installed' in corpus and made_by == dict(older, corpus=corpus):
        return other, made_by
  return path, key


def _is_begun(path):
  """Whether a cache is there, or some of its blocks are."""
  return path.exists() or pathlib.Path(f'{path}.parts').exists()


def _name(key):
  """Returns the name of the directory of a cache."""
  digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
  return f'{key["task"]}-{key["split"]}-{digest[:16]}'


def _refuse_others(path, key):
  """Raises an InputError if there is a cache of this text with other settings.

  A cache may take hours; another one must not be built by accident.
  """
  output = object_store.original(f'{path.parent}/')
  is_copy = object_store.is_uri(output)
  output = f'DIR, and copy DIR to {output}' if is_copy else path.parent
  for other, made_by in _caches_beside(path):
    if made_by.get('corpus') != key['corpus']:
      continue
    names = [name for name in key if made_by.get(name) != key[name]]
    differences = [
        f'{name} {made_by.get(name)!r}, not {key[name]!r}'
        if len(f'{made_by.get(name)}{key[name]}') < 60
        else name
        for name in names
    ]
    raise InputError(
        f'{other} was made with other settings: {", ".join(differences)}; to '
        'make a cache for this run, use `python -m locost_jax.data.cache` with '
        f'the same --config and --output={output}'
    )


def is_large(config, found):
  """Whether the training split is cached shard by shard.

  Only C4 and the user's own files can be; other corpora are small enough.
  """
  if found.sizes:
    return False
  shards = found.splits.get('train', ())
  if len(shards) <= config.data.window_shards:
    return False
  there = found.made_of('train').get('files', ())
  return sum(size for _, size, _ in there) > STREAM_BYTES


def locate(config, found, vocabulary, split, directory):
  """Returns (directory of the cache, its key).

  The key is a JSON object of everything that determines the records.
  """
  data = config.data
  versions = record_versions.VERSIONS
  is_part = split != 'train' and is_large(config, found)
  key = dict(
      format=FORMAT,
      task=found.name,
      split=split,
      gsg=found.gsg,
      **_script_key(found, data),
      corpus=found.made_of(split),
      limit=config.eval.examples if is_part else 0,
      vocabulary=vocabulary.fingerprint,
      max_input_length=data.max_input_length,
      max_target_length=data.max_target_length,
      pages=_pages_key(data),
      code={module: versions[module] for module in record_versions.RECORDS},
      plain_text=versions['plain_text'],
  )
  key = json.loads(json.dumps(key))  # as it is read from a file
  return pathlib.Path(data.cache_dir or directory) / _name(key), key


def _script_key(found, data):
  """Returns the part of a cache's key that stands for a script beyond a-z.

  Older caches of such texts have other sentences or gap sentences.
  """
  if found.script is not None:
    return found.script
  if not (found.has_files and (found.gsg or data.pages)):
    return {}  # named corpora in TFDS are English
  split, shards = next(iter(found.splits.items()))
  rows = itertools.islice(found.read(split, shards[0]), _SAMPLE)
  texts = [corpus_rows.texts(row, data.pages)[0] for row in rows]
  key = {}
  if any(map(text_lib.OTHER_SCRIPTS.search, texts)):
    key['sentences'] = 'any script'
  ranked = found.gsg and found.gsg['strategy'] not in ('lead', 'random')
  if ranked and not all(words.is_latin([text]) for text in texts):
    key['gsg_words'] = 'any script'
  return key


def _pages_key(data):
  """Returns the part of a cache's key that stands for its pages, '' for none.

  Default values of newer settings are left out: older caches stay valid.
  """
  if not data.pages:
    return ''
  key = [data.pages, data.num_pages, data.page_length, data.empty_page]
  if pages.query_in(data) != 'every':
    key.append(dict(query_in=pages.query_in(data)))
  if data.document_length:
    key.append(dict(document_length=data.document_length))
  return key


def _build(config, vocabulary, found, split, key, path, processes):
  """Tokenises a whole split into `path`, with progress on stderr."""
  tasks.check_size(config, found, split)
  what, start = f'tokenising {found.name} {split}:', time.monotonic()
  progress, expected = Progress(seconds=10.0), found.sizes.get(split)
  known = []  # the number of records at the start of this build

  def show(count):
    known[:] = known or [count]
    parts, seconds = [f'{what} {count} records'], time.monotonic() - start
    if expected and known[0] < count < expected:
      left = seconds * (expected - count) / (count - known[0])
      parts = [f'{what} {count}/{expected} records', f'{duration(left)} left']
    progress.write(parts, count / expected if expected else None, 1)

  job = blocks.Job(
      config.to_dict(),
      vocabulary,
      split,
      limit=key['limit'],
      processes=processes,
      plain_text=key.get('plain_text', 0),
  )
  stats = blocks.build(job, key, path, show)
  progress.note(
      f'{what} {stats["records"]} records, {stats["skipped"]} skipped, '
      f'{stats["input_tokens"]} + {stats["target_tokens"]} tokens in '
      f'{time.monotonic() - start:.0f} s'
  )
  for said in _page_notes(stats, config.data):
    progress.note(f'{found.name} {split}: {said}')


def _page_notes(stats, data):
  """Yields a line for each count of `corpus_rows.count_pages`."""
  if stats.get('dropped_pages'):
    yield (
        f'{stats["dropped_in"]:,} documents have more than '
        f'config.data.num_pages={data.num_pages} {pages.FIELDS[data.pages]}: '
        f'{stats["dropped_pages"]:,} of these are dropped'
    )
  if stats.get('without_sections'):
    yield (
        f'{stats["without_sections"]:,} documents have no sections, which '
        f'config.data.pages={data.pages!r} needs: they are cut as with '
        "'spatial'"
    )


# --- The command -------------------------------------------------------------


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, 'configs/default.py')
  table = {
      'output': (
          'DIR for the caches; a run finds them there with '
          '--config.data.cache_dir=DIR'
      ),
      'split': (
          ['train', 'validation', 'test'],
          'which splits; those that the task lacks are skipped',
      ),
      'processes': (os.cpu_count(), 'number of processes that tokenise'),
  }
  commands.define(values, table | commands.TASK)


def main(values, arguments):
  """Runs the command."""
  commands.expect_flags_only(arguments)
  if not values.output:
    raise InputError('--output=DIR is missing: where to keep the caches?')
  files.check_directory('--output', values.output)
  config, _ = commands.get_config(values)
  config.data.cache_dir = values.output
  if config.phases:
    raise InputError(
        'config.phases: a run with phases makes its own caches; expected a '
        'config without phases'
    )
  for split in values.split:
    if split not in ('train', 'validation', 'test'):
      raise InputError(
          f'--split={split}: expected some of train,validation,test'
      )
  tasks.check(config)
  vocabulary = _find_vocabulary(config)
  for split in values.split:
    found = open_cache(
        config, vocabulary, split, '', values.processes, allow_other_caches=True
    )
    if isinstance(found, streamed.StreamedCache):
      found.wait()
      found.close()
    if found is None:
      print(f'{tasks.name(config)} has no {split} split', file=sys.stderr)


def _find_vocabulary(config):
  """Returns the vocabulary; a trained one is saved with the caches."""
  vocabulary = tasks.find_vocabulary(config)
  if config.data.vocabulary == 'train':
    home = tasks.vocabulary_home(config, config.data.cache_dir)
    if not home.exists():
      partial = home.with_suffix('.partial')
      vocabulary_lib.save_vocabulary(vocabulary, partial)
      os.rename(partial, home)
    print(f'vocabulary: {home}', file=sys.stderr, flush=True)
  return vocabulary


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
