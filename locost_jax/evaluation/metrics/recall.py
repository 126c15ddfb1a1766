"""Content recall: the share of content words that a summary has.

Content words are the words of the reference that occur in the document and are
not among the most common words of the training targets (`evaluation.content`).
Each word counts once. Words are those of ROUGE: runs of a-z and 0-9, in lower
case.
"""

import re

from locost_jax.evaluation.metrics import metric

_WORD = re.compile(r'[a-z0-9]+')


def words(text):
  """Returns the words of a text, in order."""
  return _WORD.findall(text.lower())


def sums(prediction, contents):
  """Returns {'recall': (content words written x 100, content words)}.

  Args:
    prediction: str.
    contents: the content words of each reference, a list of lists; the
      reference with the highest recall counts.
  """
  written = set(words(prediction))
  counts = [
      (len(written.intersection(content)), len(set(content)))
      for content in contents
      if content
  ]
  if not counts:
    return {}
  found, wanted = max(counts, key=lambda count: count[0] / count[1])
  return {'recall': (100.0 * found, wanted)}


RECALL = metric.Metric(
    name='recall',
    keys=('recall',),
    needs=metric.CONTENT,
    sums=sums,
    columns=(metric.Column('recall', 'recall', 1),),
)
