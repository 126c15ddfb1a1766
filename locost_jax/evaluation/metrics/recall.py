"""Content recall: the share of content words that a summary has.

Content words are the words of the reference that occur in the document and are
not among the most common words of the training targets (`evaluation.content`).
Each word counts once. Words are those of ROUGE.
"""

import functools

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols


def of_protocol(name):
  """Returns the Metric with the words of a protocol."""
  return metric.Metric(
      name='recall',
      keys=('recall',),
      needs=metric.CONTENT,
      sums=functools.partial(_sums, name),
      columns=(metric.Column('recall', 'recall', 1),),
  )


def _sums(name, prediction, contents):
  """Returns {'recall': (content words written x 100, content words)}.

  Args:
    name: of the protocol.
    contents: the content words of each reference, a list of lists; the
      reference with the highest recall counts.
  """
  written = set(protocols.find(name).tokenize(prediction))
  counts = [
      (len(written.intersection(content)), len(set(content)))
      for content in contents
      if content
  ]
  if not counts:
    return {}
  found, wanted = max(counts, key=lambda count: count[0] / count[1])
  return {'recall': (100.0 * found, wanted)}
