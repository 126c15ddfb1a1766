"""Finds the prepared files of the corpora in data/corpora.py.

A corpus is read from one of these places, and nothing is downloaded:

- local files, CORPORA/TASK/SPLIT*.jsonl or .jsonl.gz (config.data.corpora_dir),
  one object per line with `document` and `summary` (C4: `text`), and optionally
  `id`, `query`, `sections` (a list of {heading, text}), `documents` (a list of
  texts) and `references` (a list of all correct summaries or answers).
  papers/prepare.py makes them from the authors' files;
- SPLIT*.parquet, .csv or .jsonl there, with the fields that the Hugging Face
  Hub, SCROLLS or the authors published (`corpora.COLUMNS`; C4: `text`);
- TFDS, if it has a usable version of the corpus, prepared with `tfds build`.
"""

import glob
import importlib.util
import json
import os
import sys
from typing import NamedTuple

from locost_jax.data import corpora
from locost_jax.data import corpus_rows
from locost_jax.data import file_formats
from locost_jax.data import sources
from locost_jax.errors import InputError

# Files of a split in the directory of a task: prepared ones, allenai's copy of
# C4, and the Hub's own and converted files.
PATTERNS = (
    '{}*.jsonl',
    '{}*.jsonl.gz',
    'c4-{}.*.json.gz',
    '{}*.parquet',
    '{}/*.parquet',
    '{}*.csv',
)


class Shard(NamedTuple):
  """A file of a split in TFDS."""

  tfds: str  # 'name/config:version'
  number: int  # of the file in the split
  file: str  # path


def corpus(config, settings):
  """Finds the Corpus of config.data.task in local files, or else in TFDS.

  Args:
    settings: keyword arguments of gap_sentences; None: summarising.

  Raises:
    InputError: the corpus is not prepared; the message says what to do.
  """
  task = config.data.task
  files = find_files(task, config.data.corpora_dir)
  if files and 'train' not in files:
    raise InputError(
        f'{config.data.corpora_dir}/{task}: no train*.jsonl or '
        'train*.jsonl.gz, and no train*.parquet'
    )
  entry = corpora.TABLE[task]
  splits = files or find_tfds_shards(task, config.data)
  fields = ('text',) if settings else ('document', 'summary')

  def read(split, shard):
    if files:
      where, rows = shard, _read_file(shard, fields, entry, split)
    else:
      where = f'{split} {shard.tfds}#{shard.number}'
      rows = map(entry.row, _read_tfds(shard, split, config.data.tfds_dir))
    for _, row in corpus_rows.make_rows(config, settings, where, rows):
      yield row

  def count(split):
    if not files:
      return count_tfds(splits[split], split)
    return sum(
        sum(1 for _ in read(split, file))
        if entry.rows or file.endswith('.csv')  # a line is not a row
        else file_formats.count_rows(file)
        for file in files[split]
    )

  def made_of(split):
    if files:
      return dict(files=corpus_rows.stat_files(files[split]))
    found = [shard.file for shard in splits[split]]
    return dict(tfds=entry.tfds, files=corpus_rows.stat_files(found))

  return corpus_rows.Corpus(
      name=task,
      splits=splits,
      read=read,
      gsg=settings,
      made_of=made_of,
      sizes={} if entry.gsg else entry.splits,  # the copies of C4 differ
      count=count,
      has_files=bool(files),
  )


def find_files(task, directory):
  """Finds the local files of a task: split -> sorted paths."""
  files, directory = {}, os.path.join(glob.escape(directory), task)
  for split in corpora.TABLE[task].splits:
    names = (split, 'dev') if split == 'validation' else (split,)
    for pattern in (p.format(name) for name in names for p in PATTERNS):
      found = glob.glob(os.path.join(directory, pattern))
      files.setdefault(split, []).extend(found)
  return {split: sorted(found) for split, found in files.items() if found}


def _read_file(file, fields, entry, split):
  """Reads prepared rows, or published ones, which it converts."""
  is_json = not file.endswith(('.parquet', '.csv'))
  # The fields of a prepared row, which are checked at once.
  checked = lambda row: fields if corpora.columns(row) == fields else ()
  names = fields if entry.gsg else checked if is_json else corpora.columns
  for n, row in enumerate(file_formats.read_rows(file, names, ''), 1):
    if entry.gsg or (is_json and checked(row)):
      yield row
      continue
    try:
      made = [*entry.rows(row, split)] if entry.rows else [entry.row(row)]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
      raise InputError(
          f'{file}: row {n}: not as published: {type(error).__name__}: {error}'
      ) from None
    for one in made:
      sources.check_texts(f'{file}: row {n}', one, fields)
    yield from made


