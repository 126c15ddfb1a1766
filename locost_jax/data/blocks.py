"""Tokenises a split block by block, in one or several processes.

The rows of every shard are cut into blocks of at most ROWS rows and about
CHARACTERS characters. The cuts depend only on the rows. Each block becomes a
small cache PATH.parts/SHARD-BLOCK, written completely or not at all
(data/records.py). At the end the blocks are joined in order into PATH. A build
that was stopped resumes with the missing blocks. The result does not depend on
the number of processes or interruptions.
"""

import json
import pathlib
import shutil
import sys
import time

from ml_collections import ConfigDict

from locost_jax import files
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import records
from locost_jax.data import sources
from locost_jax.data import tasks
from locost_jax.data import text_to_tokens
from locost_jax.data import workers
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
DONE = 'done-{}.json'  # of worker number {}: {shard: its number of blocks}


def build(
    config,
    vocabulary,
    split,
    key,
    path,
    shards=None,
    limit=0,
    processes=1,
    show=lambda records: None,
):
  """Tokenises a split into `path`; the caller holds the lock of `path`.

  Args:
    key: JSON object of everything that determines the records.
    shards: numbers of the shards to tokenise; None: all.
    limit: maximum records; 0: all. With a limit one process works.
    show: function (number of records so far), called repeatedly.

  Returns:
    The stats of the cache; see `records.write`.

  Raises:
    InputError: a row cannot be read (finished blocks are kept for the next
      build), or all shards together give no record (nothing is kept).
  """
  found = corpus_lib.corpus(config)
  if shards is None:
    shards = list(range(len(found.splits[split])))
  parts = pathlib.Path(f'{path}.parts')
  parts.mkdir(parents=True, exist_ok=True)
  job = dict(
      config=config.to_dict(),
      vocabulary=vocabulary,
      split=split,
      shards=shards,
      parts=str(parts),
      limit=limit,
      processes=1 if limit else processes,
  )
  try:
    blocks = _make_blocks(job, parts, show)
    notes = _count(blocks)
    if limit:  # the last block may have counted rows beyond the limit
      for name in _CUT:
        notes.pop(name, None)
    if not notes.pop('records') and shards == list(
        range(len(found.splits[split]))
    ):
      shutil.rmtree(parts)
      raise tasks.empty_error(config, found, split, notes['skipped'])
    made = records.join(
        path,
        key,
        blocks,
        limit,
        lambda: notes,
    )
  except InputError:
    if not any(parts.glob(f'*/{records.STATS}')):
      shutil.rmtree(parts, ignore_errors=True)
    raise
  shutil.rmtree(parts)
  return made


def _make_blocks(job, parts, show):
  """Tokenises the missing blocks; returns the paths of all, in order."""
  if job['processes'] == 1:
    counts = tokenise({**job, 'number': 0}, show)
  else:
    counts = _in_processes(job, parts, show)
  return [
      _place(parts, shard, block)
      for shard in job['shards']
      for block in range(counts.get(shard, 0))
  ]


def tokenise(job, show=lambda records: None):
  """Tokenises the missing blocks, or this worker's share of them.

  Worker w of W takes the shards w, w + W, .... If there are fewer shards than
  workers, every worker reads all rows and block b of shard s belongs to worker
  (s + b) mod W.

  Args:
    job: dict of `number` (of this worker) and the values that `build` puts in.

  Returns:
    {shard: number of blocks} of all shards that this worker read. Several
    workers also write it to DONE in `parts`.
  """
  config, parts = ConfigDict(job['config']), pathlib.Path(job['parts'])
  vocabulary, split = job['vocabulary'], job['split']
  number, of = job['number'], job['processes']
  found = corpus_lib.corpus(config)
  by_shard = len(job['shards']) >= of
  counts, done = {}, 0
  for place, shard in enumerate(job['shards']):
    if by_shard and place % of != number:
      continue
    counts[shard] = 0
    name = found.splits[split][shard]
    for block, rows in enumerate(_cut(found.read(split, name))):
      counts[shard] += 1
      if not by_shard and (place + block) % of != number:
        continue
      path = _place(parts, shard, block)
      if not records.is_complete(path, _key(shard, block)):
        skipped, cut = [], {}
        examples = _examples(config, vocabulary, split, rows, skipped, cut)
        records.write(
            path,
            _key(shard, block),
            (show(done + i) or row for i, row in enumerate(examples)),
            vocabulary.size,
            lambda: dict(
                skipped=len(skipped),
                **cut,
                **corpus_rows.count_pages(rows, config.data),
            ),
        )
      done += json.loads((path / records.STATS).read_text())['records']
      show(done)
      if job['limit'] and done >= job['limit']:
        return counts
  if of > 1:
    files.write(parts / DONE.format(number), json.dumps(counts))
  return counts


