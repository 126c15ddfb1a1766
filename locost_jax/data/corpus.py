"""Finds the corpus that a run's config names.

It is one of the user's own files (data/own_files.py), a named corpus of
data/corpora.py (data/prepared_corpora.py), or the built-in corpus.

The built-in corpus is documentation of Python packages. python_docs.jsonl.xz
comes with the package, so that a first run needs no download and gives the same
numbers everywhere; python_docs.md, its card, has the sources, their licences
and how it was made. Its rows are documents for gap sentences, and pairs (an
object's documentation without its first sentence -> that sentence).
"""

import functools
import hashlib
import json
import lzma
import os

from locost_jax.config import schema
from locost_jax.data import corpora
from locost_jax.data import corpus_rows
from locost_jax.data import gsg
from locost_jax.data import own_files
from locost_jax.data import prepared_corpora
from locost_jax.data import record_versions
from locost_jax.data import sources
from locost_jax.data import span_corruption
from locost_jax.errors import InputError
from locost_jax.errors import suggest

GSG = schema.defaults('gsg')
# Task of the built-in corpus -> whether it makes gap sentences.
BUILT_IN = {'python_docs_gsg': True, 'python_docs_summary': False}
BUILT_IN_FILE = os.path.join(os.path.dirname(__file__), 'python_docs.jsonl.xz')


def has_files(config):
  """Whether a config names files, which replace its task."""
  data = config.data
  return bool(data.train_files or data.validation_files or data.test_files)


def has_queries(config):
  """Whether the training rows of a config begin with a query.

  Of own files, the first rows are examined.
  """
  if config.gsg is not None:
    return False
  if has_files(config):
    return own_files.has_queries(config.data)
  members = corpora.MIXTURES.get(config.data.task, (config.data.task,))
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
  task, is_own = config.data.task, has_files(config)
  if not is_own and not task:
    raise InputError(
        'nothing to train on: set config.data.train_files (JSONL, CSV, parquet '
        'or text, see docs/data.md) or config.data.task '
        f'({", ".join(names())})'
    )
  if not is_own:
    check_name(task)
  makes_gaps = is_gsg(task) or (is_own and config.gsg is not None)
  for key in ('gsg', 'span_corruption'):
    if config.get(key) is not None and not makes_gaps:
      raise InputError(
          f'config.{key} is set, but the task {"jsonl" if is_own else task} '
          f'summarises: expected config.{key}=None'
      )
  find = _built_in if task in BUILT_IN else prepared_corpora.corpus
  found = (own_files.corpus if is_own else find)(
      config, _gsg_settings(config) if makes_gaps else None
  )
  spans = config.get('span_corruption')
  if spans is not None:
    spans = span_corruption.settings(dict(spans))
  return found._replace(span_corruption=spans)


def check_name(task):
  """Raises an InputError unless a corpus or mixture has this name."""
  if task not in names():
    raise InputError(
        f'config.data.task={task!r} is none of the tasks '
        f'{", ".join(names())}{suggest(task, names())}'
    )


def _gsg_settings(config):
  """Returns the keyword arguments of gap_sentences, checked."""
  given = dict(config.gsg or {})
  unknown = sorted(set(given) - set(GSG))
  if unknown:
    raise InputError(
        f'config.gsg has unknown keys {", ".join(unknown)}; '
        f'expected {", ".join(GSG)}'
    )
  settings = {**GSG, **given}
  gsg.select_sentences(['a', 'b'], settings['ratio'], settings['strategy'])
  return settings


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