def find_tfds_shards(task, data):
  """Finds the files that TFDS prepared of a task: split -> list of Shard."""
  entry, ways = corpora.TABLE[task], []
  try:
    found = {tfds: find_tfds(tfds, data.tfds_dir) for tfds in entry.tfds}
  except InputError as error:
    found = {}
    ways = [f'{str(error).rstrip(".")} (it downloads {entry.download})']
  if found:
    if importlib.util.find_spec('tensorflow_datasets') is None:
      raise InputError(
          f'{task}: prepared by TFDS, which is not installed: pip install '
          '"locost_jax[train]", with Python 3.13 at most'
      )
    return {
        split: [
            Shard(tfds, i, file)
            for tfds, where in found.items()
            for i, file in enumerate(
                sorted(map(str, where.glob(f'*-{split}.*-of-*')))
            )
        ]
        for split in entry.splits
    }
  place = os.path.join(data.corpora_dir, task, 'train*.jsonl')
  if entry.raw:
    ways.insert(
        0,
        f'make it of {entry.raw}, in a checkout: `python -m papers.prepare '
        f'--task={task} --raw=DIR --output={data.corpora_dir}`',
    )
  missing = f'{task}: no {place}[.gz] and no train*.parquet of the Hub'
  raise InputError(missing + '; ' * bool(ways) + '; or '.join(ways))


def find_tfds(name, tfds_dir=''):
  """Finds the directory, an epath.Path, of a corpus that TFDS prepared.

  Args:
    name: 'dataset:version' or 'dataset/config:version'.
    tfds_dir: data directory of TFDS; '': $TFDS_DATA_DIR, or else
      ~/tensorflow_datasets.
  """
  from etils import epath  # also reads gs:// and the like

  base = epath.Path(
      tfds_dir or os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
  ).expanduser()
  dataset, _, version = name.partition(':')
  directory = base / dataset / version
  if not (directory / 'dataset_info.json').exists():
    where = f' --data_dir={tfds_dir}' if tfds_dir else ''
    raise InputError(
        f'{name}: not prepared by TFDS: expected '
        f'{directory}/dataset_info.json. Prepare it with '
        f'`tfds build {dataset}{where}`, or set config.data.tfds_dir to the '
        'data directory of TFDS'
    )
  return directory


def load_tensorflow():
  """Imports TensorFlow quietly and keeps it off the accelerators; returns it.

  A line of its C++ code, "GPU will not be used", does not apply to JAX, and no
  setting turns it off. Exceptions are still raised.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # after loading
  sys.stderr.flush()
  kept = os.dup(2)
  try:
    with open(os.devnull, 'wb') as nothing:
      os.dup2(nothing.fileno(), 2)
    import tensorflow as tf
  finally:
    os.dup2(kept, 2)
    os.close(kept)
  try:
    # TensorFlow would otherwise allocate the accelerators' memory.
    tf.config.set_visible_devices([], 'GPU')
    tf.config.set_visible_devices([], 'TPU')
  except RuntimeError:
    pass  # TensorFlow is already initialised in this process
  return tf


def _read_tfds(shard, split, tfds_dir):
  """Yields the rows of a Shard that `find_tfds` has found; downloads nothing.

  TFDS itself takes minutes to find that a corpus is not prepared.
  """
  load_tensorflow()
  import tensorflow_datasets as tfds

  rows = tfds.load(
      shard.tfds,
      split=f'{split}[{shard.number}shard:{shard.number + 1}shard]',
      download=False,
      shuffle_files=False,
      data_dir=os.path.expanduser(tfds_dir) or None,
  )
  for row in tfds.as_numpy(rows):
    yield {
        key: value.decode('utf-8', 'replace')
        for key, value in row.items()
        if isinstance(value, bytes)
    }


def count_tfds(shards, split):
  """Counts the rows of a split in dataset_info.json."""
  from etils import epath

  total = 0
  for directory in {os.path.dirname(shard.file) for shard in shards}:
    info = json.loads(epath.Path(directory, 'dataset_info.json').read_text())
    for found in info['splits']:
      if found['name'] == split:
        total += sum(map(int, found['shardLengths']))
  return total
