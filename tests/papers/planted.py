"""Plants summaries, losses and costs whose numbers are known.

`plant` replaces what no tiny model could know: trained weights, what a model
writes, metrics of models, measured costs. The first time for each kind of model,
metric or measurement, what is replaced runs too, at a tiny size. All else of a
command is real: flags, names of runs, splits, files, protocols, tables. What is
planted depends on the system (its path below runs/, with @N if it reads another
number of tokens than in training), on the split and on the document.
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import math
from pathlib import Path
import re
import shlex
import shutil

import jax
import numpy as np
from rouge_score import rouge_scorer

from bench import rounds
from locost_jax.data import corpora
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric
from locost_jax.summarizing import results
from locost_jax.training import train
from locost_jax.workdir import checkpoint
from papers import score
from papers.figures import style
from tests.papers import reproduce
from tests.runs import test_main

DOCUMENTS = 6  # of a split
HALF = 30  # words of a sentence; a reference has two
WORDS = [
    a + b + c + 'o' for a, b, c in itertools.product('bdfgkm', 'aeiu', 'lnprv')
]
_TYPES = {
    'rouge1': 'R-1',
    'rouge2': 'R-2',
    'rougeL': 'R-L',
    'rougeLsum': 'R-Lsum',
}
# Documents, mean, median, 90% and longest of inputs, mean of targets.
_SIZES = r'^(\w+) +(\d+)  inputs' + r' +(\d+)' * 4 + r'  .*\n +targets +(\d+)'
_SCORER = rouge_scorer.RougeScorer(list(_TYPES))
_numbers, _costs, _kinds = {}, {}, set()
_TRAIN, _MEASURE, _BENCH = train.train, evaluate.measure, rounds.measure


def is_first(*kind):
  """Whether nothing of this kind has run."""
  return kind not in _kinds and not _kinds.add(kind)


def is_new(what, config):
  """Whether no such model has been trained or measured (`what`) before."""
  return is_first(what, config.model.name, config.train.objective)


def number_of(system, split):
  """Returns a different number for each system and split, from 0."""
  return _numbers.setdefault((system, split), len(_numbers))


def reference(i):
  """Returns the summary of a document: two sentences, a line each."""
  words = (WORDS[i:] + WORDS[:i])[: 2 * HALF]
  return '\n'.join(
      ' '.join(part).capitalize() + '.' for part in (words[:HALF], words[HALF:])
  )


@functools.cache
def place(task, i):
  """Returns (sentences of a document, index of the second that is fused)."""
  number = list(corpora.TABLE).index(task)
  return 10 + number + i % 3, 1 + number // 2


def rows_of(task, split):
  """Returns the rows of a corpus's split; lengths depend on task and document.

  The first sentence of a summary fuses the first of a document and another.
  """
  rows = []
  for i in range(100 if (task, split) == ('arxiv', 'train') else DOCUMENTS):
    count, second = place(task, i)
    parts = [f'House {n} is old.' for n in range(count)]
    one = reference(i).split('.')[0].split()
    half = HALF // 2
    parts[0], parts[second] = (
        ' '.join(words) + '.' for words in (one[:half], one[half:])
    )
    rows.append(reproduce.row(f'{split}-{i}', parts, reference(i)))
  return rows


def weights(system):
  """Returns the generator of a system's weights, after its log's numbers."""
  draw = np.random.default_rng(list(system.encode()))
  return draw, draw.uniform(1, 100, (2, 2)).tolist()


def write(system, name):
  """Returns the summary that a system writes of the document SPLIT-NUMBER."""
  split, i = name.split('-')
  i = int(i)
  rest, a = divmod(number_of(system, split), 18)
  assert rest < 18, 'too many systems'
  one, other = (line[:-1].split() for line in reference(i).lower().split('\n'))
  one = one[10:] + one[:10]  # R-Lsum is less than R-1
  one[: a + i % 2] = [f'x{word}' for word in one[: a + i % 2]]
  if b := rest + i // 2 % 2:
    other[-b:] = [f'x{word}' for word in other[-b:]]
  # The sentences change places: R-L is less than R-Lsum.
  return f'{" ".join(other).capitalize()}.\n{" ".join(one).capitalize()}.'


@functools.cache
def rouge(system, split='test'):
  """Returns {title: F1 x 100 [DOCUMENTS]} of a system, by rouge_score."""
  found = [
      _SCORER.score(reference(i), write(system, f'{split}-{i}'))
      for i in range(DOCUMENTS)
  ]
  return {
      title: np.array([100 * one[key].fmeasure for one in found])
      for key, title in _TYPES.items()
  }


def sizes(task, split, marks):
  """Returns what `inspect` prints of a split, of bytes and marks a text."""
  rows = rows_of(task, split)
  inputs, targets = (
      [len(row[field]) + marks for row in rows]
      for field in ('document', 'summary')
  )
  middle = np.median(inputs), np.percentile(inputs, 90), max(inputs)
  numbers = len(rows), np.mean(inputs), *middle, np.mean(targets)
  return ' '.join(f'{number:.0f}' for number in numbers)


def mean_rouge(system, last, split='test'):
  """Returns the mean of R-1, R-2 and R-L or R-Lsum."""
  scores = rouge(system, split)
  return np.mean([scores[title].mean() for title in ('R-1', 'R-2', last)])


def loss_of(system, split='test'):
  return 1 + number_of(system, split) / 100


def cost(question, name, length):
  """Returns what `bench` measures: bytes, in MiB also seconds and samples/s."""
  key = question, name, length
  return (1 + _costs.setdefault(key, len(_costs))) << 20


def of_model(prediction, target):
  """Returns what a model says of a summary: half its shared words, in %."""
  ours, theirs = (
      set(re.findall(r'\w+', x.lower())) for x in (prediction, target)
  )
  return 50 * len(ours & theirs) / max(len(theirs), 1)


def _measure(what, params, batches, metrics=None, generated=None):
  """Replaces `evaluate.measure`."""
  settings, system = what.config.eval, _system(what)
  names = settings.metrics if metrics is None else metrics
  if is_new(('measure', *names), what.config):
    batches = list(batches)
    _MEASURE(what, params, batches, metrics, generated)
  rows = [
      dict(
          id=name,
          prediction=write(system, name),
          reference=own,
          tokens_kept=9,
      )
      for _, info in batches
      for name, own in zip(info['id'], info['reference'])
  ]
  loss = loss_of(system, rows[0]['id'].split('-')[0])
  measured = dict(loss=loss, perplexity=math.exp(loss), accuracy=0.5)
  of_text = metric_table.of_summaries(names, settings.protocol)
  if of_text:
    measured |= evaluate.score(of_text, rows)
  return measured, rows if of_text else []


def _system(what):
  """Returns the name of an `assemble.Setup`'s system."""
  directory = Path(what.directory)
  name = '/'.join(directory.parts[directory.parts.index('runs') + 1 :])
  length = what.config.data.max_input_length
  stored = json.loads((directory / 'config.json').read_text())
  is_own = length == stored['data']['max_input_length']
  return name if is_own else f'{name}@{length}'


