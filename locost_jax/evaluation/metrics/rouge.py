"""ROUGE (Lin 2004) by a protocol, as a metric of config.eval.metrics.

F1 in percent, averaged over pairs.
"""

import functools

from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols

TYPES = protocols.TYPES
MEAN = protocols.MEAN


def of_protocol(name):
  """Returns the Metric of a protocol."""
  return metric.Metric(
      name='rouge',
      keys=(*TYPES, MEAN),
      needs=metric.TEXT,
      sums=functools.partial(_sums, name),
      columns=(
          *(metric.Column(key, protocols.TITLES[key], 2) for key in TYPES),
          metric.Column(MEAN, 'mean', 2),
      ),
      signature=lambda documents: protocols.signature(
          protocols.find(name), documents, None
      ),
  )


def _sums(name, prediction, references):
  """Returns {key: (F1 x 100, 1)} of one document."""
  scores = protocols.score(protocols.find(name), prediction, references)
  return {key: (value, 1.0) for key, value in scores.items()}
