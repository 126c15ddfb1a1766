"""Checks the data of a run's tasks and finds or trains their vocabulary.

`config.data.task` names a corpus (data/corpus.py) or a mixture
(data/corpora.py). Files in `config.data.train_files`, `validation_files` or
`test_files` replace it.
"""

import hashlib
import itertools
import json
import os
import pathlib
import sys
import tempfile

from locost_jax.config import object_store
from locost_jax.data import corpora
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import file_formats
from locost_jax.errors import InputError
from locost_jax.vocabularies import sentencepiece_training
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# Most documents to train a vocabulary on: a few thousand pieces need a few
# megabytes of text, and C4 has 365M documents.
VOCABULARY_DOCUMENTS = 100_000


def members(config):
  """Lists the tasks of a config (of a mixture: several): {name: own config}.

  The name of files is 'jsonl'.
  """
  if corpus_lib.has_files(config):
    return {'jsonl': config}
  if config.data.task not in corpora.MIXTURES:
    return {config.data.task: config}
  found = {}
  for name in corpora.MIXTURES[config.data.task]:
    found[name] = config.copy_and_resolve_references()
    found[name].data.task = name
  return found


def name(config):
  """Returns 'jsonl' for own files, or the name of the task or mixture."""
  return 'jsonl' if corpus_lib.has_files(config) else config.data.task


def check(config):
  """Checks settings and data before a run makes anything.

  It reads the first row of every file, and more rows until one is long enough.
  It needs no TensorFlow, except for corpora in TFDS.
  """
  data = config.data
  check_settings(config)
  masks = set()
  for member in members(config).values():
    found = corpus_lib.corpus(member)
    masks |= {found.gsg['mask']} if found.gsg else set()
    if data.pages and found.gsg is not None:
      raise InputError(
          f'config.data.pages={data.pages!r}: gap sentences are '
          "not cut into pages: expected ''"
      )
    for split, files in found.splits.items() if found.has_files else ():
      # Held-out rows are in the training files, which are checked anyway.
      for file in () if split == 'validation' and found.held_out else files:
        next(found.read(split, file), None)
    if found.name == 'jsonl':
      for split in found.splits if found.has_files else ():
        _check_any(member, found, split)
  if data.vocabulary not in ('train', 'byte'):
    is_here = object_store.is_uri(data.vocabulary)  # or loading it says why not
    if not is_here and not os.path.exists(data.vocabulary):
      raise InputError(
          f'config.data.vocabulary={data.vocabulary!r}: no such file; give a '
          "SentencePiece model (T5's is the spiece.model or tokenizer "
          "directory of any T5 release), BART's tokenizer directory, 'byte', "
          "or 'train' to make one from the training text"
      )
    vocabulary = vocabulary_lib.load_vocabulary(data.vocabulary)
    _check_tokens(data, masks, vocabulary)


def check_settings(config):
  """Checks the settings of data, without files."""
  data = config.data
  if data.task:
    corpus_lib.check_name(data.task)  # also where files replace it
  elif not corpus_lib.has_files(config):
    corpus_lib.corpus(config)  # raises: nothing to train on
  if data.query_in == 'every' and not data.pages:
    raise InputError(
        "config.data.query_in='every': a document of one sequence has no "
        "pages; expected '' or 'first', or config.data.pages"
    )
  if data.document_length and data.pages != 'spatial':
    raise InputError(
        f'config.data.document_length={data.document_length}: expected 0, or '
        "with config.data.pages='spatial' the tokens kept of a document"
    )


def _check_tokens(data, masks, vocabulary):
  """Raises an InputError if lengths or masks do not fit the vocabulary."""
  marks = len(vocabulary_lib.surround(vocabulary, [], True))
  for key in ('max_input_length', 'max_target_length'):
    if data[key] <= marks:
      raise InputError(
          f'config.data.{key}={data[key]} must be at least '
          f'{marks + 1}: one token and {marks} marks'
      )
  for mask in masks - {''}:
    if not vocabulary.extra_ids and len(vocabulary.encode(mask)) != 1:
      raise InputError(
          f'config.gsg.mask={mask!r}: is no token of {data.vocabulary}, which '
          "has no sentinels; expected a token of it, like BART's '<mask>'"
      )


def check_starts(config, vocabulary):
  """Raises an InputError if a setting asks for a bos the vocabulary lacks.

  Args:
    vocabulary: one of vocabularies/vocabulary.py, or the class of the one that
      is to be trained.
  """
  for key, value in (
      ('data.targets_start', config.data.targets_start),
      ('decode.start', config.decode.start),
  ):
    if value == 'bos' and vocabulary.bos_id is None:
      raise InputError(
          f"config.{key}='bos': the vocabulary of config.data.vocabulary="
          f'{config.data.vocabulary} has no mark at the beginning of a text, '
          "as BART's has; expected 'start_id'"
      )


