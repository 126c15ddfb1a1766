"""Support of summary sentences by passages of the document.

A document is split between sentences into passages of at most SIZE words, as
MiniCheck does for its FLAN-T5 (Tang et al. 2024). The support of a summary
sentence is the maximum over the passages.
"""

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import score_metric

SIZE = 500  # words separated by whitespace
COLUMNS = (
    metric.Column('supported', 'supported %', 1),
    metric.Column('support', 'probability', 3),
)


def split(document, size=SIZE):
  """Splits a document into passages of whole sentences.

  Args:
    document: str.
    size: most words of a passage; a longer sentence is a passage of its own.
  """
  found, words = [[]], 0
  for sentence in text_lib.split_sentences(document):
    count = len(sentence.split())
    if found[-1] and words + count > size:
      found.append([])
      words = 0
    found[-1].append(sentence)
    words += count
  return [' '.join(part) for part in found]


def run(name, rows, settings, support, parts):
  """Measures how much of the summaries is supported: a `score_metric.Result`.

  Args:
    name: of the metric.
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`; uses threshold.
    support: function (list of (passage, sentence)) -> list of probabilities.
    parts: of the signature.
  """
  values = np.full([len(rows), 2], np.nan)
  sides = {}
  for i, row in enumerate(rows):
    settings.show(name, i, len(rows))
    ours = text_lib.split_sentences(row.prediction)
    theirs = split(row.document)
    sides[i] = (len(ours), len(theirs))
    if ours:
      found = support([(one, other) for other in ours for one in theirs])
      best = np.reshape(found, [len(ours), len(theirs)]).max(1)
      values[i] = 100 * np.mean(best > settings.threshold), best.mean()
  silent = int(np.isnan(values[:, 0]).sum())
  return score_metric.Result(
      COLUMNS,
      {score_metric.PREDICTION: values},
      (*parts, f'threshold:{settings.threshold:g}', f'passages:{SIZE}'),
      (f'warning: {name}: {silent:,} empty predictions, left out',)
      if silent
      else (),
      more=dict(
          sentences=sum(n for n, _ in sides.values()),
          passages=sum(n for _, n in sides.values()),
      ),
  )