def _in_processes(job, parts, show):
  """Runs `tokenise` in several processes; returns all counts."""
  numbers = range(job['processes'])
  for number in numbers:  # files of an earlier build
    (parts / DONE.format(number)).unlink(missing_ok=True)
  team = workers.Workers(
      f'{__name__}:tokenise',
      [{**job, 'number': n} for n in numbers],
      [parts / f'worker-{n}.log' for n in numbers],
  )
  try:
    finished = {}  # block's stats file -> its number of records
    while team.running():
      for stats in parts.glob(f'*-*[0-9]/{records.STATS}'):
        if stats not in finished:
          finished[stats] = json.loads(stats.read_text())['records']
      show(sum(finished.values()))
      time.sleep(0.2)
  finally:
    team.close()
  said = [(parts / f'worker-{n}.log').read_text('utf-8') for n in numbers]
  for line in dict.fromkeys('\n'.join(said).splitlines()):
    if line.endswith(sources.REPLACED):
      print(line, file=sys.stderr, flush=True)
  counts = {}
  for number in numbers:
    made = json.loads((parts / DONE.format(number)).read_text())
    counts.update({int(shard): count for shard, count in made.items()})
  return counts


def _place(parts, shard, block):
  return parts / f'{shard:05d}-{block:05d}'


def _count(blocks):
  """Sums the counts of finished blocks.

  Returns:
    dict of records, skipped (rows) and the other names in _COUNTS.
  """
  total = dict(records=0, skipped=0)
  for block in blocks:
    stats = json.loads((block / records.STATS).read_text())
    for name in _COUNTS:
      if name in stats:
        total[name] = total.get(name, 0) + stats[name]
  return total


def _key(shard, block):
  # The name of PATH contains the hash of everything else.
  return dict(shard=shard, block=block, cut=[ROWS, CHARACTERS])


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


def _examples(config, vocabulary, split, rows, skipped, cut):
  """Yields the records of a block, in the order of its rows.

  Args:
    skipped: list to which ids of rows without a record are appended.
    cut: dict that `_count_cut` updates.
  """
  if not rows:
    return
  task = text_to_tokens.make_task(
      config, vocabulary, skipped.append, rows, counts=True
  )
  dataset = task.get_dataset(
      dict(
          inputs=config.data.max_input_length,
          targets=config.data.max_target_length,
      ),
      split=split,
      shuffle=False,
      try_in_mem_cache=False,
      trim_output_features=False,
  )
  try:
    for row in dataset.as_numpy_iterator():
      _count_cut(row, bool(config.data.pages), cut)
      yield _record(row)
  except Exception:
    # TensorFlow's exceptions hide the tokeniser's InputError.
    if getattr(task.source, 'error', None):
      raise task.source.error from None
    raise


def _count_cut(row, is_paged, cut):
  """Adds a SeqIO example to {'inputs_cut': 3, 'inputs_lost': 90, ...}.

  Inputs that are pages are not counted: data/pages.py cuts them.
  """
  for i, name in enumerate(('inputs', 'targets')):
    if name == 'inputs' and is_paged:
      continue
    lost = int(row['whole'][i]) + 1 - len(row[name])  # 1: the end mark
    for key, count in (('cut', lost > 0), ('lost', lost)):
      cut[f'{name}_{key}'] = cut.get(f'{name}_{key}', 0) + int(count)


def _record(row):
  """Converts a SeqIO example to a record."""
  references = row.get('references', b'').decode()
  return dict(
      id=row['id'].decode('utf-8', 'replace'),
      inputs=row['inputs'],
      targets=row['targets'],
      reference=row['targets_pretokenized'].decode('utf-8', 'replace'),
      references=json.loads(references) if references else None,
      pages=row['pages'].tolist() if 'pages' in row else None,
  )
