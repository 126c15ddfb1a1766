"""Parses papers/README.md and runs its commands at tiny size in one process.

`read` parses the page, `make_home` makes a directory with mock corpora, and
`run` runs a command there with a tiny model by adding flags.
"""

import contextlib
import glob
import gzip
import importlib
import io
import json
from pathlib import Path
import re
import shlex
import subprocess
from typing import NamedTuple

from absl import flags

from locost_jax.config import commands
from locost_jax.data import corpora
from papers import seeds
from tests import bart_files
from tests.runs import test_main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / 'papers' / 'README.md'
# Tables and figures of each paper.
NUMBERS = {
    'LOCOST': dict(table=9, figure=7),
    'PageSum': dict(table=8, figure=4),
    'SimCAS': dict(table=11, figure=9),
}
OF_BART = ('bart', 'led', 'pagesum', 'simcas')
MODEL = dict.fromkeys(('d_model', 'd_ff', 'decoder_d_ff'), 16)
MODEL |= dict(d_state=4, d_kv=4, num_heads=2)
MODEL |= dict(num_layers=1, num_decoder_layers=1)
RUN = (
    'data.check_sizes=False data.page_length=32 data.max_target_length=16 '
    'train.init_from= train.steps=2 train.batch_size=4 train.accumulate=1 '
    'train.eval_every=2 train.checkpoint_every=2 train.remat=none '
    'train.log_every=1 eval.examples=4 eval.batch_size=4 decode.max_length=6 '
    'decode.min_length=0'
)
RUN = dict(key.split('=') for key in RUN.split())


class Paper(NamedTuple):
  """A chapter of the page."""

  name: str
  commands: dict  # {number: line of shell}
  rows: list  # of lists of five cells


def read(text):
  """Returns the Papers of the page, in order."""
  papers, variables = [], {}
  head, *parts = re.split('^## ', text, flags=re.M)
  for part in (head, *parts):
    found = {}
    for line in part.splitlines():
      if made := re.fullmatch(r"with `(\w+)='(.*)'`", line):
        variables[made[1]] = _substitute(made[2], variables)
      elif made := re.fullmatch(r'(\d+)\. (.*)', line):
        assert int(made[1]) == len(found) + 1, line
        found[made[1]] = _substitute(made[2], variables)
    rows = [
        [cell.strip() for cell in line.strip('|').split('|')]
        for line in part.splitlines()
        if re.match(r'\|(table|figure) ', line)
    ]
    papers.append(Paper(part.split('\n')[0], found, rows))
  return papers[1:]


def _substitute(text, variables):
  """Replaces $NAME in a text."""
  for name, value in variables.items():
    text = re.sub(rf'\${name}\b', lambda _, v=value: v, text)
  return text


