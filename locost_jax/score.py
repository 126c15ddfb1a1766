"""Scores predictions with the ROUGE of a paper or package, and other metrics.

  python -m locost_jax.score FILE.jsonl --protocol=locost
  python -m locost_jax.score runs/a runs/b
  python -m locost_jax.score --predictions=FILE.jsonl --metrics=rouge,answers

Each row has `prediction` and `reference`, or `references`, a list of which the
best one counts. `main --evaluate` writes such files; WORKDIR means the newest
file of its best checkpoint. Texts are never truncated. For R-Lsum the sentences
of a text are its lines; a text without newlines is split by our rules.

--compare scores both files and tests each difference. Documents are matched by
`id`; without ids the rows must have the same references in the same order.

The last line is the signature. It says how the numbers were computed; quote it
with them. An interval holds 95% of the means of 1,000 bootstrap samples of the
documents.

--metrics measures more, each number with half the width of its interval: exact
match and F1 of answers, and Metrics of a config. BERTScore, BLANC and others of
the papers' tables are in papers/score.py of a checkout.
"""

import functools
import json
import os
import sys

from locost_jax.config import commands
from locost_jax.config import tables
from locost_jax.config.progress import Progress
from locost_jax.errors import InputError
from locost_jax.evaluation import compare_predictions
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge


def define_flags(values, argv, metrics=metric_table.OF_SCORE):
  """Defines this command's flags; --metrics takes the names of `metrics`."""
  del argv
  of_protocols = {p.name: p.what for p in protocols.PROTOCOLS.values()}
  of_metrics = {name: one.what for name, one in metrics.items()}
  table = {
      'predictions': (
          'FILE: the predictions: JSON lines with prediction and reference (or '
          'references), or the WORKDIR of a run'
      ),
      'compare': (
          'FILE: other predictions of the same documents, or another WORKDIR'
      ),
      'split': 'the split of a WORKDIR, validation or test [the newest file]',
      'protocol': (
          'locost',
          commands.explain('how to compute ROUGE [locost]', of_protocols),
      ),
      'processes': 'number of processes that score [one per core]',
      'format': ('text', 'format of the scores on stdout', commands.FORMATS),
      'metrics': (
          'rouge',
          commands.explain(
              'NAME,NAME,...: the metrics to compute [rouge]', of_metrics
          ),
      ),
      'config': 'FILE: a config whose own Metrics --metrics may name',
      'model': (
          'DIR: the model of a metric, or hf://org/name; METRIC=DIR,METRIC=DIR '
          'for several metrics'
      ),
      'documents': (
          'FILE: JSON lines with the documents, if --predictions has none'
      ),
      'batch_size': (16, 'texts per batch of a metric that uses a model'),
  }
  commands.define(values, table)


def main(values, arguments):
  """Runs the command."""
  commands.take_words(values, arguments, 'predictions', 'compare')
  if not values.predictions:
    raise InputError('--predictions=FILE is missing: expected predictions')
  protocol = protocols.find(values.protocol)
  path = find_file(values.predictions, values.split)
  known = metric_table.OF_SCORE
  if values.config:
    names = commands.load_config(values.config).eval.metrics
    known = known | {x: x for x in names if isinstance(x, metric.Metric)}
  chosen = metric_table.find(split(values.metrics), known)
  if list(chosen) != ['rouge'] or values.model:
    if values.compare:
      raise InputError('--compare and --metrics: expected one of them')
    print_metrics(path, chosen, protocol, values)
    return
  pairs = predictions.read(path)
  _check_protocol(path, pairs, protocol, values)
  if values.compare:
    other = find_file(values.compare, values.split)
    result = compare((path, other), pairs, protocol, values)
    show = compare_predictions.format_text
  else:
    result = rouge.summarize(score(pairs, protocol, values), protocol)
    show = text
  print(json.dumps(result) if values.format == 'json' else show(result))


def _check_protocol(path, rows, protocol, values):
  """Raises an InputError if rows have scores of another, unchosen protocol."""
  written = (row.signature.split('|') for row in rows)
  others = {x[1] for x in written if x[0] == 'rouge'} - {protocol.name}
  if others and not values['protocol'].present:
    raise InputError(
        f'{path}: its {len(rows):,} rows have scores by {min(others)}, not by '
        f'{protocol.name}: name one of them by --protocol'
    )


def find_file(path, split=None):
  """Returns the file of predictions of a path; reports that of a WORKDIR."""
  if not os.path.isdir(path):
    return path
  # Imported late: reading checkpoints needs JAX, and takes seconds.
  from locost_jax.workdir import find

  found = find.newest_predictions(path, split)
  print(f'{path}: uses {found}', file=sys.stderr)
  return found


