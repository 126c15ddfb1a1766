"""Repetition: the share of a summary's n-grams that occurred earlier in it.

That is 1 - distinct / all, over words of `words.of_any_script`. The mean is over
the documents whose summaries have n-grams.
"""

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import words

SIZES = (1, 2, 3, 4)


def of_text(text, n):
  """Returns the n-grams of a text, in order, as tuples of words."""
  found = words.flat(text)
  return list(zip(*(found[i:] for i in range(n))))


def repetition(prediction, references=()):
  """Returns {'repeated_N': (percent that occurred earlier, 1)}."""
  del references
  sums = {}
  for n in SIZES:
    if ours := of_text(prediction, n):
      sums[f'repeated_{n}'] = (100 - 100 * len(set(ours)) / len(ours), 1)
  return sums


REPETITION = metric.Metric(
    name='repetition',
    keys=tuple(f'repeated_{n}' for n in SIZES),
    needs=metric.TEXT,
    sums=repetition,
    columns=tuple(
        metric.Column(f'repeated_{n}', f'repetition {n}', 1) for n in SIZES
    ),
    lower_is_better=tuple(f'repeated_{n}' for n in SIZES),
)
