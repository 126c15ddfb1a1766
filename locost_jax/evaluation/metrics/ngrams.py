"""Novelty and repetition of the n-grams of a summary.

- Novel n-grams (See et al. 2017, section 6): the share of a summary's distinct
  n-grams that are not in its document.
- Repeated n-grams: the share of a summary's n-grams that occurred earlier in
  it, 1 - distinct / all.

Words are those of `words.of_any_script`. The mean is over the documents whose
summaries have n-grams.
"""

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import words

SIZES = (1, 2, 3, 4)


def of_text(text, n):
  """Returns the n-grams of a text, in order, as tuples of words."""
  found = words.flat(text)
  return list(zip(*(found[i:] for i in range(n))))


def novelty(prediction, document):
  """Returns {'novel_N': (percent that the document lacks, 1)}."""
  sums = {}
  for n in SIZES:
    if ours := set(of_text(prediction, n)):
      novel = ours.difference(of_text(document, n))
      sums[f'novel_{n}'] = (100 * len(novel) / len(ours), 1)
  return sums


def repetition(prediction, references=()):
  """Returns {'repeated_N': (percent that occurred earlier, 1)}."""
  del references
  sums = {}
  for n in SIZES:
    if ours := of_text(prediction, n):
      sums[f'repeated_{n}'] = (100 - 100 * len(set(ours)) / len(ours), 1)
  return sums


NOVELTY = metric.Metric(
    name='novelty',
    keys=tuple(f'novel_{n}' for n in SIZES),
    needs=metric.DOCUMENT,
    sums=novelty,
    columns=tuple(metric.Column(f'novel_{n}', f'{n}-grams', 1) for n in SIZES),
)
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
