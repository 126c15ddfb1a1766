"""The rows of text that a run's config names, wherever they lie.

A `Corpus` is rows on disk, split by split and shard by shard: files of the
user's own (config.data.train_files, ...), a named corpus of data/corpora.py, or
the documentation on this machine (`BUILT_IN`). Files without validation files
lend 2% of their rows to validation, by a hash of the document, so that copies
fall on one side. Files are made into gap sentences if config.gsg says so, or
config.data.task names a task of gap sentences (then of their field `text`).

A row to be summarised may have a query (its field `query`, or
config.data.query_field), which then stands in front of the document and a blank
line, as in SCROLLS. With `config.data.pages` documents are cut into pages or
chunks (data/pages.py).

No TensorFlow is imported, but to read what TFDS prepared.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import sys
from typing import Callable, NamedTuple

from locost_jax.data import corpora
from locost_jax.data import documentation
from locost_jax.data import gsg
from locost_jax.data import pages
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.errors import suggest

GSG = dict(ratio=0.2, strategy='independent', mask='', seed=0)  # the paper's


class Corpus(NamedTuple):
  """Rows of text on disk, dicts of strings.

  For gap sentences id and text. For summarising id, inputs, targets and
  references: inputs is JSON of query and document (or sections, documents)
  where that is cut into pages; references is JSON, a list, where several texts
  count as right, or ''.
  """
  name: str  # of the task
  splits: dict  # split -> list of its shards' names
  read: Callable  # (split, shard's name) -> iterator of rows
  gsg: dict | None  # keyword arguments of gap_sentences; None: summarising
  made_of: Callable  # split -> JSON object, another when rows may have changed
  held_out: bool = False  # validation is a part of the training files
  describe: Callable = dict  # () -> JSON object kept with the records
  sizes: dict = {}  # split -> rows that there should be
  count: Callable = lambda split: None  # rows that there are; None: unknown
  has_files: bool = False  # the shards are JSONL files

  @property
  def fields(self):
    """The names of a row's strings."""
    return ('id', 'text') if self.gsg else (
        'id', 'inputs', 'targets', 'references')


def has_files(config):
  """Whether a config names files, which replace its task."""
  data = config.data
  return bool(data.train_files or data.validation_files or data.test_files)


def is_gsg(task):
  """Whether a task is of gap sentences."""
  return BUILT_IN.get(task, False) or (
      task in corpora.TABLE and corpora.TABLE[task].gsg)


def names():
  """The names of all corpora and mixtures."""
  return (*BUILT_IN, *corpora.TABLE, *corpora.MIXTURES)


def corpus(config):
  """The corpus of a config.

  Args:
    config: a run's config; its task is no mixture.

  Returns:
    A Corpus.

  Raises:
    InputError: no task and no files, an unknown task, a glob without a match,
      gsg where the task summarises, data that is not there.
  """
  task = config.data.task
  if has_files(config):
    return _own_files(config)
  if not task:
    raise InputError(
        'nothing to train on: set config.data.train_files (JSONL, see README) '
        f'or config.data.task ({", ".join(names())})')
  if task in BUILT_IN:
    return _built_in(config, task)
  if task in corpora.TABLE:
    return _named(config, task)
  raise InputError(f'config.data.task={task!r} is none of the tasks '
                   f'{", ".join(names())}{suggest(task, names())}')


def is_usable(row, settings):
  """Whether a row gives a training example (gsg: is long enough)."""
  if settings is None:
    return bool(row['inputs'].strip() and row['targets'].strip())
  return gsg.gap_sentences(row['text'], **settings) is not None


def texts(row, paged):
  """The strings of a row that are read or written.

  Args:
    row: of a Corpus.
    paged: whether documents are cut into pages.
  """
  if 'text' in row:
    return [row['text']]
  inputs = row['inputs']
  if paged and inputs:
    inputs = '\n'.join(pages.texts(json.loads(inputs)))
  return [inputs, row['targets']]


# --- From a row of a file to a row of a Corpus -------------------------------