def _train(setup, options):
  """Replaces `train.train`: a checkpoint of drawn weights, and a log."""
  path = setup.directory / 'checkpoints'
  step = setup.config.train.steps
  if (path / str(step)).exists():
    return  # done before
  if is_new('train', setup.config):
    _TRAIN(setup, options)
    shutil.rmtree(path)
  draw, log = weights(_system(setup))
  make = lambda x: np.float32(draw.normal(0, 0.3, x.shape))
  checkpoint.save_params(path / str(step), jax.tree.map(make, setup.shapes))
  keys = 'step', 'train/selected', 'train/reward'
  rows = [dict(zip(keys, (n, *row))) for n, row in enumerate(log, 1)]
  test_main.write_rows(Path(setup.directory) / 'metrics.jsonl', rows)


def _bench(spec, parts, *_):
  """Replaces `rounds.measure`."""
  question, model = spec['question'], spec['config']['model']['name']
  tiny = spec | dict(length=64, tokens=2, repeats=1, seconds=1.0, limit=None)
  new = [part for part in parts if is_first('bench', question, model, part)]
  for row in _BENCH(tiny, new, set(), print)[0] if new else ():
    assert 'out_of_memory' not in row, row
  parts = ['encode', 'select', 'write'] if parts == ['all'] else parts
  too_long = spec['limit'] == 40 << 30 and spec['length'] > 1 << 16
  sizes = [cost(spec['question'], name, spec['length']) for name in parts]
  rows = [
      dict(length=spec['length'], name=name, peak_bytes=size)
      | dict.fromkeys(('seconds', 'samples_per_second'), size / 2**20)
      | dict(out_of_memory=too_long)
      for name, size in zip(parts, sizes)
  ]
  return rows, 'cpu'


