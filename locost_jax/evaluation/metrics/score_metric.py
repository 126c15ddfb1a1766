"""A metric of `score --metrics`: a function of all documents, and its result.

It sees all documents at once, because idf weights and samples need them, and
returns a number for each document, for intervals and correlations.
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
  """The user's settings; each metric uses some of them."""

  model: str | None = None  # a directory, or hf://org/name
  protocol: Any = None  # a `protocols.Protocol`, for ROUGE
  processes: int | None = 1  # that compute ROUGE; None: one per core
  layer: int | None = None  # of BERTScore, from 1; None: its authors' choice
  idf: bool = False  # whether BERTScore weights rare tokens more
  baseline: str | None = None  # FILE of BERTScore's rescaling
  batch_size: int = 16  # texts per batch of a model
  show: Callable = lambda stage, done, total: None  # shows progress


class Result(NamedTuple):
  """The numbers of one metric."""

  columns: tuple  # the `metric.Column` of each number
  # {row of the table, such as PREDICTION: float [n, columns]}, NaN where a
  # document has no such number.
  values: dict
  parts: tuple = ()  # of the signature, after the metric's name
  notes: tuple = ()  # lines for stderr
  more: dict = {}  # further fields of the JSON output
  numbers: dict = {}  # {title: text}, lines below the table


class ScoreMetric(NamedTuple):
  """One metric of `score --metrics`."""

  what: str  # one line about it
  run: Callable  # (list of Row, Settings) -> Result
  needs: tuple = ()  # some of DOCUMENT and MODEL


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