def expand(text):
  """Returns the commands of a line, of loops for each value."""
  loop = re.fullmatch(r'for (\w+) in (.*?); do (.*); done', text)
  if not loop:
    return text.split(' && ')
  return [
      command
      for value in shlex.split(loop[2])
      for command in expand(_substitute(loop[3], {loop[1]: value}))
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
  """Parses a command, and more arguments, without running it.

  Returns:
    (module, values, arguments).
  """
  python, option, name, *words = shlex.split(text)
  assert (python, option) == ('python', '-m'), text
  if name == 'papers.seeds':  # passes its words on
    name = 'locost_jax.main'
    words = [w for w in words if not re.match('--(seeds|lengths)=', w)]
  module = importlib.import_module(
      'bench.__main__' if name == 'bench' else name
  )
  argv = [name, *words, *more]
  values = flags.FlagValues()
  values.set_gnu_getopt(True)
  module.define_flags(values, argv)
  return module, values, commands.parse_flags(values, argv)


def run(text):
  """Runs a command, 'python -m MODULE ...', with tiny keys; returns its status."""
  text = read_files(text)
  if text.split()[2].endswith('.summarize'):
    text = re.sub(r'hf://[\w./-]+', 'runs/finetune_arxiv-led', text)
  name, words = text.split()[2], shlex.split(text)[3:]
  if name == 'papers.seeds':
    words = [re.sub('^--seeds=.*', '--seeds=2', word) for word in words]
    return seeds.main([*words, *tiny('main', words)])
  more = tiny(name, words)
  if name.endswith('.score'):
    text = re.sub(r'hf://[\w./-]+', 'bert', text)
  module, values, arguments = parse(text, more)
  with commands.one_line_errors():
    return module.main(values, arguments) or 0


def tiny(name, words):
  """Returns the flags that make a command small, given its module and words."""
  command = re.sub('^(locost_jax|papers)[.]', '', name)
  if command == 'summarize':
    parts = ['--part_length=64'] * ('--parts' in ' '.join(words))
    return ['--max_length=4', *parts]
  if command == 'data.inspect':
    t5 = '--config.data.vocabulary=spiece.model' in words
    return ['--config.data.vocabulary=byte'] * t5
  if command == 'score':
    return ['--layer=1'] * ('bertscore' in ' '.join(words))
  if command not in ('main', 'bench'):
    return []
  path = next(
      (w.partition('=')[2] for w in words if w.startswith('--config=')), None
  )
  if path is None and command == 'main':  # the run's own, which is small
    return []
  path = path or 'configs/default.py'
  config = commands.load_config(path)
  keys = {f'model.{k}': v for k, v in MODEL.items() if k in config.model}
  if command == 'bench':
    keys |= {'model.vocab_size': 60, 'data.page_length': 32}
    return _config_flags(keys)
  if 'select' in config.model:
    keys['selector.every'] = 2
  of_bart = config.model.name in OF_BART
  keys |= RUN | {'data.vocabulary': 'bart' if of_bart else 'byte'}
  if '--config.eval.examples=0' in words:
    del keys['eval.examples']
  return _config_flags(keys)


def _config_flags(keys):
  return [f'--config.{key}={value}' for key, value in keys.items()]


def make_home(home, rows_of, write):
  """Makes a directory with tiny versions of a reader's files.

  Args:
    rows_of: function (task, split) -> rows of the corpus.
    write: function (row) -> its prediction in predictions.jsonl.
  """
  (home / 'configs').symlink_to(ROOT / 'configs')
  bart_files.write(home / 'bart')
  for task in corpora.TABLE:
    for split in 'train', 'validation', 'test':
      path = home / 'corpora' / task / f'{split}.jsonl.gz'
      path.parent.mkdir(parents=True, exist_ok=True)
      text = ''.join(json.dumps(row) + '\n' for row in rows_of(task, split))
      path.write_bytes(gzip.compress(text.encode(), mtime=0))
  rows = rows_of('arxiv', 'test')
  pairs = [dict(prediction=write(x), reference=x['summary']) for x in rows]
  test_main.write_rows(home / 'predictions.jsonl', pairs)
  (home / 'report.txt').write_text(rows[0]['document'])


def row(name, parts, summary):
  """Returns a row that has the fields of every corpus."""
  return dict(
      id=name,
      text='\n'.join(parts),
      document='\n\n'.join(parts),
      documents=parts,
      sections=[dict(heading='On a house', text=part) for part in parts],
      summary=summary,
      references=[summary],
  )


def enter(home, monkeypatch):
  """Changes to a home; bench runs in this process and programs are cached."""
  from bench import workers
  from tests.bench.test_bench import Here

  monkeypatch.chdir(home)
  monkeypatch.setenv('LOCOST_JAX_CACHE', str(home / 'programs'))
  monkeypatch.setattr(workers, 'Worker', Here)
  monkeypatch.setattr(seeds, 'call', _call)


def _call(command):
  """Runs a command of papers.seeds in this process."""
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    status = run(shlex.join(['python', *command[1:]]))
  return subprocess.CompletedProcess(command, status, out.getvalue().encode())
