"""The metrics of `score --metrics`: a table of functions, and their output."""

import functools
import json

import numpy as np

from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.evaluation import predictions
from locost_jax.evaluation import scoring
from locost_jax.evaluation.metrics import answers
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.metrics.score_metric import ScoreMetric
from locost_jax.evaluation.model_metrics import bertscore
from locost_jax.evaluation.model_metrics import blanc

ROUGE_COLUMNS = tuple(
    metric.Column(key, protocols.TITLES[key], 2)
    for key in (*protocols.TYPES, protocols.MEAN)
)
_WIDTH = 14  # of a cell, at least


def run_rouge(rows, settings):
  """Scores the predictions by ROUGE, for a table with other metrics."""
  texts = [row.prediction for row in rows]
  signature = protocols.signature(settings.protocol, len(rows))
  return score_metric.Result(
      ROUGE_COLUMNS,
      {score_metric.PREDICTION: rouge(texts, rows, settings, 'ROUGE')},
      tuple(protocols.method(signature).split('|')[1:]),
      tuple(scoring.warnings(rows, settings.protocol)),
  )


def rouge(texts, rows, settings, stage):
  """Returns the ROUGE of texts, float [n, 5], in the order of ROUGE_COLUMNS.

  Args:
    texts: list of n str.
    rows: list of n `score_metric.Row`, which have the references.
    stage: its name in the progress line.
  """
  scores = scoring.score_pairs(
      [
          predictions.Pair(text, row.references)
          for text, row in zip(texts, rows)
      ],
      settings.protocol,
      settings.processes,
      lambda done, total: settings.show(stage, done, total),
  )
  return np.array(
      [[row[column.key] for column in ROUGE_COLUMNS] for row in scores],
      np.float64,
  )


def from_metric(entry, what, part, references=True):
  """Makes a ScoreMetric from a `metric.Metric` of texts.

  Args:
    entry: a Metric that needs TEXT or DOCUMENT.
    what: one line about it.
    part: of the signature.
    references: whether the references are also measured, like predictions.
  """
  needs = (score_metric.DOCUMENT,) if entry.needs == metric.DOCUMENT else ()
  run_all = functools.partial(_run_texts, entry, part, references)
  return ScoreMetric(what, run_all, needs)


def _run_texts(entry, part, references, rows, settings):
  values = {}
  sides = {score_metric.PREDICTION: lambda row: row.prediction}
  if references:
    sides[score_metric.REFERENCE] = lambda row: row.references[0]
  for side, text_of in sides.items():
    values[side] = np.full([len(rows), len(entry.columns)], np.nan)
    for i, row in enumerate(rows):
      settings.show(entry.name, i, len(rows))
      other = row.document if entry.needs == metric.DOCUMENT else row.references
      sums = entry.sums(text_of(row), other)
      for c, column in enumerate(entry.columns):
        if column.key in sums:
          value, weight = sums[column.key]
          values[side][i, c] = value / weight
  return score_metric.Result(entry.columns, values, (part,))


METRICS = {
    'rouge': ScoreMetric('ROUGE, by --protocol', run_rouge),
    'answers': from_metric(
        answers.ANSWERS,
        'exact match and F1 of answers (SCROLLS)',
        'scrolls|agg:max',
        references=False,
    ),
    bertscore.NAME: ScoreMetric(
        'BERTScore (Zhang et al. 2020)', bertscore.run, (score_metric.MODEL,)
    ),
    blanc.NAME: ScoreMetric(
        'BLANC-help (Vasilyev et al. 2020)',
        blanc.run,
        (score_metric.DOCUMENT, score_metric.MODEL),
    ),
}


def find(names, known):
  """Returns {name: ScoreMetric} of --metrics.

  Args:
    known: {name: ScoreMetric}.

  Raises:
    InputError: a name is unknown; the message lists all names.
  """
  for name in names or ['']:
    if name not in known:
      raise InputError(
          f'--metrics={name}: no such metric{suggest(name, known) or ":"} '
          f'expected some of {", ".join(known)}'
      )
  return {name: known[name] for name in names}


