"""Shows what a corpus holds before anything is trained on it.

  python -m locost_jax.data.inspect --task=python_docs_summary
  python -m locost_jax.data.inspect --config=configs/finetune.py \\
      --config.data.train_files='data/*.jsonl'

For every split: documents, tokens of inputs and targets (mean, median, 90th
percentile, longest), how much of them config.data.max_input_length and
max_target_length cut off, documents that are empty or too short, and copies; an
input that stands in two splits is reported too. Then three examples as the model
will see them. The same as JSON and pictures of the lengths go to --output.

With config.data.pages, tokens cut off are those that no page or chunk has. The
vocabulary is the config's; one that is still to be trained is trained.
"""

import hashlib
import json
import os
from typing import NamedTuple

from absl import flags
import numpy as np

from locost_jax.command_line import commands
from locost_jax.command_line import pictures
from locost_jax.command_line.progress import Line
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import gsg
from locost_jax.data import pages
from locost_jax.data import span_corruption
from locost_jax.data import tasks
from locost_jax.vocabularies.vocabulary import surround

EXAMPLES, SHOWN = 3, 600  # examples; characters of each of their texts


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, 'configs/default.py')
  commands.define_task(values)
  flags.DEFINE_integer(
      'documents',
      0,
      'look only at the first N of each split; 0: all',
      lower_bound=0,
      flag_values=values,
  )
  flags.DEFINE_string(
      'output',
      'runs/inspect',
      'DIR for TASK.json and TASK.png',
      flag_values=values,
  )
  commands.define_format(values, 'what goes to stdout')


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: what else was on the command line; there must be nothing.
  """
  commands.expect_flags_only(arguments)
  config, _ = commands.get_config(values)
  tasks.check(config)
  vocabulary = tasks.find_vocabulary(config)
  for task, member in tasks.members(config).items():
    result = inspect(task, member, vocabulary, values.documents)
    os.makedirs(values.output, exist_ok=True)
    path = os.path.join(values.output, task)
    numbers = {k: v for k, v in result.items() if k != 'lengths'}
    with open(f'{path}.json', 'w', encoding='utf-8') as f:
      json.dump(numbers, f, indent=1, ensure_ascii=False)
    pictures.draw(draw, result, f'{path}.png')
    if values.format == 'json':
      print(json.dumps(numbers, ensure_ascii=False))
    else:
      print(text(result), end='')


def inspect(task, config, vocabulary, most=0):
  """Counts what there is to know about a task's rows.

  Args:
    task: its name.
    config: a config of this one task.
    vocabulary: one of vocabularies/vocabulary.py.
    most: the number of documents to look at in each split; 0: all.

  Returns:
    dict of task, gsg, kept (tokens of an input and of a target at most), splits
    (name -> documents, unusable, copies, expected, inputs, targets; the latter
    mean, median, p90, longest, documents_cut and tokens_cut, shares), shared
    (pairs of splits -> inputs that stand in both), examples, and lengths (split
    -> int [n, 2]).
  """
  found = corpus_lib.corpus(config)
  data = config.data
  kept = data.max_input_length, data.max_target_length
  if data.pages in pages.LOCALITIES:
    kept = data.num_pages * data.page_length, data.max_target_length
  result = dict(
      task=task,
      kept=kept,
      splits={},
      shared={},
      examples=[],
      lengths={},
      gsg=found.gsg,
  )
  seen, line = {}, Line(seconds=10.0)
  for split in found.splits:
    rows = _measure(task, found, split, vocabulary, data, most, line)
    lengths = rows.lengths
    if split == 'train':
      result['examples'] = rows.examples
    result['lengths'][split] = lengths[:, :2]
    result['splits'][split] = dict(
        documents=len(lengths),
        unusable=rows.unusable,
        copies=len(lengths) - len(rows.hashes),
        expected=None if most else found.sizes.get(split),
        inputs=_summary(lengths[:, 0], lengths[:, 2]),
        targets=_summary(lengths[:, 1], lengths[:, 3]),
    )
    for other, theirs in seen.items():
      result['shared'][f'{other}, {split}'] = len(theirs & rows.hashes)
    seen[split] = rows.hashes
  line.wipe()
  return result


class _Measured(NamedTuple):
  """The rows of a split, measured."""

  lengths: np.ndarray  # [n, 4]: tokens of input, target; cut off of each
  unusable: int  # rows that give no example
  hashes: set  # of the inputs
  examples: list  # the first EXAMPLES, as the model will see them


def _measure(task, found, split, vocabulary, data, most, line):
  """Reads and measures the rows of a split; see `inspect`."""
  lengths, unusable, hashes, examples = [], 0, set(), []
  corrupt, spans = None, found.span_corruption
  if spans is not None:
    corrupt = span_corruption.maker(vocabulary, data, spans)
  for number, row in enumerate(_rows(found, split)):
    if number == most > 0:
      break
    line.show([f'{task} {split}: {number} documents'])
    made = example(row, found.gsg)
    if made is not None and corrupt is not None:
      sides = corrupt(vocabulary.encode(row['text']), row['id'])
      made = made if sides is None else tuple(map(vocabulary.decode, sides))
    if made is None:
      unusable += 1
      continue
    shown, length, lost = read(made[0], vocabulary, data)
    targets = surround(vocabulary, vocabulary.encode(made[1]))
    kept, count = data.max_target_length, len(targets)
    lengths.append((length, count, lost, max(count - kept, 0)))
    hashes.add(hashlib.sha256(made[0].encode('utf-8', 'replace')).digest())
    if len(examples) < EXAMPLES:
      examples.append(
          dict(
              id=row['id'],
              inputs=_shorten(shown),
              targets=_shorten(vocabulary.decode(targets[: kept - 1])),
          )
      )
  lengths = np.array(lengths, np.int64).reshape(-1, 4)
  return _Measured(lengths, unusable, hashes, examples)


def example(row, settings):
  """(input, target) of a row of a corpus; None if it gives no example.

  The input is JSON where documents are cut into pages.
  """
  if settings is not None:
    return gsg.gap_sentences(row['text'], **settings)
  parts = row['inputs'], row['targets']
  return parts if all(part.strip() for part in parts) else None


def read(text, vocabulary, data):
  """Returns an input as a model sees it.

  Args:
    text: of `example`.
    vocabulary: one of vocabularies/vocabulary.py.
    data: config.data.

  Returns:
    (the text that is left, pages a line each; tokens, marks included; tokens of
    them that are cut off).
  """
  if not data.pages:
    ids = surround(vocabulary, vocabulary.encode(text))
    return (
        vocabulary.decode(ids[: data.max_input_length - 1]),
        len(ids),
        max(len(ids) - data.max_input_length, 0),
    )
  row = json.loads(text)
  made = pages.of_row(row, data, vocabulary)
  parts = pages.parts_of(row, data, vocabulary)
  dropped = pages.count_dropped(row, data.pages, data.num_pages)
  if dropped:
    parts = pages.pieces(row, data.pages, data.num_pages + dropped)
  lengths = [len(vocabulary.encode(part)) for part in parts]
  if data.document_length:
    count = len(vocabulary.encode(row['document']))
    lengths.append(max(count - data.document_length, 0))
  front = pages.front_of(row['query'], vocabulary)
  is_in_every = pages.query_in(data) == 'every'
  later = front if is_in_every else pages.front_of('', vocabulary)
  return (
      '\n'.join(vocabulary.decode(page) for page in made),
      sum(lengths) + len(surround(vocabulary, [])),
      pages.count_cut(
          lengths,
          list(map(len, pages.fronts(made, front, later))),
          data.pages,
          data.page_length,
          data.max_input_length,
      ),
  )


def _rows(found, split):
  for shard in found.splits[split]:
    yield from found.read(split, shard)


def _shorten(text):
  return text if len(text) <= SHOWN else f'{text[:SHOWN]} …'


def _summary(lengths, lost):
  """Summarises lengths in tokens, `lost` of each being cut off."""
  if not len(lengths):
    return None
  return dict(
      mean=float(lengths.mean()),
      median=float(np.median(lengths)),
      p90=float(np.percentile(lengths, 90)),
      longest=int(lengths.max()),
      documents_cut=float((lost > 0).mean()),
      tokens_cut=float(lost.sum() / lengths.sum()),
  )


def text(result):
  """Returns what is printed of an `inspect`."""
  lines = [f'{result["task"]}: tokens, marks included', *_table(result)]
  lines += notes(result)
  for shown in result['examples']:
    lines += [
        '',
        f'{shown["id"]}',
        f'  reads:  {_one_line(shown["inputs"])}',
        f'  writes: {_one_line(shown["targets"])}',
    ]
  return '\n'.join(lines) + '\n'


def _table(result):
  """Returns the lines of a table of lengths, two for each split."""
  table = [
      (
          'split',
          'documents',
          '',
          'mean',
          'median',
          '90%',
          'longest',
          'kept',
          'documents cut',
          'tokens cut',
      )
  ]
  for split, found in result['splits'].items():
    documents = f'{found["documents"]:,}'
    inputs, targets = (
        _cells(found[name], kept)
        for name, kept in zip(('inputs', 'targets'), result['kept'])
    )
    table.append((split, documents, 'inputs', *inputs))
    table.append(('', '', 'targets', *targets))
  widths = [max(map(len, column)) for column in zip(*table)]
  lines = [
      '  '.join(
          cell.ljust(width) if i in (0, 2) else cell.rjust(width)
          for i, (cell, width) in enumerate(zip(row, widths))
      ).rstrip()
      for row in table
  ]
  lines.insert(1, '─' * (sum(widths) + 2 * len(widths) - 2))
  return lines


def _cells(row, kept):
  """Returns the cells of a `_summary`, dashes if there are no documents."""
  if row is None:
    return ['-'] * 7
  return [
      *(f'{row[key]:.0f}' for key in ('mean', 'median', 'p90', 'longest')),
      str(kept),
      f'{row["documents_cut"]:.1%}',
      f'{row["tokens_cut"]:.1%}',
  ]


def notes(result):
  """Yields a line for everything that is wrong or to be minded."""
  why = (
      'too short for gap sentences'
      if result['gsg']
      else ('without input or target')
  )
  for split, found in result['splits'].items():
    if found['unusable']:
      done = ' (left out)' if split == 'train' or result['gsg'] else ''
      yield f'{split}: {found["unusable"]:,} documents are {why}{done}'
    if found['copies']:
      yield f'{split}: {found["copies"]:,} inputs are copies of another'
    total = found['documents'] + found['unusable']
    if found['expected'] not in (None, total):
      yield f'{split}: {total:,} rows, the paper has {found["expected"]:,}'
  for splits, count in result['shared'].items():
    if count:
      yield f'{splits}: {count:,} inputs stand in both'


def _one_line(text):
  return text.replace('\n', ' ⏎ ')


def draw(result, path):
  """Draws histograms of the lengths into a PNG.

  Raises:
    ImportError: matplotlib is not installed.
  """
  from matplotlib.figure import Figure

  figure = Figure(figsize=(11, 4), layout='constrained')
  for axis, i, name in zip(
      figure.subplots(1, 2), (0, 1), ('inputs', 'targets')
  ):
    found = np.concatenate([*result['lengths'].values(), [result['kept']]])
    bins = np.geomspace(found[:, i].min(), found[:, i].max() + 1, 60)
    for split, found in result['lengths'].items():
      if len(found):
        axis.hist(
            found[:, i],
            bins,
            histtype='step',
            label=split,
            weights=np.full(len(found), 1 / len(found)),
        )
    axis.axvline(result['kept'][i], color='gray', linestyle=':', label='kept')
    axis.set(
        xscale='log', xlabel=f'tokens of {name}', ylabel='share of documents'
    )
    axis.legend(fontsize='small', frameon=False)
  figure.suptitle(result['task'])
  figure.savefig(path, dpi=120)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