def _gsg_settings(config):
  """Keyword arguments of gap_sentences, checked."""
  given = dict(config.gsg or {})
  unknown = sorted(set(given) - set(GSG))
  if unknown:
    raise InputError(f'config.gsg has unknown keys {", ".join(unknown)}; '
                     f'expected {", ".join(GSG)}')
  settings = {**GSG, **given}
  gsg.select_sentences(['a', 'b'], settings['ratio'], settings['strategy'])
  return settings


def _settings_of(config, task):
  """`_gsg_settings` of a task of gap sentences, None of another."""
  if is_gsg(task):
    return _gsg_settings(config)
  if config.gsg is not None:
    raise InputError(f'config.gsg is set, but the task {task} summarises: '
                     'expected config.gsg=None')
  return None


def _finish(config, settings, where, row):
  """A row with document, summary, ... -> the row of a Corpus.

  Args:
    config: the run's config.
    settings: of gap sentences, or None.
    where: what to call the row in an error.
    row: dict with id and text; or id, document, summary, perhaps query,
      sections, documents, references.
  """
  name = str(row['id'])
  if settings is not None:
    return dict(id=name, text=row['text'])
  _check_parts(where, row)
  query, form = row.get('query') or '', config.data.pages
  if form:
    field = pages.FIELDS.get(form, 'document')
    if row.get(field) is None:
      raise InputError(f'{where}: no field {field!r}, which config.data.pages='
                       f'{form!r} needs')
    # Cut into pages where it is tokenised, by several processes.
    inputs = json.dumps({'query': query, field: row[field]})
  else:
    field = 'document'
    inputs = '\n\n'.join(filter(None, (query, row['document'])))
  found = row[field]
  if not (found.strip() if isinstance(found, str) else found):
    inputs = ''  # whatever the query
  references = row.get('references') or []
  return dict(id=name, inputs=inputs, targets=row['summary'],
              references=json.dumps(references) if len(references) > 1 else '')


def _check_parts(where, row):
  """Raises an InputError where an optional field has another form."""
  is_text = lambda value: isinstance(value, str)
  for field, what, is_part in (
      ('sections', 'objects with the strings heading and text',
       lambda part: isinstance(part, dict) and
       is_text(part.get('heading')) and is_text(part.get('text'))),
      ('documents', 'strings', is_text), ('references', 'strings', is_text)):
    value = row.get(field) or []
    if not isinstance(value, list) or not all(map(is_part, value)):
      raise InputError(f'{where}: field {field!r} must be a list of {what}')
  if not is_text(row.get('query') or ''):
    raise InputError(f"{where}: field 'query' must be a string, got "
                     f'{type(row["query"]).__name__}')


def _finish_all(config, settings, file, rows):
  """Yields (row as it was, `_finish` of it) of the rows of a file."""
  name = os.path.basename(file)
  for number, row in enumerate(rows):
    where = f'{name}: row {number + 1}'
    row = {'id': f'{name}:{number}', **row}
    yield row, _finish(config, settings, where, row)


def _sizes(files):
  """[[absolute path, bytes, time of change]] of files."""
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


# --- The user's own files ----------------------------------------------------


def _own_files(config):
  data = config.data
  given = dict(train=data.train_files, validation=data.validation_files,
               test=data.test_files)
  files = {split: sources.expand_globs(globs)
           for split, globs in given.items() if globs}
  # The task tells what becomes of the files: summaries, or gap sentences.
  by_task = config.gsg is None and is_gsg(data.task)
  settings = None if config.gsg is None and not by_task else (
      _gsg_settings(config))
  held_out = 'train' in files and 'validation' not in files
  if held_out:
    files['validation'] = files['train']
  # What a field is called here -> what it is called in the files.
  if settings:
    fields = dict(text='text' if by_task else data.input_field)
  else:
    fields = dict(document=data.input_field, summary=data.target_field)
    if data.query_field:
      fields['query'] = data.query_field

  def rows(file):
    """Yields (document, row)."""
    renamed = ({**row, **{ours: row[theirs] for ours, theirs in fields.items()}}
               for row in sources.read_jsonl([file], tuple(fields.values())))
    for row, finished in _finish_all(config, settings, file, renamed):
      yield row[next(iter(fields))], finished

  @functools.cache
  def stand_in():
    """The one document held back where the hash holds none back, else None."""
    smallest = None
    for file in files['train']:
      for document, row in rows(file):
        if is_usable(row, settings):
          if sources.is_held_out(document):
            return None
          key = hashlib.sha256(document.encode()).digest()
          smallest = min(smallest or (key, document), (key, document))
    return smallest and smallest[1]

  def read(split, file):
    for document, row in rows(file):
      if held_out and split != 'test':
        held = sources.is_held_out(document) or document == stand_in()
        if held != (split == 'validation'):
          continue
      yield row

  return Corpus(
      name='jsonl', splits=files, read=read, gsg=settings, held_out=held_out,
      has_files=True,
      made_of=lambda split: dict(
          files=_sizes(files[split]), held_out=held_out, fields=fields))


