"""What a run trains on: named tasks, or the user's own JSONL, as SeqIO tasks.

`NAMED` is the table of named tasks; a corpus of another kind is one row there
and its reader. `config.data.train_files` (with validation_files, test_files)
replaces `config.data.task`: the rows of those files, to be summarised
(input_field -> target_field) or, with `config.gsg`, made into gap sentences
(input_field). Files without validation files lend 2% of their rows to
validation, by a hash of the input text, so that copies fall on one side.

`make_task` gives a seqio.Task, which works in SeqIO's own pipelines and
mixtures too; inside locost_jax it is read once, by data/cache.py. Everything
else here needs neither TensorFlow nor SeqIO (but TFDS for a corpus of its).
"""

import functools
import glob
import hashlib
import importlib.metadata
import itertools
import os
import pathlib
import sys
from typing import Callable, NamedTuple

from locost_jax.data import documentation
from locost_jax.data import gsg
from locost_jax.data import sources
from locost_jax.data import vocabulary as vocabulary_lib
from locost_jax.errors import InputError

GSG = dict(ratio=0.2, strategy='independent', mask='')  # the paper's
# Documents that a vocabulary is trained on at most: a few thousand pieces need
# a few megabytes of text, and C4 has 365M documents.
VOCABULARY_DOCUMENTS = 100_000


class Corpus(NamedTuple):
  """Rows of text on disk. Rows are dicts of strings: id and text for gap
  sentences, id, inputs and targets for summarising."""
  name: str  # of the task
  splits: dict  # split -> list of its shards' names
  read: Callable  # (split, shard's name) -> iterator of rows; None: TFDS
  fields: tuple  # of a row
  gsg: dict | None  # keyword arguments of gap_sentences; None: summarising
  made_of: Callable  # split -> JSON object, another when rows may have changed
  held_out: bool = False  # validation is a part of the training files
  describe: Callable = dict  # () -> JSON object kept with the records
  tfds: str = ''  # name and version of a TFDS corpus


def corpus(config):
  """The corpus of a run's config.

  Raises:
    InputError: no task and no files, an unknown task, a glob without a match,
      gsg where the task summarises, TFDS data that is not there.
  """
  data = config.data
  if data.train_files or data.validation_files or data.test_files:
    return _jsonl(config)
  if not data.task:
    raise InputError(
        'nothing to train on: set config.data.train_files (JSONL, see README) '
        f'or config.data.task ({", ".join(NAMED)})')
  if data.task not in NAMED:
    raise InputError(f'config.data.task={data.task!r} is none of the tasks '
                     f'{", ".join(NAMED)}')
  return NAMED[data.task](config, data.task)


def _gsg(config):
  """Keyword arguments of gap_sentences, checked."""
  given = dict(config.gsg or {})
  unknown = sorted(set(given) - set(GSG))
  if unknown:
    raise InputError(f'config.gsg has unknown keys {", ".join(unknown)}; '
                     f'expected {", ".join(GSG)}')
  settings = {**GSG, **given}
  gsg.select_sentences(['a', 'b'], settings['ratio'], settings['strategy'])
  return settings


def _tfds(config, name, dataset):
  directory = sources.find_tfds(dataset, config.data.tfds_dir)
  files = {
      split: sorted(glob.glob(os.path.join(
          glob.escape(str(directory)), f'*-{split}.*-of-*')))
      for split in ('train', 'validation')}
  return Corpus(
      name=name, splits={split: files[split] or ['all'] for split in files},
      read=None, fields=('id', 'text'), gsg=_gsg(config), tfds=dataset,
      made_of=lambda split: dict(tfds=dataset, files=_sizes(files[split])))


def _tfds_dir(config):
  return os.path.expanduser(config.data.tfds_dir) or None


