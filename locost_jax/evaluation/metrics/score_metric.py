"""A measure of `score --metrics` as one object, and what it returns.

A measure sees all documents at once, because idf weights, samples and exchanged
texts need them. Its numbers stay apart for each document, so that they get
intervals and can be correlated.
"""

from typing import Any, Callable, NamedTuple

import numpy as np

from locost_jax.evaluation.metrics import intervals

PREDICTION, REFERENCE = 'prediction', 'reference'
DOCUMENT, MODEL = 'document', 'model'


class Row(NamedTuple):
  """A prediction, the references that count as right, and the document."""

  prediction: str
  references: list
  document: str | None = None


class Settings(NamedTuple):
  """The user's settings; each measure reads what it needs.

  Attributes:
    model: a local directory, hf://org/name, or the name that an endpoint knows.
    protocol: a `protocols.Protocol`, for what is scored by ROUGE.
    processes: how many score by ROUGE.
    layer: of BERTScore, from 1; None: the one of its authors.
    idf: whether BERTScore weights words by their rarity.
    baseline: FILE of BERTScore's rescaling, or None.
    threshold: from which probability a sentence counts as supported.
    batch_size: texts that a model reads at once.
    seed: of samples and shuffles.
    sample: most documents that a judge reads.
    base_url: of an OpenAI-compatible endpoint.
    cache: DIR of a judge's answers.
    show: function (stage, done, total) for progress.
    note: function (line) for what the user must see at once.
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
  """The numbers of one measure.

  Attributes:
    columns: the `metric.Column` of each number.
    values: {row, such as PREDICTION: float [n, columns]}, NaN where a document
      has no such number.
    parts: what fixes the numbers besides the measure's name, for the signature.
    notes: lines that the user must see.
    more: what else JSON has.
    numbers: {title: text} that the table shows below.
  """

  columns: tuple
  values: dict
  parts: tuple = ()
  notes: tuple = ()
  more: dict = {}
  numbers: dict = {}


class ScoreMetric(NamedTuple):
  """One word of `score --metrics`.

  Attributes:
    name: the word.
    what: one line about it.
    run: function (list of Row, Settings) -> Result.
    needs: some of DOCUMENT and MODEL.
  """

  name: str
  what: str
  run: Callable
  needs: tuple = ()


def summarize(name, measured):
  """Returns the numbers of a measure as JSON has them.

  Args:
    name: of the measure.
    measured: a Result.

  Returns:
    dict of values and intervals ({row: {key: number}}, None where no document
    has one), documents ({row: {key: how many have one}}), signature, and what
    else the measure gives.
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
        interval = list(intervals.interval(intervals.bootstrap(known)))
      found['values'][row][column.key] = value
      found['intervals'][row][column.key] = interval
  total = len(next(iter(measured.values.values())))
  parts = [name, *measured.parts, f'n:{total}', f'ci:{intervals.LEVEL}']
  return dict(found, signature='|'.join(parts), **measured.more)
