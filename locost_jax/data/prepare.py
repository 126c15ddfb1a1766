"""Prepares a corpus for config.data.task from its authors' files.

  python -m locost_jax.data.prepare --task=squality --raw=SQuALITY
  python -m locost_jax.data.prepare            # lists the corpora

The rows go to OUTPUT/TASK/SPLIT.jsonl.gz, where a run with
--config.data.task=TASK finds them. A corpus is written completely or not at
all. The command reports missing texts, rows without input or summary, and
splits whose number of rows differs from the paper's.
"""

import collections
import csv
import gzip
import json
import os
import shutil
import sys

from absl import flags

from locost_jax.command_line import commands
from locost_jax.command_line.progress import Line
from locost_jax.data import corpora
from locost_jax.data import published_formats
from locost_jax.errors import InputError
from locost_jax.errors import suggest


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  flags.DEFINE_string('task', None, 'which corpus', flag_values=values)
  flags.DEFINE_string(
      'raw', None, "DIR with the authors' files", flag_values=values
  )
  flags.DEFINE_string(
      'output',
      'corpora',
      'DIR for all corpora: config.data.corpora_dir',
      flag_values=values,
  )


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: other command-line arguments; must be empty.
  """
  commands.expect_flags_only(arguments)
  if values.task is None:
    print(describe())
    return
  if values.task not in published_formats.READERS:
    reason = (
        'needs no preparation: it is read through TFDS or as it is'
        if (values.task in corpora.TABLE)
        else (
            f'expected one of {", ".join(published_formats.READERS)}'
            f'{suggest(values.task, published_formats.READERS)}'
        )
    )
    raise InputError(f'--task={values.task}: {reason}')
  entry = corpora.TABLE[values.task]
  if not values.raw or not os.path.isdir(values.raw):
    what = (
        '--raw=DIR is missing'
        if not values.raw
        else (f'--raw={values.raw}: no such directory')
    )
    raise InputError(f'{what}: expected {entry.raw}')
  counts = prepare(values.task, values.raw, values.output)
  report(values.task, counts, os.path.join(values.output, values.task))


def prepare(task, directory, output):
  """Writes OUTPUT/TASK/SPLIT.jsonl.gz.

  Args:
    task: a key of published_formats.READERS.
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
  counts, files, line = {}, {}, Line(seconds=10.0)
  try:
    for split, row in published_formats.READERS[task](directory):
      if split not in files:
        files[split] = gzip.open(
            os.path.join(partial, f'{split}.jsonl.gz'), 'wt', encoding='utf-8'
        )
        counts[split] = collections.Counter()
      if not row:
        counts[split]['missing'] += 1
        continue
      counts[split]['rows'] += 1
      counts[split]['empty inputs'] += not row['document'].strip()
      counts[split]['empty summaries'] += not row['summary'].strip()
      for field in 'query', 'sections', 'documents', 'references':
        counts[split][field] += bool(row.get(field))
      files[split].write(json.dumps(row, ensure_ascii=False) + '\n')
      line.show([f'{task} {split}: {counts[split]["rows"]} rows'])
  except (
      KeyError,
      TypeError,
      IndexError,
      ValueError,
      AttributeError,
      ImportError,
      csv.Error,
  ) as error:
    _discard(files, partial)
    if isinstance(error, InputError):
      raise
    raise InputError(
        f'{directory}: not the published files of {task}: '
        f'{type(error).__name__}: {error}'
    ) from error
  except BaseException:
    _discard(files, partial)
    raise
  for file in files.values():
    file.close()
  line.wipe()
  shutil.rmtree(place, ignore_errors=True)
  os.rename(partial, place)
  return counts


def _discard(files, partial):
  for file in files.values():
    file.close()
  shutil.rmtree(partial, ignore_errors=True)


def report(task, counts, place, stream=None):
  """Prints the number of rows of each split and differences to the paper."""
  stream, entry = stream or sys.stdout, corpora.TABLE[task]
  for split, count in counts.items():
    parts = [f'{count["rows"]:,} rows']
    parts += [
        f'{count[name]:,} {name}'
        for name in ('missing', 'empty inputs', 'empty summaries')
        if count[name]
    ]
    parts += [
        f'with {name}'
        for name in ('query', 'sections', 'documents', 'references')
        if count[name]
    ]
    expected = entry.splits[split]
    if count['rows'] != expected:
      parts.append(
          f'expected {expected:,} ({entry.counted_by}): a run refuses '
          'it without --config.data.check_sizes=False'
      )
    print(f'{split}: {", ".join(parts)}', file=stream)
  print(
      f'{place}; try: python -m locost_jax.data.inspect --task={task}',
      file=stream,
  )


def describe():
  """Lists all corpora with sizes, licence, source files and known problems."""
  lines = []
  for task, entry in corpora.TABLE.items():
    sizes = ' / '.join(f'{n:,}' for n in entry.splits.values())
    lines += [
        f'{task}: {entry.what}',
        f'    {sizes} ({entry.counted_by}); {entry.lengths[0]} -> '
        f'{entry.lengths[1]} tokens ({entry.lengths_of})',
        f'    licence: {entry.licence}',
    ]
    if entry.raw:
      lines.append(f'    made of: {entry.raw}')
    if entry.tfds:
      lines.append(f'    or TFDS: {", ".join(entry.tfds)} ({entry.download})')
    lines.append(f'    mind: {entry.traps}')
  return '\n'.join(lines)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