# --- Named corpora -----------------------------------------------------------


def _named(config, task):
  """A row of data/corpora.py: its local files, or else what TFDS prepared."""
  files = corpora.find_files(task, config.data.corpora_dir)
  if files and 'train' not in files:
    raise InputError(f'{config.data.corpora_dir}/{task}: no train*.jsonl or '
                     'train*.jsonl.gz')
  if files:
    return _named_in_files(config, task, files)
  return _named_in_tfds(config, task)


def _sizes_of(entry):
  """The numbers of rows that are asserted: C4 has several right ones."""
  return {} if entry.gsg else entry.splits


def _named_in_files(config, task, files):
  entry, settings = corpora.TABLE[task], _settings_of(config, task)
  needed = ('text',) if settings else ('document', 'summary')

  def read(split, file):
    del split
    for _, row in _finish_all(
        config, settings, file, sources.read_jsonl([file], needed)):
      yield row

  def count(split):
    return sum(1 for file in files[split] for _ in sources.read_lines(file))

  return Corpus(
      name=task, splits=files, read=read, gsg=settings, has_files=True,
      sizes=_sizes_of(entry), count=count,
      made_of=lambda split: dict(files=_sizes(files[split])))


def _named_in_tfds(config, task):
  entry, settings = corpora.TABLE[task], _settings_of(config, task)
  shards = corpora.find_tfds_shards(task, config.data)

  def read(split, name):
    from locost_jax.data import preprocessors  # TensorFlow
    shard, = (shard for shard in shards[split] if shard.name == name)
    rows = preprocessors.read_tfds(
        shard.tfds, split, config.data.tfds_dir, shard.number)
    for _, row in _finish_all(
        config, settings, f'{split} {name}', map(entry.row, rows)):
      yield row

  return Corpus(
      name=task, read=read, gsg=settings, sizes=_sizes_of(entry),
      splits={split: [shard.name for shard in found]
              for split, found in shards.items()},
      count=lambda split: corpora.count_tfds(shards[split], split),
      made_of=lambda split: dict(
          tfds=entry.tfds, files=_sizes(
              [shard.file for shard in shards[split] if shard.file])))


# --- The documentation on this machine ---------------------------------------

# task -> whether it is of gap sentences.
BUILT_IN = {'python_docs_gsg': True, 'python_docs_summary': False}


def _built_in(config, task):
  settings = _settings_of(config, task)

  def read(split, shard):
    del shard
    found = sources.builtin_corpus()
    for row in (found.documents if settings else found.pairs)[split]:
      yield _finish(config, settings, row.id, row._asdict())

  def describe():
    found = sources.builtin_corpus()
    return dict(checksum=found.checksum, counts=found.statistics)

  return Corpus(
      name=task, splits=dict(train=['all'], validation=['all']), read=read,
      gsg=settings, describe=describe, made_of=lambda split: dict(
          installed=_installed(),
          code=code_hash(('documentation.py', 'sources.py'))))


@functools.cache
def code_hash(modules):
  """Hash (hexadecimal) of modules of locost_jax.data, by their file names."""
  digest = hashlib.sha256()
  for module in modules:
    digest.update(pathlib.Path(__file__).with_name(module).read_bytes())
  return digest.hexdigest()


@functools.cache
def _installed():
  """Versions of what the built-in corpus is read from."""
  packages = importlib.metadata.packages_distributions()
  versions = dict(python=sys.version)
  for package in documentation.PACKAGES:
    versions[package] = sorted(
        f'{name} {importlib.metadata.version(name)}'
        for name in set(packages.get(package, ())))
  return versions
