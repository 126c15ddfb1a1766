"""A metric as one object: its numbers, its inputs, and how it is computed.

Every number is kept as a sum and a weight until the end, so that a partial last
batch has the right weight.
"""

import functools
from typing import Any, NamedTuple

from locost_jax.evaluation.metrics import processes

TEXT, MODEL, CONTENT, DOCUMENT = 'text', 'model', 'content', 'document'


class Column(NamedTuple):
  """How a number is shown in tables."""

  key: str
  title: str
  digits: int


class Metric(NamedTuple):
  """One entry of config.eval.metrics.

  Attributes:
    name: in config.eval.metrics.
    keys: the names of its numbers, as in eval/TASK/KEY.
    needs: the input. TEXT: generated summaries and references; CONTENT:
      generated summaries and the content words of the references; MODEL: the
      model and a batch; DOCUMENT: a summary and its document, in
      `score --metrics` only.
    sums: function that returns {key: (sum, weight)}, numbers or scalar arrays.
      Its arguments depend on `needs`:
      TEXT: (prediction, references) of one document, a str and a list of str;
      DOCUMENT: (prediction, document), both str;
      CONTENT: (prediction, contents), where contents is a list of lists, the
      content words of each reference;
      MODEL: (model, params, batch), a batch of `step.eval_step`, on the mesh.
    columns: the numbers that tables show.
    lower_is_better: the keys whose best value is the smallest.
    signature: function (number of documents) -> str without spaces that names
      the variant of the metric; None: the metric has no variants.
    derive: function ({key: mean over the split}) -> numbers computed from the
      means, such as a perplexity; None: no such numbers.
  """

  name: str
  keys: tuple
  needs: str
  sums: Any
  columns: tuple = ()
  lower_is_better: tuple = ()
  signature: Any = None
  derive: Any = None


def means(parts):
  """Returns the weighted means of parts.

  Args:
    parts: list of {key: (sum, weight)}.

  Returns:
    {key: float}; keys of total weight 0 are left out.
  """
  totals = {}
  for part in parts:
    for key, (value, weight) in part.items():
      total, weights = totals.get(key, (0.0, 0.0))
      totals[key] = total + float(value), weights + float(weight)
  return {
      key: total / weight for key, (total, weight) in totals.items() if weight
  }


def score(metrics, predictions, references, contents=None, show=None):
  """Returns the mean scores of texts: {key: float}.

  Args:
    metrics: list of Metric that need TEXT or CONTENT.
    predictions: list of n str.
    references: list of n references: a str, or a list of str that are all
      correct.
    contents: list of n lists, the content words of each reference; None:
      unknown; metrics that need CONTENT are left out.
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
  parts = processes.run(
      functools.partial(_sums, sums), items, _sizes, show=show
  )
  return means([part for found in parts for part in found])


def _sums(metrics, item):
  """Returns the sums of each metric for one document."""
  prediction, given = item
  return [sums(prediction, given[x]) for x, sums in metrics if x in given]


def _sizes(item):
  return len(item[0]), sum(map(len, item[1][TEXT]))


def as_list(reference):
  """Returns a reference (a str, or a list of correct references) as a list."""
  return [reference] if isinstance(reference, str) else list(reference)