def check_training(config):
  """Raises an InputError if the files of a config have no training split."""
  for member in members(config).values():
    if 'train' in corpus_lib.corpus(member).splits:
      continue
    task = config.data.task
    raise InputError(
        "config.data.train_files='': nothing to train on; expected files, like "
        'those of the other splits'
        + f', or no files at all for config.data.task={task!r}' * bool(task)
    )


def _check_any(config, found, split):
  """Raises an InputError unless the split has a usable row."""
  rows = 0
  for row in found.rows(split):
    # Summaries of a test split may be hidden, that is, empty.
    if (split != 'train' and found.gsg is None) or corpus_rows.is_usable(
        row, found.gsg
    ):
      return
    rows += 1
  raise empty_error(config, found, split, rows)


def empty_error(config, found, split, rows):
  """Returns the InputError for a split that gives no record."""
  where = config.data[f'{split}_files'] if found.name == 'jsonl' else ''
  where = where or found.name
  has_held_out = lambda: any(found.rows('validation'))
  if found.held_out and not rows and (split == 'validation' or has_held_out()):
    is_text = any(map(file_formats.is_text, found.splits['train']))
    return InputError(
        f'{config.data.train_files}: too few rows to hold some back for '
        'validation; give config.data.validation_files'
        + " or config.data.text_unit='paragraph' or 'line'" * is_text
    )
  if not rows:
    return InputError(f'{where}: the {split} split is empty: no documents')
  if found.gsg is None:
    return InputError(
        f'{where}: all {rows} rows of the {split} split have an '
        'empty input or target'
    )
  return InputError(
      f'{where}: all {rows} documents of the {split} split are too short for '
      f'gap sentences: ratio={found.gsg["ratio"]} of the sentences must be at '
      'least one sentence'
  )


def check_size(config, found, split):
  """Raises an InputError if a corpus has an unexpected number of rows."""
  expected = found.sizes.get(split)
  if expected is None or not config.data.check_sizes:
    return
  rows = found.count(split)
  if rows != expected:
    entry = corpora.TABLE[found.name]
    raise InputError(
        f'{found.name}: the {split} split has {rows:,} rows, expected '
        f'{expected:,} ({entry.counted_by}); to use it anyway, set '
        '--config.data.check_sizes=False'
    )


def training_texts(config):
  """Yields the texts of the training split, to train a vocabulary on.

  They come from the first VOCABULARY_DOCUMENTS rows at most; the tasks of a
  mixture share this number equally.
  """
  configs = members(config).values()
  for member in configs:
    rows = corpus_lib.corpus(member).rows('train')
    for row in itertools.islice(rows, VOCABULARY_DOCUMENTS // len(configs)):
      yield from corpus_rows.texts(row, bool(member.data.pages))


def vocabulary_home(config, directory):
  """Returns the path in a directory of a vocabulary trained on a config."""
  data = config.data
  made_of = [
      [corpus_lib.corpus(member).made_of('train'), member.data.query_field]
      for member in members(config).values()
  ]
  key = json.dumps([made_of, data.seed, bool(data.pages)], sort_keys=True)
  digest = hashlib.sha256(key.encode()).hexdigest()[:8]
  return pathlib.Path(directory) / (
      f'vocabulary-{name(config)}-{data.vocabulary_size}-{digest}'
  )


def in_language(vocabulary, data):
  """Returns a vocabulary that marks texts with config.data.language, if set."""
  if not data.language:
    return vocabulary
  key = 'config.data.language'
  return vocabulary_lib.with_language(vocabulary, data.language, key)


def find_vocabulary(config):
  """Returns the vocabulary of a config.

  With config.data.vocabulary='train' it is read from config.data.cache_dir if
  it is there; otherwise it is trained, which one line on stderr reports.
  """
  data = config.data
  if data.vocabulary != 'train':
    return in_language(vocabulary_lib.load_vocabulary(data.vocabulary), data)
  in_language(None, data)  # raises if set: a trained one has no languages
  check_training(config)
  if data.cache_dir:
    home = vocabulary_home(config, data.cache_dir)
    if object_store.is_uri(data.cache_dir):
      home = object_store.copy_cache(config.data, home.name)
    if home.exists():
      return vocabulary_lib.load_vocabulary(home)
  print(
      f'training a vocabulary of {data.vocabulary_size} tokens',
      file=sys.stderr,
      flush=True,
  )
  with tempfile.TemporaryDirectory() as directory:
    return sentencepiece_training.train(
        training_texts(config),
        os.path.join(directory, 'spiece.model'),
        config.data.vocabulary_size,
        config.data.seed,
    )
