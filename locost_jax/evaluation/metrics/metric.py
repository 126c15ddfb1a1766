"""A metric as one object: its numbers, what it needs, how it is computed.

Every number is a sum and a weight until the last line, so that a last, partial
batch counts for what it holds.
"""

from typing import Any, NamedTuple

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
    needs: TEXT: summaries are generated for it; CONTENT: and what they could
      take from their documents; MODEL: only the model; DOCUMENT: the text of
      the document, which only `score --metrics` has.
    sums: {key: (sum, weight)}, as numbers or scalar arrays. With TEXT a
      function of (prediction, references), a str and a list of str, of one
      document; with DOCUMENT of (prediction, document), both str; with CONTENT
      of (prediction, contents), where contents has the content words of each
      reference, a list of lists; with MODEL of (model, params, batch), where
      the batch is as in `step.eval_step`, on the mesh.
    columns: those of its numbers that tables show.
    lower_is_better: the keys whose best value is the smallest.
    signature: function of the number of documents -> what fixes the numbers, a
      text without spaces; None: the metric has no variants.
    derive: {key: mean over the split} -> numbers that follow from these, such
      as a perplexity; None: nothing does.
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
  """Adds up parts and divides.

  Args:
    parts: list of {key: (sum, weight)}.

  Returns:
    {key: float}; keys without any weight are left out.
  """
  totals = {}
  for part in parts:
    for key, (value, weight) in part.items():
      total, weights = totals.get(key, (0.0, 0.0))
      totals[key] = total + float(value), weights + float(weight)
  return {
      key: total / weight for key, (total, weight) in totals.items() if weight
  }


def score(metrics, predictions, references, contents=None):
  """Returns the numbers of metrics of texts over documents: {key: float}.

  Args:
    metrics: list of Metric that need TEXT or CONTENT.
    predictions: list of n str.
    references: list of n references: a str, or a list of str that all count
      as right.
    contents: list of n lists, the content words of each reference; None: they
      are not known, and metrics that need CONTENT are left out.
  """
  parts = []
  pairs = zip(predictions, references, strict=True)
  for i, (prediction, reference) in enumerate(pairs):
    given = {TEXT: as_list(reference)}
    if contents is not None:
      given[CONTENT] = contents[i]
    parts += [
        metric.sums(prediction, given[metric.needs])
        for metric in metrics
        if metric.needs in given
    ]
  return means(parts)


def as_list(reference):
  """A reference, a str or a list of str that all count, as a list."""
  return [reference] if isinstance(reference, str) else list(reference)
