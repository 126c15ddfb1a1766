"""A split tokenised block by block: restartable, by one process or several.

The rows of every shard are cut into blocks of at most ROWS rows and about
CHARACTERS characters, a function of the rows alone. Each block becomes a small
cache of its own under PATH.parts/SHARD-BLOCK, written whole or not at all
(data/records.py); at the end they are joined, in order, into PATH. A build that
is stopped at any moment goes on with the blocks that are missing, and the
result does not depend on how many processes made it, nor how often they were
stopped.
"""

import json
import pathlib
import shutil
import time

from ml_collections import ConfigDict

from locost_jax import files
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.data import text_to_tokens
from locost_jax.data import workers
from locost_jax.errors import InputError

ROWS, CHARACTERS = 5000, 16_000_000
# Documents that the maximum lengths cut, and tokens that they lost.
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
  """Tokenises a split into `path`; call it with the lock of `path` held.

  Args:
    config: the run's config, of one task.
    vocabulary: one of vocabularies/vocabulary.py.
    split: its name.
    key: JSON object, everything that makes the records.
    path: of the cache.
    shards: numbers of the shards to tokenise; None: all.
    limit: the number of records, made by this process; 0: all.
    processes: how many work; 1: this one.
    show: called now and then with the number of records so far.

  Returns:
    The stats of the cache; see `records.write`.

  Raises:
    InputError: a row cannot be read (finished blocks stay, for the next time);
      all shards together give no record at all (nothing stays).
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
    if limit:  # the last block may have more rows than become records
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
        lambda: dict(notes, **found.describe()),
    )
  except InputError:
    if not any(parts.glob(f'*/{records.STATS}')):
      shutil.rmtree(parts, ignore_errors=True)
    raise
  shutil.rmtree(parts)
  return made


def _make_blocks(job, parts, show):
  """Tokenises what is missing; returns the paths of all blocks, in order."""
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
  """Tokenises the blocks that are missing, or this worker's share of them.

  Worker w of W takes the shards w, w + W, ...; of fewer shards than workers,
  block b of shard s belongs to worker (s + b) mod W, and all read all rows.

  Args:
    job: dict; see `build`.
    show: called now and then with the number of records so far.

  Returns:
    {shard: its number of blocks}, also of shards that are others' work if they
    had to be read; written to `parts` too, unless this is the only worker.
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
  for number in numbers:  # of an earlier build
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
  counts = {}
  for number in numbers:
    made = json.loads((parts / DONE.format(number)).read_text())
    counts.update({int(shard): count for shard, count in made.items()})
  return counts


def _place(parts, shard, block):
  return parts / f'{shard:05d}-{block:05d}'


def _count(blocks):
  """Returns the sums over finished blocks of what was counted in each.

  dict of records, skipped (rows), and what `corpus_rows.count_pages` gives.
  """
  total = dict(records=0, skipped=0)
  for block in blocks:
    stats = json.loads((block / records.STATS).read_text())
    for name in _COUNTS:
      if name in stats:
        total[name] = total.get(name, 0) + stats[name]
  return total


def _key(shard, block):
  # The name of PATH has the hash of all the rest.
  return dict(shard=shard, block=block, cut=[ROWS, CHARACTERS])


def _cut(rows):
  """Rows -> lists of rows, one after the other; [] for none at all."""
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
    config, vocabulary, split, rows: what the records are made of.
    skipped: list; gets the ids of rows that give no record.
    cut: dict; counts what `_count_cut` counts.
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
    # TensorFlow's own exceptions hide what the tokeniser said.
    if getattr(task.source, 'error', None):
      raise task.source.error from None
    raise


def _count_cut(row, is_paged, cut):
  """Adds an example of SeqIO's to {'inputs_cut': 3, 'inputs_lost': 90, ...}.

  Pages are cut elsewhere, and their inputs not counted.
  """
  for i, name in enumerate(('inputs', 'targets')):
    if name == 'inputs' and is_paged:
      continue
    lost = int(row['whole'][i]) + 1 - len(row[name])  # 1: the end mark
    for key, count in (('cut', lost > 0), ('lost', lost)):
      cut[f'{name}_{key}'] = cut.get(f'{name}_{key}', 0) + int(count)


def _record(row):
  """An example of SeqIO's -> a record."""
  references = row.get('references', b'').decode()
  return dict(
      id=row['id'].decode('utf-8', 'replace'),
      inputs=row['inputs'],
      targets=row['targets'],
      reference=row['targets_pretokenized'].decode('utf-8', 'replace'),
      references=json.loads(references) if references else None,
      pages=row['pages'].tolist() if 'pages' in row else None,
  )
