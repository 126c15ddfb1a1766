"""Reports the contents of a corpus before training on it.

  python -m locost_jax.data.inspect --task=python_docs_summary
  python -m locost_jax.data.inspect data/*.jsonl
  python -m locost_jax.data.inspect --config=configs/finetune.py train.jsonl

For every split it reports the number of documents, the tokens of inputs and
targets (mean, median, 90th percentile, longest), the share that
config.data.max_input_length and max_target_length cut off, documents that are
empty or too short, copies, and inputs that are in two splits. Three examples
follow as the model sees them. --output gets the same numbers as JSON.

With config.data.pages, the tokens cut off are those in no page or chunk. With
config.data.vocabulary='train' the command trains the vocabulary first.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from locost_jax import files
from locost_jax.config import commands
from locost_jax.config import tables
from locost_jax.config.progress import Progress
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import pages
from locost_jax.data import preprocessors
from locost_jax.data import tasks
from locost_jax.vocabularies.vocabulary import surround

EXAMPLES, SHOWN = 3, 600  # examples; characters shown of each text


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, 'configs/default.py')
  table = {
      'documents': (0, 'read only the first N of each split; 0: all'),
      'output': ('runs/inspect', 'DIR for TASK.json'),
      'format': ('text', 'what goes to stdout', commands.FORMATS),
  }
  commands.define(values, table | commands.TASK)


def main(values, arguments):
  """Runs the command."""
  files.check_directory('--output', values.output)
  config, given = commands.get_config(values)
  if arguments:
    if 'data.train_files' in given:
      commands.expect_flags_only(arguments)
    config.data.train_files = ','.join(arguments)
  tasks.check(config)
  vocabulary = tasks.find_vocabulary(config)
  for task, member in tasks.members(config).items():
    result = inspect(task, member, vocabulary, values.documents)
    path = Path(values.output) / f'{task}.json'
    files.write(path, json.dumps(result, indent=1, ensure_ascii=False))
    if values.format == 'json':
      print(json.dumps(result, ensure_ascii=False))
    else:
      print(text(result), end='')


def inspect(task, config, vocabulary, max_documents=0):
  """Measures the rows of a task.

  Returns:
    dict of
    - task, gsg;
    - kept: (most tokens of an input, most tokens of a target);
    - splits: name -> dict of documents, unusable, copies, expected, inputs and
      targets; the last two are None or dicts of mean, median, p90, longest,
      histogram (counts in 20 equal bins from 0 to longest), documents_cut and
      tokens_cut (shares in [0, 1]);
    - shared: 'split, split' -> number of inputs that are in both;
    - examples: list of dicts of id, inputs and targets.
  """
  found = corpus_lib.corpus(config)
  data = config.data
  kept = data.max_input_length, data.max_target_length
  if data.pages in pages.LOCALITIES:
    kept = data.num_pages * data.page_length, data.max_target_length
  result = dict(task=task, kept=kept, splits={}, shared={}, examples=[])
  result['gsg'] = found.gsg
  seen, progress = {}, Progress(seconds=10.0)
  for split in found.splits:
    result['splits'][split], hashes, examples = _measure(
        task, found, split, vocabulary, data, max_documents, progress
    )
    if split == 'train':
      result['examples'] = examples
    for other, others in seen.items():
      result['shared'][f'{other}, {split}'] = len(others & hashes)
    seen[split] = hashes
  progress.wipe()
  return result


def _measure(task, found, split, vocabulary, data, max_documents, progress):
  """Returns the numbers of a split, hashes of its inputs, and examples."""
  hashes, examples, unusable = set(), [], 0
  lengths = []  # tokens of input, target; tokens cut of each
  make = preprocessors.maker(found, data, vocabulary)
  for number, row in enumerate(found.rows(split)):
    if number == max_documents > 0:
      break
    progress.write([f'{task} {split}: {number} documents'])
    made = make(row)
    if made is None:
      unusable += 1
      continue
    whole = preprocessors.trim(made, data, vocabulary)
    lost = {side: whole[side] - len(made[side]) for side in whole}
    if data.pages:
      shown, whole['inputs'], lost['inputs'] = read_pages(
          made['text'], vocabulary, data
      )
    else:
      shown = vocabulary.decode(made['inputs'], True)
    sides = 'inputs', 'targets'
    lengths.append([count[side] for count in (whole, lost) for side in sides])
    hashes.add(hashlib.sha256(made['text'].encode()).digest())
    if len(examples) < EXAMPLES:
      targets = vocabulary.decode(made['targets'], True)
      shorten = lambda text: text[:SHOWN] + ' …' * (len(text) > SHOWN)
      shown, targets = map(shorten, (shown, targets))
      examples.append(dict(id=row['id'], inputs=shown, targets=targets))
  lengths = np.array(lengths, np.int64).reshape(-1, 4)
  numbers = dict(
      documents=len(lengths),
      unusable=unusable,
      copies=len(lengths) - len(hashes),
      expected=None if max_documents else found.sizes.get(split),
      inputs=_summary(lengths[:, 0], lengths[:, 2]),
      targets=_summary(lengths[:, 1], lengths[:, 3]),
  )
  return numbers, hashes, examples


def read_pages(text, vocabulary, data):
  """Reads JSON of a query and the fields of `pages.pieces` as a model does.

  Returns:
    (the text that is kept, one page per line; number of tokens, marks included;
    number of tokens that are cut off).
  """
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
  return (
      '\n'.join(vocabulary.decode(page, True) for page in made),
      sum(lengths) + len(surround(vocabulary, [])),
      pages.count_cut(
          lengths,
          made,
          row['query'],
          data,
          data.max_input_length,
          vocabulary,
      ),
  )


def _summary(lengths, lost):
  """Summarises lengths in tokens; `lost` tokens of each are cut off."""
  if not len(lengths):
    return None
  return dict(
      mean=float(lengths.mean()),
      median=float(np.median(lengths)),
      p90=float(np.percentile(lengths, 90)),
      longest=int(lengths.max()),
      histogram=np.histogram(lengths, 20, (0, lengths.max()))[0].tolist(),
      documents_cut=float((lost > 0).mean()),
      tokens_cut=float(lost.sum() / lengths.sum()),
  )


def text(result):
  """Formats the result of `inspect` as text."""
  lines = [f'{result["task"]}: tokens, marks included', *_table(result)]
  lines += notes(result)
  for shown in result['examples']:
    lines += ['', f'{shown["id"]}']
    for name, side in ('reads: ', 'inputs'), ('writes:', 'targets'):
      lines.append(f'  {name} {shown[side].replace(chr(10), " ⏎ ")}')
  return '\n'.join(lines) + '\n'


def _table(result):
  """Returns the lines of a table of lengths, two for each split."""
  head = (
      'split|documents||mean|median|90%|longest|kept|documents cut|tokens cut'
  )
  table = [tuple(head.split('|'))]
  for split, found in result['splits'].items():
    front = split, f'{found["documents"]:,}'
    for side, kept in zip(('inputs', 'targets'), result['kept']):
      table.append((*front, side, *_cells(found[side], kept)))
      front = '', ''
  lines = tables.align(table, left=(0, 2))
  lines.insert(1, '─' * max(map(len, lines)))
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
  """Yields a line for each problem of the corpus."""
  short = 'too short for gap sentences'
  why = short if result['gsg'] else 'without input or target'
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
      yield f'{splits}: {count:,} inputs are in both'


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
