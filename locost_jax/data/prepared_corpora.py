"""Finds the prepared files of the corpora in data/corpora.py.

A corpus is read from one of two places, and nothing is downloaded:

- local files, CORPORA/TASK/SPLIT*.jsonl or .jsonl.gz (config.data.corpora_dir),
  one object per line with `document` and `summary` (C4: `text`), and optionally
  `id`, `query`, `sections` (a list of {heading, text}), `documents` (a list of
  texts) and `references` (a list of all correct summaries or answers).
  papers/prepare.py makes them from the authors' files;
- TFDS, if it has a usable version of the corpus, prepared with `tfds build`.
"""

import glob
import json
import os
from typing import NamedTuple

from locost_jax.data import corpora
from locost_jax.data import sources
from locost_jax.errors import InputError

# Files of a split in the directory of a task; the last is allenai's copy of C4.
PATTERNS = ('{}*.jsonl', '{}*.jsonl.gz', 'c4-{}.*.json.gz')


class Shard(NamedTuple):
  """A file of a split in TFDS."""

  name: str
  tfds: str  # 'name/config:version'
  number: int | None  # of the file in the split; None: the whole split
  file: str | None  # path; None: TFDS is mocked and has no files


def find_files(task, directory):
  """Finds the local files of a task.

  Args:
    directory: config.data.corpora_dir.

  Returns:
    split -> sorted paths, for the splits that have files.
  """
  files = {}
  for split in corpora.TABLE[task].splits:
    found = [
        path
        for pattern in PATTERNS
        for path in glob.glob(
            os.path.join(glob.escape(directory), task, pattern.format(split))
        )
    ]
    if found:
      files[split] = sorted(found)
  return files


def find_tfds_shards(task, data):
  """Finds the files of a task that TFDS has prepared.

  Args:
    data: config.data: corpora_dir, tfds_dir.

  Returns:
    split -> list of Shard.

  Raises:
    InputError: the corpus is not prepared; the message says what to do.
  """
  entry = corpora.TABLE[task]
  try:
    found = {
        tfds: sources.find_tfds(tfds, data.tfds_dir) for tfds in entry.tfds
    }
  except InputError as error:
    found = {}
    ways = [f'{str(error).rstrip(".")} (it downloads {entry.download})']
  else:
    ways = []
  if found:
    return {
        split: [
            Shard(
                f'{tfds}#{i}' if file else tfds, tfds, i if file else None, file
            )
            for tfds, where in found.items()
            for i, file in enumerate(
                sources.tfds_shards(where, split) or [None]
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
  raise InputError(f'{task}: no {place}[.gz]; ' + '; or '.join(ways))


def count_tfds(shards, split):
  """Counts the rows of a split from TFDS's dataset_info.json.

  Args:
    shards: list of Shard of the split; see `find_tfds_shards`.

  Returns:
    The number of rows; None if TFDS is mocked.
  """
  total = 0
  for directory in {os.path.dirname(shard.file or '') for shard in shards}:
    if not directory:
      return None
    info = json.loads(_read(f'{directory}/dataset_info.json'))
    for found in info['splits']:
      if found['name'] == split:
        total += sum(map(int, found['shardLengths']))
  return total


def _read(path):
  """Reads a text file, also on gs://."""
  from etils import epath

  return epath.Path(path).read_text()
