"""Finds the corpus that a run's config names.

It is made of the user's own files, is a named corpus of data/corpora.py (found
by data/prepared_corpora.py), or the built-in corpus.

Without validation files, 2% of the rows of config.data.train_files are held out
for validation. A hash of the document chooses them, so copies fall on one side.
Rows become gap sentences if config.gsg is set, or if config.data.task is a task
of gap sentences (which reads their field `text`).

The built-in corpus is documentation of Python packages. python_docs.jsonl.xz
comes with the package, so that a first run needs no download and gives the same
numbers everywhere; python_docs.md, its card, has the sources, their licences
and how it was made. Its rows are documents for gap sentences, and pairs (an
object's documentation without its first sentence -> that sentence).
"""

import fnmatch
import functools
import hashlib
import itertools
import json
import lzma
import os
import sys

from locost_jax.config import object_store
from locost_jax.config import schema
from locost_jax.data import corpora
from locost_jax.data import corpus_rows
from locost_jax.data import file_formats
from locost_jax.data import gsg
from locost_jax.data import prepared_corpora
from locost_jax.data import record_versions
from locost_jax.data import records
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.errors import suggest

# Task of the built-in corpus -> whether it makes gap sentences.
BUILT_IN = {'python_docs_gsg': True, 'python_docs_summary': False}
_FIELD_KEYS = 'input_field', 'target_field', 'query_field'
_SPLITS = 'train', 'validation', 'test'
_FIRST = 100  # rows to examine for queries
BUILT_IN_FILE = os.path.join(os.path.dirname(__file__), 'python_docs.jsonl.xz')


def has_files(config):
  """Whether a config names files, which replace its task."""
  data = config.data
  return bool(data.train_files or data.validation_files or data.test_files)


def has_queries(config):
  """Whether the training rows of a config begin with a query.

  Of own files, the first rows are examined; None: only their caches are here.
  """
  if config.gsg is not None:
    return False
  data = config.data
  if has_files(config):
    found = corpus(config)
    files = found.splits.get('train')
    if not (files and found.has_files):
      return None if files else False
    rows = file_formats.read_rows(files[0], (data.input_field,), data.text_unit)
    field = data.query_field or 'query'
    return any(row.get(field) for row in itertools.islice(rows, _FIRST))
  members = corpora.MIXTURES.get(data.task, (data.task,))
  return any(name in corpora.WITH_QUERIES for name in members)


def is_gsg(task):
  """Whether a task makes gap sentences."""
  return BUILT_IN.get(task, False) or (
      task in corpora.TABLE and corpora.TABLE[task].gsg
  )


def names():
  """Returns the names of all corpora and mixtures."""
  return (*BUILT_IN, *corpora.TABLE, *corpora.MIXTURES)


def corpus(config):
  """Finds the Corpus of a config whose task is not a mixture.

  Raises:
    InputError: neither task nor files; an unknown task; a glob without a match;
      settings of pretraining for a task that summarises; data that does not
      exist.
  """
  data, task, is_own = config.data, config.data.task, has_files(config)
  if not is_own and not task:
    raise InputError(
        'nothing to train on: set config.data.train_files (JSONL, CSV, parquet '
        'or text, see docs/data.md) or config.data.task '
        f'({", ".join(names())})'
    )
  if not is_own:
    check_name(task)
  makes_gaps = is_gsg(task) or (is_own and config.gsg is not None)
  if config.get('gsg') is not None and not makes_gaps:
    raise InputError(
        f'config.gsg is set, but the task {"jsonl" if is_own else task} '
        'summarises: expected config.gsg=None'
    )
  find = _built_in if task in BUILT_IN else prepared_corpora.corpus
  find = _own_files if is_own else find
  settings = None
  if makes_gaps:
    settings = _settings(config, 'gsg')
    gsg.select_sentences(['a', 'b'], settings['ratio'], settings['strategy'])
  try:
    return find(config, settings)
  except InputError:
    if data.cache_dir and (known := _of_caches(config, settings)):
      return known
    raise


def check_name(task):
  """Raises an InputError unless a corpus or mixture has this name."""
  if task not in names():
    raise InputError(
        f'config.data.task={task!r} is none of the tasks '
        f'{", ".join(names())}{suggest(task, names())}'
    )


def _settings(config, section):
  """Returns a section of a config with its defaults, names checked."""
  given, defaults = dict(config[section] or {}), schema.defaults(section)
  if unknown := sorted(given.keys() - defaults.keys()):
    raise InputError(
        f'config.{section} has unknown keys {", ".join(unknown)}; '
        f'expected {", ".join(defaults)}'
    )
  return {**defaults, **given}


def _find_files(data):
  """Finds the files that a config names: split -> sorted paths."""
  return {
      split: sources.expand_globs(data[f'{split}_files'], data.bucket_disk)
      for split in _SPLITS
      if data[f'{split}_files']
  }


