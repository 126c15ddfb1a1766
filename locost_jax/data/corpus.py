"""Finds the corpus that a run's config names.

A `Corpus` gives access to rows on disk by split and shard. It is one of the
user's own files (config.data.train_files, ...), a named corpus of
data/corpora.py, or the built-in corpus of data/builtin_corpus.py (`BUILT_IN`).

TensorFlow is imported only to read a corpus in TFDS.
"""

import os
from typing import Callable, NamedTuple

from locost_jax.config import schema
from locost_jax.data import builtin_corpus
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


class Corpus(NamedTuple):
  """Rows of text on disk, dicts of strings.

  For gap sentences a row has id and text. For summarising it has id, inputs,
  targets and references. With config.data.pages, inputs is JSON of the query
  and the document, sections or documents. references is a JSON list if there
  are several references, else ''.
  """

  name: str  # of the task
  splits: dict  # split -> list of names of its shards
  read: Callable  # (split, name of a shard) -> iterator of rows
  gsg: dict | None  # keyword arguments of gap_sentences; None: summarising
  made_of: Callable  # split -> JSON object that changes if rows may change
  held_out: bool = False  # whether validation is held out of training files
  sizes: dict = {}  # split -> expected number of rows
  count: Callable = lambda split: None  # actual number of rows; None: unknown
  has_files: bool = False  # whether the shards are local files
  # Settings of span corruption; None: no document is corrupted.
  span_corruption: dict | None = None

  @property
  def fields(self):
    """The names of the fields of a row."""
    return (
        ('id', 'text')
        if self.gsg
        else ('id', 'inputs', 'targets', 'references')
    )


def has_files(config):
  """Whether a config names files, which replace its task."""
  data = config.data
  return bool(data.train_files or data.validation_files or data.test_files)


