"""Length of summaries, in words and relative to their references.

Words are those of `words.of_any_script`. With several references, the one with
the nearest length counts.
"""

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import words


def sums(prediction, references):
  """Returns {'words': (words, 1), 'length': (words / the reference's, 1)}."""
  ours = len(words.flat(prediction))
  theirs = [len(words.flat(text)) for text in references]
  found = {'words': (ours, 1)}
  if any(theirs):
    nearest = min(filter(None, theirs), key=lambda count: abs(count - ours))
    found['length'] = (ours / nearest, 1)
  return found


LENGTH = metric.Metric(
    name='length',
    keys=('words', 'length'),
    needs=metric.TEXT,
    sums=sums,
    columns=(
        metric.Column('words', 'words', 1),
        metric.Column('length', 'length', 2),
    ),
)
