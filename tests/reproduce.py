"""Parses REPRODUCE.md and runs its commands at tiny size in one process.

`sections` parses the page, `make_home` makes a directory with mock corpora, and
`run` runs a command there with a tiny model by adding flags. Shell loops run
only for their first value.
"""

import glob
import gzip
import importlib
import json
from pathlib import Path
import re
import shlex
from typing import NamedTuple

from absl import flags

from locost_jax.command_line import commands
from locost_jax.data import corpora
from tests import bart_files
from tests.evaluation import tiny_models

ROOT = Path(__file__).parent.parent
PAGE = ROOT / 'REPRODUCE.md'
# Tables and figures of each paper.
NUMBERS = {
    'LOCOST': dict(table=9, figure=7),
    'PageSum': dict(table=8, figure=4),
    'SimCAS': dict(table=11, figure=9),
}
CHECKS = ('equal number', 'golden', 'smoke', 'published')
OF_BART = ('bart', 'pagesum', 'simcas')
MODEL = dict(
    d_model=16,
    d_state=4,
    d_ff=16,
    decoder_d_ff=16,
    d_kv=4,
    num_heads=2,
    num_layers=1,
    num_decoder_layers=1,
)
RUN = {
    'data.check_sizes': False,
    'data.page_length': 32,
    'data.max_target_length': 16,
    'train.init_from': '',
    'train.steps': 2,
    'train.batch_size': 4,
    'train.accumulate': 1,
    'train.eval_every': 2,
    'train.checkpoint_every': 2,
    'train.remat': 'none',
    'train.log_every': 1,
    'selector.every': 2,
    'eval.examples': 4,
    'eval.batch_size': 4,
    'decode.max_length': 6,
    'decode.min_length': 0,
}
# Settings of bench; they replace the command's own values.
BENCH_FLAGS = ('--repeats=1', '--seconds=1', '--tokens=2')
REPLACED = r'--(repeats|seconds|tokens|lengths|memory_limit)\b.*'


class Section(NamedTuple):
  """A table or a figure."""

  paper: str
  kind: str  # 'table' or 'figure'
  number: int
  commands: list  # of str, lines of shell blocks
  rows: list  # of lists of four cells

  @property
  def name(self):
    return f'{self.paper} {self.kind} {self.number}'


_HEADING = re.compile(r'^### (\w+) (table|figure) (\d+): .+$', re.M)


def sections(text):
  """Returns the Sections of the page, in order."""
  starts = list(_HEADING.finditer(text))
  ends = [start.start() for start in starts[1:]] + [len(text)]
  return [
      Section(
          start[1],
          start[2],
          int(start[3]),
          commands_of(text[start.end() : end]),
          rows_of(text[start.end() : end]),
      )
      for start, end in zip(starts, ends)
  ]


def before(text):
  """Returns the text before the first table as a Section."""
  front = text[: _HEADING.search(text).start()]
  return Section('LOCOST', 'pretraining', 0, commands_of(front), [])


def commands_of(text):
  """Returns the lines of all shell blocks of a text."""
  blocks = re.findall(r'^```bash\n(.*?)^```', text, re.M | re.DOTALL)
  return [line for block in blocks for line in block.splitlines() if line]


def rows_of(text):
  """Returns the cells of the rows below each `| row | ...` heading."""
  found, inside = [], False
  for line in text.splitlines():
    cells = [cell.strip() for cell in line.strip().strip('|').split('|')]
    if line.startswith('| row |'):
      inside = True
    elif not line.startswith('|'):
      inside = False
    elif inside and not line.startswith('|--'):
      found.append(cells)
  return found


def expand(text):
  """Returns the commands of a line, for a loop one per value."""
  loop = re.fullmatch(r'for (\w+) in (.*?); do (.*); done', text)
  if not loop:
    return [text]
  return [
      re.sub(rf'\${loop[1]}\b', lambda _, value=value: value, loop[3])
      for value in loop[2].split()
  ]


def read_files(text):
  """Expands the file patterns of a command, like a shell."""
  words = [sorted(glob.glob(w)) if '*' in w else [w] for w in shlex.split(text)]
  return shlex.join(sum(words, []))


def is_pytest(text):
  return text.startswith('python -m pytest ')


def check_pytest(text):
  """Asserts that the test files exist and have the tests of -k."""
  words = shlex.split(text)
  files = [ROOT / word for word in words if word.endswith('.py')]
  assert files and all(file.is_file() for file in files), text
  chosen = words[words.index('-k') + 1].split(' or ') if '-k' in words else []
  for part in chosen:
    assert any(part in file.read_text() for file in files), (text, part)