def has_queries(config):
  """Whether the training rows of a config begin with a query.

  Args:
    config: a run's config. For own files, the first rows are examined.
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
  """Finds the corpus of a config.

  Args:
    config: a run's config; its task is not a mixture.

  Returns:
    A Corpus.

  Raises:
    InputError: neither task nor files; an unknown task; a glob without a match;
      config.gsg for a task that summarises; data that does not exist.
  """
  found = _find(config)
  spans = span_settings(config, found.gsg is not None, found.name)
  return found._replace(span_corruption=spans)


def _find(config):
  """Returns the Corpus without settings of span corruption."""
  task = config.data.task
  if has_files(config):
    return _own_files(config)
  if not task:
    raise InputError(
        'nothing to train on: set config.data.train_files (JSONL, CSV, parquet '
        'or text, see docs/data.md) or config.data.task '
        f'({", ".join(names())})'
    )
  check_name(task)
  if task in BUILT_IN:
    return _built_in(config, task)
  return _named(config, task)


def check_name(task):
  """Raises an InputError unless a corpus or mixture has this name."""
  if task not in names():
    raise InputError(
        f'config.data.task={task!r} is none of the tasks '
        f'{", ".join(names())}{suggest(task, names())}'
    )


# --- Settings of gap sentences -----------------------------------------------


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


def settings_of(config, task):
  """Returns the settings of a task's gap sentences; reads no data.

  Returns:
    The keyword arguments of gap_sentences; None if the task summarises.

  Raises:
    InputError: config.gsg is invalid, or set for a task that summarises.
  """
  if is_gsg(task):
    return _gsg_settings(config)
  if config.gsg is not None:
    raise InputError(
        f'config.gsg is set, but the task {task} summarises: '
        'expected config.gsg=None'
    )
  return None


def span_settings(config, has_gap_sentences, task):
  """Returns the settings of a task's span corruption; reads no data.

  Args:
    has_gap_sentences: whether the task makes gap sentences.
    task: its name, for messages.

  Returns:
    See `span_corruption.settings`; None if no document is corrupted.

  Raises:
    InputError: config.span_corruption is invalid, or set for a task that
      summarises.
  """
  given = config.get('span_corruption')
  if given is None:
    return None
  if not has_gap_sentences:
    raise InputError(
        f'config.span_corruption is set, but the task {task} summarises: '
        'expected config.span_corruption=None'
    )
  return span_corruption.settings(dict(given))


# --- The user's own files ----------------------------------------------------


def _own_files(config):
  """Returns the corpus of the files that a config names."""
  files = own_files.find(config.data)
  is_summarising = config.gsg is None and not is_gsg(config.data.task)
  settings = None if is_summarising else _gsg_settings(config)
  found = own_files.OwnFiles(config, files, settings)
  return Corpus(
      name='jsonl',
      splits=found.files,
      read=found.read,
      gsg=settings,
      held_out=found.held_out,
      has_files=True,
      made_of=lambda split: dict(
          files=_stat_files(found.files[split]), **found.made_of(split)
      ),
  )


# --- Named corpora -----------------------------------------------------------


def _named(config, task):
  """Finds a named corpus in local files, or else in TFDS."""
  files = prepared_corpora.find_files(task, config.data.corpora_dir)
  if files and 'train' not in files:
    raise InputError(
        f'{config.data.corpora_dir}/{task}: no train*.jsonl or '
        'train*.jsonl.gz'
    )
  if files:
    return _named_in_files(config, task, files)
  return _named_in_tfds(config, task)


def _asserted_sizes(entry):
  """Returns the numbers of rows to assert; {} for C4, whose copies differ."""
  return {} if entry.gsg else entry.splits


def _named_in_files(config, task, files):
  entry, settings = corpora.TABLE[task], settings_of(config, task)
  needed = ('text',) if settings else ('document', 'summary')

  def read(split, file):
    del split
    for _, row in corpus_rows.make_rows(
        config, settings, file, sources.read_jsonl([file], needed)
    ):
      yield row

  def count(split):
    return sum(1 for file in files[split] for _ in sources.read_lines(file))

  return Corpus(
      name=task,
      splits=files,
      read=read,
      gsg=settings,
      has_files=True,
      sizes=_asserted_sizes(entry),
      count=count,
      made_of=lambda split: dict(files=_stat_files(files[split])),
  )


def _named_in_tfds(config, task):
  entry, settings = corpora.TABLE[task], settings_of(config, task)
  shards = prepared_corpora.find_tfds_shards(task, config.data)

  def read(split, name):
    from locost_jax.data import preprocessors  # TensorFlow

    (shard,) = (shard for shard in shards[split] if shard.name == name)
    rows = preprocessors.read_tfds(
        shard.tfds, split, config.data.tfds_dir, shard.number
    )
    for _, row in corpus_rows.make_rows(
        config, settings, f'{split} {name}', map(entry.row, rows)
    ):
      yield row

  return Corpus(
      name=task,
      read=read,
      gsg=settings,
      sizes=_asserted_sizes(entry),
      splits={
          split: [shard.name for shard in found]
          for split, found in shards.items()
      },
      count=lambda split: prepared_corpora.count_tfds(shards[split], split),
      made_of=lambda split: dict(
          tfds=entry.tfds,
          files=_stat_files(
              [shard.file for shard in shards[split] if shard.file]
          ),
      ),
  )


# --- The built-in corpus ------------------------------------------------------


def _built_in(config, task):
  settings = settings_of(config, task)

  def read(split, shard):
    del shard
    for row in builtin_corpus.read_rows(split, bool(settings)):
      yield corpus_rows.make_row(config, settings, row['id'], row)

  return Corpus(
      name=task,
      splits=dict(train=['all'], validation=['all']),
      read=read,
      gsg=settings,
      made_of=lambda split: dict(
          file=builtin_corpus.fingerprint(),
          code=record_versions.VERSIONS['sources'],
      ),
  )


# --- Facts that the key of a cache contains -----------------------------------


def _stat_files(files):
  """Returns [[absolute path, bytes, modification time]] of files."""
  sizes = []
  for file in files:
    if '://' in file:
      from etils import epath

      stat = epath.Path(file).stat()
      sizes.append([file, stat.length, stat.mtime])
    else:
      stat = os.stat(file)
      sizes.append([os.path.abspath(file), stat.st_size, stat.st_mtime_ns])
  return sizes
