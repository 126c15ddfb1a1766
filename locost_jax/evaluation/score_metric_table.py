"""The metrics of `score --metrics` by name."""

import functools

import numpy as np

from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.evaluation import bounds
from locost_jax.evaluation.metrics import answers
from locost_jax.evaluation.metrics import correlation
from locost_jax.evaluation.metrics import entities
from locost_jax.evaluation.metrics import fragments
from locost_jax.evaluation.metrics import lengths
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import ngrams
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import bertscore
from locost_jax.evaluation.model_metrics import blanc
from locost_jax.evaluation.model_metrics import coherence
from locost_jax.evaluation.model_metrics import entailment
from locost_jax.evaluation.model_metrics import hhem
from locost_jax.evaluation.model_metrics import judge
from locost_jax.evaluation.model_metrics import locality

_WORDS = 'words:1'  # `words.of_any_script`


def from_metric(entry, what, parts, references=True):
  """Makes a ScoreMetric from a `metric.Metric` of texts.

  Args:
    entry: a Metric that needs TEXT or DOCUMENT.
    what: one line about it.
    parts: of the signature.
    references: whether the references are also measured, like predictions.
  """
  needs = (score_metric.DOCUMENT,) if entry.needs == metric.DOCUMENT else ()
  run = functools.partial(_run_texts, entry, tuple(parts), references)
  return score_metric.ScoreMetric(entry.name, what, run, needs)


def _run_texts(entry, parts, references, rows, settings):
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
  return score_metric.Result(entry.columns, values, parts)


ROUGE = score_metric.ScoreMetric(
    'rouge', 'ROUGE, by --protocol', bounds.run_rouge
)
METRICS = {
    entry.name: entry
    for entry in (
        ROUGE,
        from_metric(
            ngrams.NOVELTY, '% of n-grams not in the document', [_WORDS]
        ),
        from_metric(
            fragments.FRAGMENTS,
            'extractive fragments (Grusky et al. 2018)',
            [_WORDS],
        ),
        from_metric(ngrams.REPETITION, '% of repeated n-grams', [_WORDS]),
        from_metric(
            lengths.LENGTH,
            'words, and words / words of the reference',
            [_WORDS],
            0,
        ),
        from_metric(
            entities.ENTITIES,
            '% of numbers and names that are also in the document',
            ['rules:1'],
        ),
        score_metric.ScoreMetric(
            'bounds',
            'ROUGE of lead, best constant summary and extractive oracle',
            bounds.run,
            (score_metric.DOCUMENT,),
        ),
        from_metric(
            answers.ANSWERS,
            'exact match and F1 of answers (SCROLLS)',
            ['scrolls|agg:max'],
            0,
        ),
        bertscore.METRIC,
        blanc.METRIC,
        entailment.METRIC,
        hhem.METRIC,
        coherence.METRIC,
        locality.METRIC,
        judge.METRIC,
    )
}
# Names of groups of metrics.
GROUPS = {
    'reading': (
        'novelty',
        'fragments',
        'repetition',
        'length',
        'entities',
        'bounds',
    )
}


def find(names):
  """Returns the metrics of --metrics, each once.

  Args:
    names: list of names of metrics and groups.

  Raises:
    InputError: a name is unknown; the message lists all names.
  """
  known = [*METRICS, *GROUPS]
  found = {}
  for name in names:
    if name not in known:
      raise InputError(
          f'--metrics={name}: no such metric{suggest(name, known) or ":"} '
          f'expected some of {", ".join(known)}'
      )
    for one in GROUPS.get(name, (name,)):
      found[one] = METRICS[one]
  if not found:
    raise InputError(f'--metrics=: expected some of {", ".join(known)}')
  return list(found.values())


def find_models(chosen, texts):
  """Returns {name of a metric: its model}.

  Args:
    chosen: list of ScoreMetric.
    texts: list of --model: 'MODEL' for all metrics that need a model, or
      'NAME=MODEL' for one of them.

  Raises:
    InputError: a model is missing, or no metric needs it.
  """
  wanted = [entry.name for entry in chosen if score_metric.MODEL in entry.needs]
  models = {}
  for text in texts:
    name, equals, model = text.partition('=')
    is_named = equals and name in METRICS
    named = {name: model} if is_named else dict.fromkeys(wanted, text)
    for one in named:
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
  if texts and not wanted:
    raise InputError(
        f'--model={texts[0]}: no metric of --metrics needs a model'
    )
  return models


def check_documents(chosen, rows, path):
  """Raises an InputError if a metric needs a document that is missing.

  Args:
    chosen: list of ScoreMetric.
    rows: list of `score_metric.Row`.
    path: the file of the rows.
  """
  for entry in chosen:
    if score_metric.DOCUMENT in entry.needs:
      for number, row in enumerate(rows, 1):
        if row.document is None:
          raise InputError(
              f"{path}: row {number} has no 'document', which --metrics="
              f'{entry.name} needs; --documents=FILE reads them from another '
              'file'
          )


def run(chosen, models, rows, settings):
  """Computes all metrics; an InputError of one does not stop the others.

  Args:
    chosen: list of ScoreMetric.
    models: from `find_models`.
    rows: list of `score_metric.Row`.
    settings: `score_metric.Settings`.

  Returns:
    ({name: Result}, the first InputError of a metric, or None).
  """
  found, problem = {}, None
  for entry in chosen:
    model = models.get(entry.name)
    try:
      found[entry.name] = entry.run(rows, settings._replace(model=model))
    except InputError as error:
      problem = problem or error
  return found, problem


def correlate(measured):
  """Correlates all numbers of the predictions over documents, pairwise.

  Args:
    measured: {name: Result}.

  Returns:
    (titles, float [k, k]).
  """
  titles, columns = [], []
  for name, one in measured.items():
    numbers = one.values.get(score_metric.PREDICTION)
    if numbers is not None:
      titles += [
          title_of(name, column, len(one.columns)) for column in one.columns
      ]
      columns.append(numbers)
  return titles, correlation.pearson(np.concatenate(columns, axis=1))


def correlation_json(titles, values):
  """Returns the JSON output of `correlate`; NaN becomes None."""
  rows = [
      [None if np.isnan(value) else float(value) for value in row]
      for row in values
  ]
  return dict(titles=titles, values=rows)


def title_of(name, column, columns):
  """Returns a column's title, after the metric's name if it is not ROUGE."""
  if name == 'rouge' or column.title.startswith(name):
    return column.title
  return name if columns == 1 else f'{name} {column.title}'
