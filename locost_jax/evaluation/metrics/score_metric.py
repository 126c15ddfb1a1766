"""A metric of `score --metrics` as one object, and its result.

A `ScoreMetric` gets all documents at once, because idf weights and samples need
them. It returns a number for each document, for intervals and correlations.
"""

from typing import Any, Callable, NamedTuple

import numpy as np

from locost_jax.evaluation.metrics import intervals

PREDICTION, REFERENCE = 'prediction', 'reference'
DOCUMENT, MODEL = 'document', 'model'


class Row(NamedTuple):
  """A prediction, its references (each is correct), and the document."""

  prediction: str
  references: list
  document: str | None = None


class Settings(NamedTuple):
  """The user's settings; each metric uses some of them.

  Attributes:
    model: a local directory, hf://org/name, or a model name of the endpoint.
    protocol: a `protocols.Protocol`, for ROUGE.
    processes: number of processes that compute ROUGE.
    layer: of BERTScore, from 1; None: the authors' choice.
    idf: whether BERTScore weights tokens by inverse document frequency.
    baseline: FILE of BERTScore's rescaling, or None.
    threshold: a sentence above this probability counts as supported.
    batch_size: texts per batch of a model.
    seed: of samples and shuffles.
    sample: most documents that a judge rates.
    base_url: of an OpenAI-compatible endpoint.
    cache: directory of a judge's answers.
    show: function (stage, done, total) that shows progress.
    note: function (line) that prints a line at once.
  """

  model: str | None = None
  protocol: Any = None
  processes: int = 1
  layer: int | None = None
  idf: bool = False
  baseline: str | None = None
  threshold: float = 0.5
  batch_size: int = 16
  seed: int = 0
  sample: int = 500
  base_url: str = ''
  cache: str = ''
  show: Callable = lambda stage, done, total: None
  note: Callable = lambda line: None


class Result(NamedTuple):
  """The numbers of one metric.

  Attributes:
    columns: the `metric.Column` of each number.
    values: {row of the table, such as PREDICTION: float [n, columns]}, NaN
      where a document has no such number.
    parts: of the signature, after the metric's name.
    notes: lines for stderr.
    more: further fields of the JSON output.
    numbers: {title: text}, lines below the table.
  """

  columns: tuple
  values: dict
  parts: tuple = ()
  notes: tuple = ()
  more: dict = {}
  numbers: dict = {}


class ScoreMetric(NamedTuple):
  """One metric of `score --metrics`.

  Attributes:
    name: its name in --metrics.
    what: one line about it.
    run: function (list of Row, Settings) -> Result.
    needs: some of DOCUMENT and MODEL.
  """

  name: str
  what: str
  run: Callable
  needs: tuple = ()


def summarize(name, measured):
  """Returns the JSON output of a metric.

  Args:
    name: of the metric.
    measured: a Result.

  Returns:
    dict of values and intervals ({row: {key: number}}, None if no document has
    one), documents ({row: {key: number of documents that have one}}),
    signature, and the fields of `measured.more`.
  """
  found = dict(values={}, intervals={}, documents={})
  for row, numbers in measured.values.items():
    for side in found.values():
      side[row] = {}
    for i, column in enumerate(measured.columns):
      known = numbers[~np.isnan(numbers[:, i]), i]
      found['documents'][row][column.key] = len(known)
      value = interval = None
      if len(known):
        value = float(known.mean())
        interval = list(
            intervals.interval(intervals.bootstrap(known), documents=len(known))
        )
      found['values'][row][column.key] = value
      found['intervals'][row][column.key] = interval
  total = len(next(iter(measured.values.values())))
  parts = [name, *measured.parts, f'n:{total}', f'ci:{intervals.LEVEL}']
  return dict(found, signature='|'.join(parts), **measured.more)
