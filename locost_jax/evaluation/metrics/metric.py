"""A metric as one object: its numbers, its inputs, and how it is computed.

Every number of a document is a sum and a weight, so that a partial last batch
has the right weight, and a mean is a sum of sums.
"""

import dataclasses
import functools
from typing import Any, Callable, NamedTuple

import numpy as np

from locost_jax import files
from locost_jax.data import workers
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import intervals

TEXT, MODEL, CONTENT, DOCUMENT = 'text', 'model', 'content', 'document'
# Rows of the tables of `score --metrics`.
PREDICTION, REFERENCE = 'prediction', 'reference'


class Column(NamedTuple):
  """A number of a metric, and how tables show it."""

  key: str  # as in eval/TASK/KEY
  title: str  # '': tables do not show it
  digits: int = 2
  lower_is_better: bool = False


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Metric(str):
  """A metric, which is its name: a config stores and compares it as a text.

  `sums` returns {key: (sum, weight)}, numbers or scalar arrays; None: see `run`.
  Its arguments depend on `needs`. TEXT: (prediction, references) of one
  document, a str and a list of str; DOCUMENT: (prediction, document), both str,
  in `score --metrics` only; CONTENT: (prediction, contents), a list of lists,
  the content words of each reference; MODEL: (model, params, batch), a batch of
  `step.token_sums`, on the mesh.
  """

  name: str  # in config.eval.metrics and `score --metrics`
  columns: tuple = ()
  sums: Callable | None = None
  needs: str = TEXT
  parts: tuple = ()  # of its signature: they name the variant
  # {key: mean over the split} -> numbers of the means, such as a perplexity.
  derive: Callable | None = None
  what: str = ''  # one line; `score --metrics` knows the metrics with one
  # (list of Row, Settings) -> Result, for `score --metrics`, of a metric that
  # sees all documents at once, such as one with a model.
  run: Callable | None = None
  loads_model: bool = False  # whether `run` needs --model

  def __new__(cls, name, *_, **__):
    """Makes the text; the dataclass sets the attributes."""
    return super().__new__(cls, name)

  __deepcopy__ = lambda self, memo: self
  # Other processes, which tokenise, get the name.
  __reduce__ = lambda self: (str, (self.name,))

  @property
  def keys(self):
    """The names of its numbers."""
    return [column.key for column in self.columns]

  def signature(self, documents):
    """Returns 'NAME|PART|...|n:DOCUMENTS'."""
    return '|'.join([self.name, *self.parts, f'n:{documents}'])


class Row(NamedTuple):
  """A prediction, its references (each is correct), and the document."""

  prediction: str
  references: list
  document: str | None = None
  id: str | None = None
  line: int = 0  # in the file, from 1
  signature: str = ''  # of scores computed when the file was written
  test_set: str = ''  # from `predictions.test_set`, when it was written


class Settings(NamedTuple):
  """The user's settings; each metric uses some of them."""

  model: str | None = None  # a directory, or hf://org/name
  protocol: Any = None  # a `protocols.Protocol`, for ROUGE
  processes: int | None = 1  # that compute ROUGE; None: one per core
  batch_size: int = 16  # texts per batch of a model
  show: Callable = lambda stage, done, total: None  # shows progress


class Result(NamedTuple):
  """The numbers of one metric for each document."""

  columns: tuple
  values: dict  # {row of the table, such as PREDICTION: as from `of_rows`}
  parts: tuple = ()  # of the signature
  notes: tuple = ()  # lines for stderr
  more: dict = {}  # further fields of the JSON output
  numbers: dict = {}  # {title: text}, lines below the table


def means(parts):
  """Returns {key: mean} of [{key: (sum, weight)}, ...], if it has a weight."""
  totals = {}
  for part in parts:
    for key, (value, weight) in part.items():
      total, weights = totals.get(key, (0.0, 0.0))
      totals[key] = total + float(value), weights + float(weight)
  return {key: x / weight for key, (x, weight) in totals.items() if weight}


def score(metrics, predictions, references, contents=None, show=None):
  """Returns the mean scores of n texts: {key: float}.

  Args:
    metrics: list of Metric that need TEXT or CONTENT.
    references: n, each a str or a list of str that are all correct.
    contents: n lists, the content words of each reference; None: unknown;
      metrics that need CONTENT are left out.
    show: function (documents done, documents) that shows progress, or None.
  """
  given = [
      {TEXT: as_list(reference)}
      | ({} if content is None else {CONTENT: content})
      for reference, content in zip(
          references, contents or [None] * len(references), strict=True
      )
  ]
  items = list(zip(predictions, given, strict=True))
  sums = [(metric.needs, metric.sums) for metric in metrics]
  parts = workers.map_texts(
      functools.partial(_sums, sums), items, _sizes, show=show
  )
  return means([part for found in parts for part in found])


def _sums(metrics, item):
  """Returns the sums of each metric for one document."""
  prediction, given = item
  return [
      _call(sums, prediction, given[x]) for x, sums in metrics if x in given
  ]


def _call(sums, prediction, given):
  """Calls a function that may be a user's own, and checks what it returns."""
  found = sums(prediction, given)
  if not isinstance(found, dict) or not all(
      isinstance(x, (tuple, list)) and len(x) == 2 for x in found.values()
  ):
    raise InputError(
        f'the metric {getattr(sums, "__name__", sums)} returned '
        f'{files.show_value(found)}; expected a dict of (sum, weight)'
    )
  return found


def _sizes(item):
  return len(item[0]), sum(map(len, item[1][TEXT]))


def as_list(reference):
  """Returns a reference (a str, or a list of correct references) as a list."""
  return [reference] if isinstance(reference, str) else list(reference)


def measure(metric, rows, settings):
  """Measures each document: returns a Result."""
  if metric.run is not None:
    return metric.run(rows, settings)
  values = {PREDICTION: of_rows(metric, rows, settings)}
  return Result(metric.columns, values, metric.parts)


def of_rows(metric, rows, settings):
  """Returns the numbers of rows: float [n, columns]; NaN: no such number."""
  found = workers.map_texts(
      functools.partial(_sums, [(metric.needs, metric.sums)]),
      [
          (row.prediction, {TEXT: row.references, DOCUMENT: row.document})
          for row in rows
      ],
      _sizes,
      settings.processes,
      functools.partial(settings.show, metric.name),
  )
  values = np.full([len(rows), len(metric.columns)], np.nan)
  for i, (sums,) in enumerate(found):
    for c, key in enumerate(metric.keys):
      if key in sums:
        values[i, c] = sums[key][0] / sums[key][1]
  return values


def summarize(name, measured):
  """Returns the JSON output of a metric in `score --metrics`.

  Returns:
    dict of values and intervals ({row: {key: number}}, None if no document has
    one), documents ({row: {key: number of documents that have one}}),
    signature, and the fields of `measured.more`.
  """
  found = dict(values={}, intervals={}, documents={})
  for row, numbers in measured.values.items():
    values, limits, documents = (
        side.setdefault(row, {}) for side in found.values()
    )
    for (key, *_), column in zip(measured.columns, numbers.T, strict=True):
      known = column[~np.isnan(column)]
      values[key] = limits[key] = None
      documents[key] = n = len(known)
      if n:
        values[key] = float(known.mean())
        drawn = intervals.bootstrap(known)
        limits[key] = list(intervals.interval(drawn, documents=n))
  total = len(next(iter(measured.values.values())))
  parts = [name, *measured.parts, f'n:{total}', f'ci:{intervals.LEVEL}']
  return dict(found, signature='|'.join(parts), **measured.more)