def _own_files(config, settings):
  """Returns the Corpus of the files that a config names; reads no file."""
  data, files = config.data, _find_files(config.data)
  held_out = 'train' in files and 'validation' not in files
  if held_out:
    files['validation'] = files['train']
  fields = _fields(config, settings)

  def rows_of(file):
    """Yields (document, row) of all rows of a file."""
    rows = _read(file, fields, data)
    for row, made in corpus_rows.make_rows(config, settings, file, rows):
      yield row[next(iter(fields))], made

  @functools.cache
  def stand_in():
    """The document to hold out if the hash chooses none, else None."""
    smallest = None
    for file in files['train']:
      for document, row in rows_of(file):
        if corpus_rows.is_usable(row, settings):
          if sources.is_held_out(document):
            return None
          key = hashlib.sha256(document.encode()).digest()
          smallest = min(smallest or (key, document), (key, document))
    return smallest and smallest[1]

  def read(split, file):
    for document, row in rows_of(file):
      if held_out and split != 'test':
        is_validation = sources.is_held_out(document) or document == stand_in()
        if is_validation != (split == 'validation'):
          continue
      yield row

  def made_of(split):
    made = dict(held_out=held_out, fields=fields)
    made['files'] = corpus_rows.stat_files(files[split])
    if any(map(file_formats.is_text, files[split])):
      made['text_unit'] = data.text_unit
    if data.references_field:
      made['references_field'] = data.references_field
    return made

  return corpus_rows.Corpus(
      name='jsonl',
      splits=files,
      read=read,
      gsg=settings,
      held_out=held_out,
      has_files=True,
      made_of=made_of,
  )


def _of_caches(config, settings):
  """Returns the Corpus that the caches in config.data.cache_dir are made of.

  Its texts are not here: `read` raises an InputError. Own files must have the
  names that config.data has. None: there are no such caches.
  """
  data, keys, task = config.data, {}, config.data.task
  home = object_store.local(data.cache_dir, ('*/key.json',), data.bucket_disk)
  if is_own := has_files(config):
    task, fields = 'jsonl', _fields(config, settings)
    splits = {x for x in _SPLITS if data[f'{x}_files']} | {'validation'}
  else:
    splits = corpora.TABLE[task].splits
  expected = dict(gsg=json.loads(json.dumps(settings)), task=task)

  def fits(key):
    given = data[f'{key["split"]}_files'] or data.train_files
    patterns = [os.path.basename(x.strip()) for x in given.split(',')]
    names = [os.path.basename(x[0]) for x in key['corpus']['files']]
    return key['corpus']['fields'] == fields and all(
        any(fnmatch.fnmatchcase(x, pattern) for pattern in patterns)
        for x in names
    )

  for path, key in records.find_keys(home):
    if expected.items() <= key.items() and (not is_own or fits(key)):
      other = keys.setdefault(key['split'], key)
      if other['corpus'] != key['corpus']:
        raise InputError(
            f'{data.cache_dir}: has caches of several texts of {task} '
            f'({path.name} is one), whose files are not here'
        )

  def made_of(split):
    return keys[split]['corpus'] if split in keys else read(split)

  def read(split, shard=None):
    del shard
    raise InputError(
        f'{data.cache_dir}: has no cache of the {split} split of {task} that is '
        'whole, and its texts are not here'
    )

  if not keys:
    return None
  _note_caches(task, data.cache_dir)
  names = {x: [y[0] for y in keys[x]['corpus']['files']] for x in keys}
  some = next(iter(keys.values()))
  return corpus_rows.Corpus(
      name=task,
      splits=dict.fromkeys(splits, []) | names,
      read=read,
      gsg=settings,
      held_out=some['corpus'].get('held_out', False),
      made_of=made_of,
      script={x: some[x] for x in ('sentences', 'gsg_words') if x in some},
  )


@functools.cache  # once
def _note_caches(task, directory):
  what = f'the texts of {task} are not here: only their caches in {directory}'
  print(what, file=sys.stderr, flush=True)


def _fields(config, settings):
  """Returns {name of a field in this package: its name in the files}."""
  data = config.data
  if settings:
    # Without config.gsg the task makes gap sentences, of `text`.
    return dict(text='text' if config.gsg is None else data.input_field)
  fields = dict(document=data.input_field, summary=data.target_field)
  if data.query_field:
    fields['query'] = data.query_field
  return fields


def _read(file, fields, data):
  """Yields the rows of a file with the names of fields in this package."""
  keys = {data[key]: key for key in _FIELD_KEYS}
  needed = {field: keys.get(field) for field in fields.values()}
  for row in file_formats.read_rows(file, needed, data.text_unit):
    row = {**row, **{name: row[field] for name, field in fields.items()}}
    if data.references_field:
      row['references'] = row.get(data.references_field)
    yield row


def _built_in(config, settings):
  def read(split, shard):
    del shard
    for row in built_in_rows(split, bool(settings)):
      yield corpus_rows.make_row(config, settings, row['id'], row)

  return corpus_rows.Corpus(
      name=config.data.task,
      splits=dict(train=['all'], validation=['all']),
      read=read,
      gsg=settings,
      made_of=lambda split: dict(
          file=built_in_fingerprint(),
          code=record_versions.VERSIONS['sources'],
      ),
  )


@functools.cache
def built_in_fingerprint():
  """Returns the SHA-256 of the built-in corpus's file."""
  with open(BUILT_IN_FILE, 'rb') as file:
    return hashlib.sha256(file.read()).hexdigest()


def built_in_rows(split, gap_sentences):
  """Reads the rows of the built-in corpus, in the order of their ids' hashes.

  Args:
    gap_sentences: whether to read the documents, not the pairs.
  """
  with lzma.open(BUILT_IN_FILE, 'rt', encoding='utf-8', newline='\n') as file:
    rows = [json.loads(line) for line in file]
  rows = [
      row
      for row in rows
      if row.pop('split', 'train') == split and ('text' in row) == gap_sentences
  ]
  return sorted(rows, key=lambda row: sources.hash_key(row['id']))
