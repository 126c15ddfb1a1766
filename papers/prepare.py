"""Prepares a corpus for config.data.task from its authors' files.

  python -m papers.prepare --task=qmsum --raw=QMSum
  python -m papers.prepare            # lists the corpora

The rows go to OUTPUT/TASK/SPLIT.jsonl.gz, where a run with
--config.data.task=TASK finds them. A corpus is written completely or not at
all. The command reports missing texts, rows without input or summary, and
splits whose number of rows differs from the paper's.
"""

import collections
import contextlib
import csv
import gzip
import json
import os
import shutil

from locost_jax import files
from locost_jax.config import commands
from locost_jax.config.progress import Progress
from locost_jax.data import corpora
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from papers.corpora import readers

_PARTS = 'query', 'sections', 'documents', 'references'  # optional fields


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  table = {
      'task': 'which corpus',
      'raw': "DIR with the authors' files",
      'output': ('corpora', 'DIR for all corpora: config.data.corpora_dir'),
  }
  commands.define(values, table)


def main(values, arguments):
  """Runs the command."""
  commands.expect_flags_only(arguments)
  if values.task is None:
    print(describe())
    return
  if values.task not in readers.READERS:
    reason = (
        'needs no preparation: it is read through TFDS or as it is'
        if values.task in corpora.TABLE
        else f'expected one of {", ".join(readers.READERS)}'
        f'{suggest(values.task, readers.READERS)}'
    )
    raise InputError(f'--task={values.task}: {reason}')
  if not values.raw or not os.path.isdir(values.raw):
    what = (
        f'{values.raw}: no such directory' if values.raw else 'DIR is missing'
    )
    raise InputError(f'--raw={what}: expected {corpora.TABLE[values.task].raw}')
  files.check_directory('--output', values.output)
  counts = prepare(values.task, values.raw, values.output)
  print(report(values.task, counts))
  print(
      f'{os.path.join(values.output, values.task)}; try: '
      f'python -m locost_jax.data.inspect --task={values.task}'
  )


def prepare(task, directory, output):
  """Writes OUTPUT/TASK/SPLIT.jsonl.gz.

  Args:
    task: a key of readers.READERS.
    directory: the directory with the authors' files.
    output: the directory of all corpora.

  Returns:
    split -> Counter with the keys rows, missing (texts), 'empty inputs',
    'empty summaries', and sections, documents, references, query (the rows that
    have them).

  Raises:
    InputError: a file is missing or has another format; nothing is written.
  """
  place = os.path.join(output, task)
  partial = f'{place}.partial'
  shutil.rmtree(partial, ignore_errors=True)
  os.makedirs(partial)
  try:
    counts = _write(task, directory, partial)
  except BaseException as error:
    shutil.rmtree(partial, ignore_errors=True)
    unlike = ValueError, LookupError, TypeError, AttributeError, ImportError
    if isinstance(error, InputError) or not isinstance(
        error, (*unlike, csv.Error)
    ):
      raise
    raise InputError(
        f'{directory}: not the published files of {task}: '
        f'{type(error).__name__}: {error}'
    ) from error
  shutil.rmtree(place, ignore_errors=True)
  os.rename(partial, place)
  return counts


def _write(task, directory, partial):
  """Writes the files of all splits and returns the counts of `prepare`."""
  counts, files, progress = {}, {}, Progress(seconds=10.0)
  with contextlib.ExitStack() as stack:
    for split, row in readers.READERS[task](directory):
      if split not in files:
        path = os.path.join(partial, f'{split}.jsonl.gz')
        files[split] = stack.enter_context(
            gzip.open(path, 'wt', encoding='utf-8')
        )
        counts[split] = collections.Counter()
      if not row:
        counts[split]['missing'] += 1
        continue
      counts[split]['rows'] += 1
      counts[split]['empty inputs'] += not row['document'].strip()
      counts[split]['empty summaries'] += not row['summary'].strip()
      for field in _PARTS:
        counts[split][field] += bool(row.get(field))
      files[split].write(json.dumps(row, ensure_ascii=False) + '\n')
      progress.write([f'{task} {split}: {counts[split]["rows"]} rows'])
  progress.wipe()
  return counts


def report(task, counts):
  """Returns a line for each split: its rows, and differences to the paper."""
  lines, entry = [], corpora.TABLE[task]
  for split, count in counts.items():
    parts = [f'{count["rows"]:,} rows']
    for name in 'missing', 'empty inputs', 'empty summaries':
      parts += [f'{count[name]:,} {name}'] * bool(count[name])
    parts += [f'with {name}' for name in _PARTS if count[name]]
    if count['rows'] != entry.splits[split]:
      parts.append(
          f'expected {entry.splits[split]:,} ({entry.counted_by}): a run '
          'refuses it without --config.data.check_sizes=False'
      )
    lines.append(f'{split}: {", ".join(parts)}')
  return '\n'.join(lines)


def describe():
  """Lists all corpora with sizes and source files."""
  lines = []
  for task, entry in corpora.TABLE.items():
    sizes = ' / '.join(f'{n:,}' for n in entry.splits.values())
    lines.append(f'{task}: {sizes} ({entry.counted_by})')
    if entry.raw:
      lines.append(f'    made of: {entry.raw}')
    if entry.tfds:
      lines.append(f'    or TFDS: {", ".join(entry.tfds)} ({entry.download})')
  return '\n'.join(lines)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