def find_models(chosen, texts):
  """Returns {name of a metric: its model}.

  Args:
    chosen: {name: ScoreMetric}.
    texts: list of --model: 'MODEL' for all metrics that need a model, or
      'NAME=MODEL' for one of `chosen`.

  Raises:
    InputError: a model is missing, or no metric needs it.
  """
  wanted = [
      name for name, one in chosen.items() if score_metric.MODEL in one.needs
  ]
  models = {}
  for text in texts:
    name, equals, model = text.partition('=')
    is_named = equals and (name in chosen or name in METRICS)
    named = {name: model} if is_named else dict.fromkeys(wanted, text)
    for one in named or [name]:
      if one not in wanted or one in models:
        problem = 'two models' if one in models else 'no model'
        raise InputError(
            f'--model={text}: --metrics={one} has {problem}; these need one: '
            f'{", ".join(wanted) or "none"}'
        )
    models |= named
  for name in wanted:
    if not models.get(name):
      raise InputError(
          f'--metrics={name} needs a model: --model=DIR, or '
          f'--model={name}=DIR,OTHER=DIR for several metrics'
      )
  return models


def read_rows(path, documents, chosen):
  """Returns the `score_metric.Row`s of a file of predictions.

  Args:
    path: the file, whose rows may have `document`.
    documents: another JSONL file, whose rows have `document`. Rows are matched
      by `id` if all rows of both files have one, else by position. None: no
      such file.
    chosen: {name: ScoreMetric}, which may need documents.

  Raises:
    InputError: a file cannot be read, the rows do not match, or a document is
      missing.
  """
  pairs, found = predictions.read(path), _documents(path)
  if documents is not None:
    others = _documents(documents)
    ids, known = [key for key, _ in found], dict(others)
    if None not in ids and None not in known and len(known) == len(others):
      missing = [key for key in ids if key not in known]
      if missing:
        raise InputError(
            f'--documents={documents}: no row with the id {missing[0]} of '
            f'{path}; {len(missing):,} of its {len(ids):,} ids are missing'
        )
      others = [(key, known[key]) for key in ids]
    elif len(others) != len(found):
      raise InputError(
          f'--documents={documents}: {len(others):,} rows without ids, '
          f'expected the {len(found):,} of {path}'
      )
    found = others
  for name, one in chosen.items():
    texts = [document for _, document in found]
    if score_metric.DOCUMENT in one.needs and None in texts:
      raise InputError(
          f"{path}: row {texts.index(None) + 1} has no 'document', which "
          f'--metrics={name} needs; --documents=FILE reads them from another '
          'file'
      )
  return [
      score_metric.Row(pair.prediction, pair.references, document)
      for pair, (_, document) in zip(pairs, found, strict=True)
  ]


def _documents(path):
  """Returns (id as JSON or None, document or None) of each row."""
  found = []
  for number, line in sources.read_lines(path):
    row = sources.parse_row(path, number, line, [])
    if row.get('document') is not None:
      sources.check_texts(f'{path}:{number}', row, ['document'])
    key = None if row.get('id') is None else json.dumps(row['id'])
    found.append((key, row.get('document')))
  return found


def run(chosen, models, rows, settings):
  """Computes all metrics; an InputError of one does not stop the others.

  Args:
    chosen: {name: ScoreMetric}.
    models: from `find_models`.
    rows: list of `score_metric.Row`.

  Returns:
    ({name: Result}, the first InputError of a metric, or None).
  """
  found, problem = {}, None
  for name, one in chosen.items():
    try:
      found[name] = one.run(rows, settings._replace(model=models.get(name)))
    except InputError as error:
      problem = problem or error
  return found, problem


def table(name, summary, measured):
  """Returns the table of one metric, with its signature below.

  A cell is '12.34 +-0.56 n:973': mean, half the interval, documents.

  Args:
    name: of the metric.
    summary: from `score_metric.summarize`.
    measured: the Result.
  """
  rows = [[name, *(column.title for column in measured.columns)]]
  for row, values in summary['values'].items():
    cells = []
    for key, _, digits in measured.columns:
      cells.append('n/a')
      if values[key] is not None:
        low, high = summary['intervals'][row][key]
        cells[-1] = (
            f'{values[key]:.{digits}f} +-{(high - low) / 2:.{digits}f} '
            f'n:{summary["documents"][row][key]}'
        )
    rows.append([row, *cells])
  more = [f'{title}: {text}' for title, text in measured.numbers.items()]
  return '\n'.join([*align(rows), *more, summary['signature']])


def align(rows, width=_WIDTH):
  """Returns rows of cells as lines; first cells are left-aligned."""
  widths = [max(width, *map(len, column)) for column in zip(*rows)]
  return [
      '  '.join(
          f'{text:{">" if i else "<"}{widths[i]}}'
          for i, text in enumerate(cells)
      ).rstrip()
      for cells in rows
  ]