def parse(text, more=()):
  """Parses a command without running it.

  Args:
    text: 'python -m locost_jax.COMMAND ...'.
    more: arguments to append.

  Returns:
    (module, values, arguments).

  Raises:
    ImportError: there is no such command.
    locost_jax.errors.InputError: an unknown flag, key or value.
  """
  python, option, name, *words = shlex.split(text)
  assert (python, option) == ('python', '-m'), text
  module = importlib.import_module(name + '.__main__' * (name == 'bench'))
  argv = [name, *words, *more]
  values = flags.FlagValues()
  values.set_gnu_getopt(True)
  module.define_flags(values, argv)
  return module, values, commands.parse_flags(values, argv)


def run(text):
  """Runs a command with tiny keys; returns its status."""
  text = read_files(text)
  name, words = text.split()[2], shlex.split(text)[3:]
  if name == 'bench':
    text = shlex.join(
        [
            *('python', '-m', name),
            *(word for word in words if not re.fullmatch(REPLACED, word)),
        ]
    )
  elif name.endswith('.score'):
    text = re.sub(r'hf://[\w./-]+', 'bert', text)
  module, values, arguments = parse(text, tiny(name, words))
  with commands.one_line_errors():
    return module.main(values, arguments) or 0


def tiny(name, words):
  """Returns the flags that make a command small.

  Args:
    name: of the command's module.
    words: its arguments.
  """
  command = name.removeprefix('locost_jax.')
  if command == 'summarize':
    return [
        '--max_length=4',
        *['--part_length=64'] * ('--parts' in ' '.join(words)),
    ]
  if command == 'data.inspect':
    return ['--config.data.vocabulary=byte', '--config.data.check_sizes=False']
  if command == 'data.interdependent':
    return ['--config.data.check_sizes=False', '--documents=2']
  if command == 'score':
    return ['--layer=1'] * ('bertscore' in ' '.join(words))
  if command not in ('main', 'bench'):
    return []
  path = next(
      (w.partition('=')[2] for w in words if w.startswith('--config=')),
      'configs/default.py',
  )
  config = commands.load_config(path)
  keys = {f'model.{k}': v for k, v in MODEL.items() if k in config.model}
  if command == 'bench':
    keys |= {'model.vocab_size': 60, 'data.page_length': 32}
    return [*_config_flags(keys), *BENCH_FLAGS, '--lengths=32,64']
  of_bart = config.model.name in OF_BART
  keys |= RUN | {'data.vocabulary': 'bart' if of_bart else 'byte'}
  return _config_flags(keys)


def _config_flags(keys):
  return [f'--config.{key}={value}' for key, value in keys.items()]


def make_home(home):
  """Makes a directory with tiny versions of a reader's files."""
  (home / 'configs').symlink_to(ROOT / 'configs')
  bart_files.write(home / 'bart')
  rows = [_row(number) for number in range(104)]
  for task in corpora.TABLE:
    for split in 'train', 'validation', 'test':
      few = rows if split == 'train' else rows[:6]
      path = home / 'corpora' / task / f'{split}.jsonl.gz'
      path.parent.mkdir(parents=True, exist_ok=True)
      text = ''.join(json.dumps(row) + '\n' for row in few)
      path.write_bytes(gzip.compress(text.encode(), mtime=0))
  pairs = [
      dict(prediction=row['document'], reference=row['summary']) for row in rows
  ]
  text = ''.join(json.dumps(pair) + '\n' for pair in pairs[:6])
  (home / 'predictions.jsonl').write_text(text)
  (home / 'report.txt').write_text(rows[0]['document'])
  tiny_models.bert(home / 'bert')  # for all models of the Hub
  # Input of `plot`: a point of figure 1, and similarities.
  point = dict(model='locost', data='govreport', score=37.4, memory=1.0)
  (home / 'points.jsonl').write_text(json.dumps(point) + '\n')
  (home / 'similarity.jsonl').write_text(
      ''.join(
          json.dumps(dict(distance=n, similarity=1 / n)) + '\n'
          for n in range(1, 5)
      )
  )


def _row(number):
  """Returns a row that has the fields of every corpus."""
  parts = [f'House {i} of {number} is {i + 7} years old.' for i in range(5)]
  summary = f'The houses of {number} are old.'
  return dict(
      id=f'r{number}',
      text='\n'.join(parts),
      document='\n\n'.join(parts),
      documents=parts,
      sections=[dict(heading='On a house', text=part) for part in parts],
      summary=summary,
      references=[summary, f'Old houses: {number}.'],
  )


def enter(home, monkeypatch):
  """Changes to a home; bench runs in this process and programs are cached."""
  from bench import workers
  from tests.bench.test_bench import Here

  monkeypatch.chdir(home)
  monkeypatch.setenv('LOCOST_JAX_CACHE', str(home / 'programs'))
  monkeypatch.setattr(workers, 'Worker', Here)
