"""Tokenises a split block by block, in one or several processes.

The rows of every shard are cut into blocks of at most ROWS rows and about
CHARACTERS characters. The cuts depend only on the rows. Each block becomes a
small cache PATH.parts/SHARD-BLOCK, written completely or not at all
(data/records.py). At the end the blocks are joined in order into PATH. A build
that was stopped resumes with the missing blocks. The result does not depend on
the number of processes or interruptions.
"""

import collections
import dataclasses
import json
import pathlib
import shutil
import time
from typing import Any

from ml_collections import ConfigDict

from locost_jax.config import object_store
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import preprocessors
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.data import workers
from locost_jax.data.preprocessors import trim
from locost_jax.errors import InputError

ROWS, CHARACTERS = 5000, 16_000_000
# Documents cut by the maximum lengths, and the tokens lost.
_CUT = 'inputs_cut', 'inputs_lost', 'targets_cut', 'targets_lost'
_COUNTS = (
    'records',
    'skipped',
    'dropped_pages',
    'dropped_in',
    'without_sections',
    *_CUT,
)


@dataclasses.dataclass(frozen=True)
class Job:
  """The rows to tokenise, in a form that other processes can be sent.

  Attributes:
    config: a run's config as a dict.
    shards: numbers of the shards to tokenise; None: all.
    limit: maximum records; 0: all. With a limit one process works.
    number: of this process; the others are set by `build`.
    parts: directory of the blocks.
    plain_text: see `corpus_rows.Corpus`.
    objects: what this run has found in buckets, so that all processes read it.
  """

  config: dict
  vocabulary: Any
  split: str
  shards: tuple | None = None
  limit: int = 0
  processes: int = 1
  number: int = 0
  parts: str = ''
  plain_text: int = 2
  objects: dict = dataclasses.field(default_factory=object_store.FOUND.copy)


def build(job, key, path, show=lambda records: None):
  """Tokenises a split into `path`; the caller holds the lock of `path`.

  Args:
    key: JSON object of everything that determines the records.
    show: function (number of records so far), called repeatedly.

  Raises:
    InputError: a row cannot be read (finished blocks are kept for the next
      build), or all shards together give no record (nothing is kept).
  """
  parts = pathlib.Path(f'{path}.parts')
  parts.mkdir(parents=True, exist_ok=True)
  processes = 1 if job.limit else job.processes
  job = dataclasses.replace(job, parts=str(parts), processes=processes)
  try:
    blocks = _make_blocks(job, parts, show)
    notes = _count(blocks)
    if job.limit:  # the last block may have counted rows beyond the limit
      for name in _CUT:
        notes.pop(name, None)
    if not notes.pop('records') and job.shards is None:
      shutil.rmtree(parts)
      config = ConfigDict(job.config)
      raise tasks.empty_error(
          config, corpus_lib.corpus(config), job.split, notes['skipped']
      )
    made = records.join(path, key, blocks, job.limit, lambda: notes)
  except InputError:
    if not any(parts.glob(f'*/{records.STATS}')):
      shutil.rmtree(parts, ignore_errors=True)
    raise
  shutil.rmtree(parts)
  return made


def _make_blocks(job, parts, show):
  """Tokenises the missing blocks; returns the paths of all, in order."""
  others = range(1, job.processes)
  team = workers.Workers(
      tokenise,
      [dataclasses.replace(job, number=n) for n in others],
      [parts / f'worker-{n}.log' for n in others],
  )
  finished = {}
  try:
    blocks = tokenise(job, team, finished, show)
    while team.running():
      show(_finished(parts, finished))
      time.sleep(0.2)
  finally:
    team.close()
  return blocks


def tokenise(job, team=None, finished=None, show=lambda records: None):
  """Tokenises a process's share of the missing blocks; returns all their paths.

  Of P processes, which all read all rows, process p makes every P-th block.
  """
  object_store.FOUND.update(job.objects)
  config, parts = ConfigDict(job.config), pathlib.Path(job.parts)
  found = corpus_lib.corpus(config)._replace(plain_text=job.plain_text)
  shards = found.splits[job.split]
  blocks, finished = [], {} if finished is None else finished
  for shard in range(len(shards)) if job.shards is None else job.shards:
    for number, rows in enumerate(_cut(found.read(job.split, shards[shard]))):
      path = parts / f'{shard:05d}-{number:05d}'
      # The name of PATH contains the hash of everything else.
      key = dict(shard=shard, block=number, cut=[ROWS, CHARACTERS])
      is_own = len(blocks) % job.processes == job.number
      blocks.append(path)
      if team is not None:
        team.running()  # raises the error of a process that failed
      if is_own and not records.is_complete(path, key):
        shutil.rmtree(path, ignore_errors=True)  # it may have another key
        done = _finished(parts, finished)
        _make_block(job, found, rows, path, key, lambda n: show(done + n))
      show(_finished(parts, finished))
      if job.limit and _count(blocks)['records'] >= job.limit:
        return blocks
  return blocks


def _make_block(job, found, rows, path, key, show):
  """Writes the cache of one block; `show` gets the number of its records."""
  data, counts = ConfigDict(job.config).data, collections.Counter(skipped=0)
  make = preprocessors.maker(found, data, job.vocabulary)

  def examples():
    for row in rows:
      # Every row of the other splits counts.
      made = make(row, keep_empty=job.split != 'train')
      if made is None:
        counts['skipped'] += 1
        continue
      for side, length in trim(made, data, job.vocabulary).items():
        lost = length - len(made[side])
        counts.update({f'{side}_cut': int(lost > 0), f'{side}_lost': lost})
      yield made

  records.write(
      path,
      key,
      (show(i) or row for i, row in enumerate(examples())),
      job.vocabulary.size,
      lambda: dict(**counts, **corpus_rows.count_pages(rows, data)),
  )


def _finished(parts, known):
  """Returns the records of finished blocks; updates {stats file: records}."""
  for stats in parts.glob(f'*-*[0-9]/{records.STATS}'):
    if stats not in known:
      known[stats] = json.loads(stats.read_text())['records']
  return sum(known.values())


def _count(blocks):
  """Sums the counts of finished blocks: records, skipped, ... (_COUNTS)."""
  total = collections.Counter(records=0, skipped=0)
  for block in blocks:
    stats = json.loads((block / records.STATS).read_text())
    total.update({name: stats[name] for name in _COUNTS if name in stats})
  return dict(total)


def _cut(rows):
  """Yields the rows in lists; one [] if there are no rows."""
  block, characters, some = [], 0, False
  for row in rows:
    block.append(row)
    characters += sum(map(len, row.values()))
    if len(block) == ROWS or characters >= CHARACTERS:
      yield block
      block, characters, some = [], 0, True
  if block or not some:
    yield block
