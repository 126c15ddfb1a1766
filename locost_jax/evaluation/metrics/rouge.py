"""ROUGE (Lin 2004) by a protocol: as a metric, and of many pairs.

F1 in percent, averaged over pairs.
"""

import functools

import numpy as np

from locost_jax.config import versions
from locost_jax.evaluation.metrics import intervals
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols

KEYS = (*protocols.TYPES, protocols.MEAN)
_PACKAGES = ('locost_jax', 'nltk', 'numpy', 'rouge-score')


def of_protocol(protocol=protocols.PROTOCOLS['locost']):
  """Returns the Metric of a `protocols.Protocol`."""
  return metric.Metric(
      'rouge',
      tuple(metric.Column(key, protocols.TITLES[key]) for key in KEYS),
      functools.partial(_sums, protocol),
      parts=tuple(
          protocols.method(protocols.signature(protocol, 0)).split('|')[1:]
      ),
      what='ROUGE, by --protocol',
  )


def _sums(protocol, prediction, references):
  """Returns {key: (F1 x 100, 1)} of one document."""
  scores = protocols.score(protocol, prediction, references)
  return {key: (value, 1.0) for key, value in scores.items()}


def score_rows(rows, protocol, processes=1, show=None):
  """Returns the scores of `metric.Row`s: F1 x 100 [n, KEYS].

  Args:
    show: function (rows done, rows) that shows progress, or None.
  """
  settings = metric.Settings(
      processes=processes, show=lambda _, *counts: show and show(*counts)
  )
  return metric.of_rows(of_protocol(protocol), rows, settings)


def with_geometric(protocol, means):
  """Appends the geometric mean to means [..., KEYS], if the protocol has it."""
  if not protocol.geometric:
    return means
  chosen = means[..., [KEYS.index(key) for key in protocol.mean_of]]
  geometric = chosen.prod(-1, keepdims=True) ** (1 / chosen.shape[-1])
  return np.concatenate([means, geometric], axis=-1)


def summarize(scores, protocol):
  """Returns the mean scores of documents, and how they were computed.

  Args:
    scores: from `score_rows`.

  Returns:
    dict of each mean (rouge1, rouge2, rougeL, rougeLsum, rouge_mean and, where
    the protocol has it, rouge_geometric_mean), protocol, pairs, mean_of,
    intervals ({key: [low, high]}), signature and versions.
  """
  names = *KEYS, protocols.GEOMETRIC
  means = with_geometric(protocol, scores.mean(axis=0))
  drawn = with_geometric(protocol, intervals.bootstrap(scores))
  return dict(
      zip(names, means.tolist()),
      protocol=protocol.name,
      pairs=len(scores),
      mean_of=list(protocol.mean_of),
      intervals={
          key: list(intervals.interval(column, documents=len(scores)))
          for key, column in zip(names, drawn.T)
      },
      signature=protocols.signature(protocol, len(scores)),
      versions=versions.installed(_PACKAGES),
  )


def warnings(pairs, protocol):
  """Yields warnings about references that cannot be scored as they are."""
  blank = partly = 0
  for pair in pairs:
    texts = [text for text in pair.references if text.strip()]
    if not texts:
      blank += 1
    elif not all(protocols.counts(protocol, text) for text in texts):
      partly += 1
  if blank:
    yield (
        f'warning: empty references: {blank:,} of {len(pairs):,} pairs, '
        'counted as 0'
    )
  if partly:
    yield (
        f'warning: --protocol={protocol.name} counts less than half of the '
        f'letters of the references: {partly:,} of {len(pairs):,} pairs; '
        '--protocol=unicode reads every script'
    )