def _result(entry, rows, settings, **options):
  """Replaces the `run` of a metric with a model.

  The judge's needs a server: see `test_judge`.
  """
  columns = entry.columns
  keys = [column.key for column in columns]
  if entry.name != 'judge' and is_first('metric', entry.name):
    found = entry.run(rows, settings, **options)
    assert {column.key for column in found.columns} >= set(keys)
  shared = [of_model(row.prediction, row.references[0]) for row in rows]
  values = np.subtract.outer(shared, np.arange(len(keys)))
  if 'neighbours' in keys:
    curve = [dict(distance=d, similarity=1 / d, count=1) for d in (1, 2, 4)]
    values = np.full_like(values, 0.25)
    more = dict(similarities=curve)
    return metric.Result(columns, {metric.DOCUMENT: values}, more=more)
  found = {metric.PREDICTION: values}
  if keys == ['coherence']:
    found = {metric.PREDICTION: values / 100}
    found |= {'reference': values * 0 + 0.98, 'shuffled': values * 0 + 0.95}
  return metric.Result(columns, found)


def plant(monkeypatch, figures):
  """Plants everything; pictures are appended to `figures`."""
  for table in metric_table.OF_SCORE, score.METRICS:
    for name, entry in table.items():
      if entry.loads_model:
        run = functools.partial(_result, entry)
        planted = dataclasses.replace(entry, run=run)
        monkeypatch.setitem(table, name, planted)
  add = results.Results.add

  def add_planted(self, row):
    if 'reference' in row:
      system = _name(self._path)
      row = dict(row, prediction=write(system, row['id']))
    return add(self, row)

  monkeypatch.setattr(results.Results, 'add', add_planted)
  monkeypatch.setattr(evaluate, 'measure', _measure)
  monkeypatch.setattr(train, 'train', _train)
  monkeypatch.setattr(rounds, 'measure', _bench)
  render = style.render
  keep = lambda figure, kind: figures.append(figure) or render(figure, kind)
  monkeypatch.setattr(style, 'render', keep)


def run(text):
  """Runs a command; returns what it prints."""
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    assert reproduce.run(text) == 0, text
  return out.getvalue()


def read(text, out):
  """Returns {(system, title): number as printed} of scores, or of `inspect`."""
  found, titles, system = {}, (), _name(flag(text, 'predictions') or '')
  others = [system, _name(flag(text, 'compare') or '')]
  for split, *numbers in re.findall(_SIZES, out, re.M):
    found[flag(text, 'task'), split] = ' '.join(numbers)
  for line in out.splitlines():
    cells = re.split(r'\s{2,}', line.strip())
    if ratio := re.match(r"A's mean is ([\d.]+)%", line):
      found[system, '%'] = ratio[1]
    elif len(cells) > 2 and cells[0] in (*_TYPES.values(), 'mean', 'coherence'):
      for name, value in zip(others, cells[1:]):
        found[name, cells[0]] = value
    elif cells[0] in score.METRICS:
      titles = cells
    elif titles and cells[0] in (
        metric.PREDICTION,
        metric.REFERENCE,
        'shuffled',
    ):
      name = system if cells[0] == metric.PREDICTION else cells[0]
      for title, value in zip(titles[1:], cells[1:]):
        found[name, title] = value.split(' ')[0]
  return found


def flag(text, name):
  words = [word for word in shlex.split(text) if word.startswith(f'--{name}=')]
  return words[0].partition('=')[2] if words else None


def _name(path):
  return path.removeprefix('runs/').removesuffix('.jsonl')