def score(rows, protocol, values):
  """Returns `rouge.score_rows`, and prints warnings."""
  progress = Progress()
  show = functools.partial(progress.show, 'scoring')
  scores = rouge.score_rows(rows, protocol, values.processes, show)
  progress.wipe()
  for line in rouge.warnings(rows, protocol):
    print(line, file=sys.stderr)
  return scores


def compare(paths, pairs, protocol, values):
  """Returns the scores of two files, and their differences."""
  pairs = [pairs, predictions.read(paths[1])]
  _check_protocol(paths[1], pairs[1], protocol, values)
  pairs[1] = compare_predictions.match(*pairs, paths)
  is_chosen = values['protocol'].present
  for line in compare_predictions.warnings(pairs, paths, protocol, is_chosen):
    print(line, file=sys.stderr)
  scores = [score(side, protocol, values) for side in pairs]
  return dict(
      predictions=list(paths),
      scores=[rouge.summarize(side, protocol) for side in scores],
      differences=compare_predictions.compare(scores, protocol),
      signature=protocols.signature(protocol, len(pairs[0])),
  )


def print_metrics(path, chosen, protocol, values, more=None):
  """Measures and prints everything that --metrics names.

  Args:
    chosen: {name: `metric.Metric`}.
    more: (rows, {name: Result}) -> (text below the tables, {field: value} of
      the JSON output); None: nothing more.

  Returns:
    The JSON output as a dict.
  """
  models = metric_table.find_models(chosen, split(values.model))
  rows = predictions.read_rows(path, values.documents, chosen)
  if 'rouge' in chosen:
    _check_protocol(path, rows, protocol, values)
  measured, problem = measure(rows, chosen, models, protocol, values)
  notes = [line for one in measured.values() for line in one.notes]
  if 'rouge' in measured:
    notes += rouge.warnings(rows, protocol)
  for line in notes:
    print(line, file=sys.stderr)
  found = {name: metric.summarize(name, one) for name, one in measured.items()}
  below, fields = more(rows, measured) if more else ('', {})
  result = dict(pairs=len(rows), metrics=found, **fields)
  if values.format == 'text':
    tables = [
        format_metric(name, found[name], one) for name, one in measured.items()
    ]
    print('\n\n'.join(tables + [below] * bool(below)))
  else:
    print(json.dumps(result))
  if problem is not None:
    raise problem
  return result


def measure(rows, chosen, models, protocol, values):
  """Returns `metric_table.run` of rows; raises if no metric can be measured."""
  progress = Progress()
  settings = metric.Settings(
      protocol=protocol,
      processes=values.processes,
      batch_size=values.batch_size,
      show=progress.show,
  )
  measured, problem = metric_table.run(chosen, models, rows, settings)
  progress.wipe()
  if not measured:
    raise problem
  return measured, problem


def split(text):
  """Splits a flag at its commas."""
  return [word.strip() for word in (text or '').split(',') if word.strip()]


def text(result):
  """Formats the result of `rouge.summarize`: the table and the signature."""
  rows = [['F1 x 100', '', '95% interval']]
  for key, title in protocols.TITLES.items():
    if key in result:
      low, high = result['intervals'][key]
      of = ''
      if key in (protocols.MEAN, protocols.GEOMETRIC):
        of = '  of ' + ', '.join(
            protocols.TITLES[name] for name in result['mean_of']
        )
      rows.append([title, f'{result[key]:.2f}', f'{low:.2f} to {high:.2f}{of}'])
  lines = tables.align(rows, (0, 2), (14, 6, 0))
  return '\n'.join([*lines, result['signature']])


def format_metric(name, summary, measured):
  """Returns the table of one metric, with its signature below.

  A cell is '12.34 +-0.56 n:973': mean, half the interval, documents.
  """
  rows = [[name, *(column.title for column in measured.columns)]]
  for row, values in summary['values'].items():
    cells = []
    for column in measured.columns:
      key, digits = column.key, column.digits
      cells.append('n/a')
      if values[key] is not None:
        low, high = summary['intervals'][row][key]
        cells[-1] = (
            f'{values[key]:.{digits}f} +-{(high - low) / 2:.{digits}f} '
            f'n:{summary["documents"][row][key]}'
        )
    rows.append([row, *cells])
  more = [f'{title}: {text}' for title, text in measured.numbers.items()]
  lines = tables.align(rows, least=14)
  return '\n'.join([*lines, *more, summary['signature']])


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
