"""Content recall: how much of what could be copied was written.

Content words of a document and its reference: the words of the reference that
stand in the document and are not among the most common words of the training
targets (`evaluation.content`). A summary has a word or it does not; how often
does not count. Words are those of ROUGE: runs of a-z and 0-9, in lower case.
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
      reference of which the largest share was written counts.
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