def _python_docs(config, name, summarise):
  if summarise and config.gsg is not None:
    raise InputError(f'config.gsg is set, but the task {name} summarises: '
                     'expected config.gsg=None')

  def read(split, shard):
    del shard
    found = sources.builtin_corpus()
    if summarise:
      for pair in found.pairs[split]:
        yield dict(id=pair.id, inputs=pair.document, targets=pair.summary)
    else:
      for document in found.documents[split]:
        yield dict(id=document.id, text=document.text)

  def describe():
    found = sources.builtin_corpus()
    return dict(checksum=found.checksum, counts=found.statistics)

  fields = ('id', 'inputs', 'targets') if summarise else ('id', 'text')
  return Corpus(
      name=name, splits=dict(train=['all'], validation=['all']), read=read,
      fields=fields, gsg=None if summarise else _gsg(config),
      describe=describe, made_of=lambda split: dict(
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


NAMED = {
    'c4_gsg': functools.partial(_tfds, dataset='c4/en:3.1.0'),
    'python_docs_gsg': functools.partial(_python_docs, summarise=False),
    'python_docs_summary': functools.partial(_python_docs, summarise=True),
}


def _jsonl(config):
  data = config.data
  given = dict(train=data.train_files, validation=data.validation_files,
               test=data.test_files)
  files = {split: sources.expand_globs(globs)
           for split, globs in given.items() if globs}
  settings = None if config.gsg is None else _gsg(config)
  held_out = 'train' in files and 'validation' not in files
  if held_out:
    files['validation'] = files['train']
  fields = ('id', 'text') if settings else ('id', 'inputs', 'targets')

  def rows(file):
    read = (data.input_field,) if settings else (
        data.input_field, data.target_field)
    for number, row in enumerate(sources.read_jsonl([file], read)):
      # Not `or`: an id may be 0.
      name = str(row['id']) if 'id' in row else (
          f'{os.path.basename(file)}:{number}')
      if settings:
        yield dict(id=name, text=row[data.input_field])
        continue
      yield dict(id=name, inputs=row[data.input_field],
                 targets=row[data.target_field])

  @functools.cache
  def stand_in():
    """The one input held back where the hash holds none back, else None."""
    smallest = None
    for file in files['train']:
      for row in rows(file):
        if is_usable(row, settings):
          text = row[fields[1]]
          if sources.is_held_out(text):
            return None
          key = hashlib.sha256(text.encode()).digest()
          smallest = min(smallest or (key, text), (key, text))
    return smallest and smallest[1]

  def read(split, file):
    for row in rows(file):
      if held_out and split != 'test':
        text = row[fields[1]]
        held = sources.is_held_out(text) or text == stand_in()
        if held != (split == 'validation'):
          continue
      yield row

  return Corpus(
      name='jsonl', splits=files, read=read, fields=fields, gsg=settings,
      held_out=held_out, made_of=lambda split: dict(
          files=_sizes(files[split]), held_out=held_out,
          input_field=data.input_field,
          target_field='' if settings else data.target_field))


def is_usable(row, settings):
  """Whether a row gives a training example (gsg: is long enough)."""
  if settings is None:
    return bool(row['inputs'].strip() and row['targets'].strip())
  return gsg.gap_sentences(row['text'], **settings) is not None


def _sizes(files):
  """[[absolute path, bytes, time of change in ns]] of files."""
  stats = [(os.path.abspath(file), os.stat(file)) for file in files]
  return [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def check(config):
  """Looks, before anything is made, whether the data can be what it should.

  Cheap: the first row of every file, and rows until one is long enough. No
  TensorFlow (but TFDS where the task is of TFDS).

  Args:
    config: the run's config.

  Raises:
    InputError: an unknown task; globs without a match; a first row that is no
      JSON object or lacks a field; an empty corpus; a corpus in which every
      document is too short for gap sentences; no such vocabulary; settings
      that cannot be.
  """
  data = config.data
  for name in 'max_input_length', 'max_target_length':
    if data[name] < 2:
      raise InputError(f'config.data.{name}={data[name]} must be at least 2: '
                       'one token and the end mark')
  if data.window_shards < 1:
    raise InputError(f'config.data.window_shards={data.window_shards} must be '
                     'at least 1')
  found = corpus(config)
  if found.name == 'jsonl':
    for split, files in found.splits.items():
      for file in files:
        next(found.read(split, file), None)
    for split in found.splits:
      _check_any(config, found, split)
  if data.vocabulary not in ('train', 'byte'):
    if not os.path.exists(data.vocabulary):
      raise InputError(
          f'config.data.vocabulary={data.vocabulary!r}: no such file; give a '
          "SentencePiece model (T5's is the spiece.model or tokenizer "
          "directory of any T5 release), 'byte', or 'train' to make one from "
          'the training text')
    vocabulary_lib.load_vocabulary(data.vocabulary)


def _check_any(config, found, split):
  """Raises an InputError unless the split has a usable row."""
  rows = 0
  for file in found.splits[split]:
    for row in found.read(split, file):
      if is_usable(row, found.gsg):
        return
      rows += 1
  raise empty_error(config, found, split, rows)


def empty_error(config, found, split, rows):
  """The InputError for a split that gives no record.

  Args:
    config: the run's config.
    found: its corpus.
    split: name of the split.
    rows: documents that were there, but gave nothing.
  """
  where = config.data[f'{split}_files'] if found.name == 'jsonl' else ''
  where = where or found.name
  if found.held_out and not rows and (split == 'validation' or any(
      next(found.read('validation', file), None)
      for file in found.splits['validation'])):
    return InputError(
        f'{config.data.train_files}: too few rows to hold some back for '
        'validation; give config.data.validation_files')
  if not rows:
    return InputError(f'{where}: the {split} split is empty: no documents')
  if found.gsg is None:
    return InputError(f'{where}: all {rows} rows of the {split} split have an '
                      'empty input or target')
  return InputError(
      f'{where}: all {rows} documents of the {split} split are too short for '
      f'gap sentences: ratio={found.gsg["ratio"]} of the sentences must be at '
      'least one sentence')


def training_texts(config):
  """The text that a vocabulary is trained on: the training split's.

  Args:
    config: the run's config.

  Yields:
    Strings: documents, and for summarising also the summaries. At most
    VOCABULARY_DOCUMENTS rows, of the first shards.
  """
  found = corpus(config)
  if found.read is None:
    import tensorflow_datasets as tfds
    rows = tfds.as_numpy(tfds.load(
        found.tfds, split='train', data_dir=_tfds_dir(config), download=False))
    texts = ((row['text'].decode('utf-8', 'replace'),) for row in rows)
  else:
    rows = (row for shard in found.splits['train']
            for row in found.read('train', shard))
    texts = ([row[field] for field in found.fields[1:]] for row in rows)
  for row in itertools.islice(texts, VOCABULARY_DOCUMENTS):
    yield from row


def make_task(config, vocabulary, on_skip=None):
  """The run's task as a seqio.Task.

  Its examples have id, inputs and targets (int32, trimmed to the
  sequence_length given to get_dataset, then eos), inputs_pretokenized and
  targets_pretokenized.

  Args:
    config: the run's config.
    vocabulary: one of data/vocabulary.py.
    on_skip: called with the id of every document that gives no example.

  Returns:
    A seqio.Task. Not registered: `seqio.TaskRegistry.add_provider(task.name,
    task)` does that.

  Raises:
    InputError: as `corpus`.
  """
  import seqio
  from locost_jax.data import preprocessors
  found = corpus(config)
  steps = []
  if found.read is None:
    source = seqio.TfdsDataSource(
        found.tfds, tfds_data_dir=_tfds_dir(config),
        splits=tuple(found.splits), read_only=True)
    # C4 has no ids; a URL occurs once.
    steps.append(functools.partial(
        preprocessors.select, fields=dict(id='url', text='text')))
  else:
    def skip(split, row):
      # An empty summary teaches nothing; in the other splits every row counts.
      return (found.gsg is None and split == 'train'
              and not is_usable(row, None))
    source = preprocessors.RowSource(
        found.splits, found.fields, found.read, skip, on_skip)
  if found.gsg is not None:
    steps.append(functools.partial(
        preprocessors.gap_sentences, on_skip=on_skip, **found.gsg))
  steps += [seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos_after_trim]
  feature = seqio.Feature(preprocessors.Vocabulary(vocabulary), add_eos=True)
  return seqio.Task(
      found.name, source=source, preprocessors=steps,
      output_features=dict(inputs=feature, targets=feature))
