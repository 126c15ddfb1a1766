"""Bounds of ROUGE: two lower bounds without a model, and an upper bound.

- lead: the first k sentences of the document; k is the mean number of sentences
  of the references.
- constant: the same text for every document: the reference with the highest
  mean of 2/3 ROUGE-1 + 1/3 ROUGE-2 over the references (of at most 500). It is
  not scored on its own document.
- oracle: sentences of the document, chosen with knowledge of the reference
  (`metrics/extractive_oracle.py`). Summaries made of whole sentences hardly
  score higher.
"""

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.evaluation import baselines
from locost_jax.evaluation import scoring
from locost_jax.evaluation.metrics import extractive_oracle
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.predictions import Pair

_MOST_REFERENCES = 500
COLUMNS = tuple(
    metric.Column(key, protocols.TITLES[key], 2)
    for key in (*protocols.TYPES, protocols.MEAN)
)


def run(rows, settings):
  """Scores lead, constant and oracle by ROUGE: a Result.

  Args:
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`.
  """
  first = [row.references[0] for row in rows]
  k = max(1, round(np.mean([_sentences(text) for text in first])))
  step = -(-len(first) // _MOST_REFERENCES)
  constant = baselines.best_constant(
      first[::step], first[::step], 1, settings.protocol
  )
  oracles = []
  for i, row in enumerate(rows):
    settings.show('oracle', i, len(rows))
    oracles.append(oracle(row.document, row.references[0], settings.protocol))
  texts = {
      f'lead-{k}': [baselines.lead(row.document, k) for row in rows],
      'constant': [constant] * len(rows),
      'oracle': oracles,
  }
  values = {
      name: rouge(written, rows, settings, name)
      for name, written in texts.items()
  }
  own = [constant in row.references for row in rows]
  values['constant'][own] = np.nan
  return score_metric.Result(
      COLUMNS,
      values,
      (protocols.method(protocols.signature(settings.protocol, len(rows))),),
      tuple(scoring.warnings(rows, settings.protocol)),
      dict(constant=constant, lead_sentences=k),
  )


def run_rouge(rows, settings):
  """Scores the predictions by ROUGE, for a table with other metrics."""
  predictions = [row.prediction for row in rows]
  signature = protocols.signature(settings.protocol, len(rows))
  return score_metric.Result(
      COLUMNS,
      {score_metric.PREDICTION: rouge(predictions, rows, settings, 'ROUGE')},
      tuple(protocols.method(signature).split('|')[1:]),
      tuple(scoring.warnings(rows, settings.protocol)),
  )


def rouge(texts, rows, settings, stage):
  """Returns the ROUGE of texts, float [n, 5], in the order of COLUMNS.

  Args:
    texts: list of n str.
    rows: list of n `score_metric.Row`, which have the references.
    settings: `score_metric.Settings`.
    stage: its name in the progress line.
  """
  scores = scoring.score_pairs(
      [Pair(text, row.references) for text, row in zip(texts, rows)],
      settings.protocol,
      settings.processes,
      lambda done, total: settings.show(stage, done, total),
  )
  return np.array(
      [[row[column.key] for column in COLUMNS] for row in scores], np.float64
  )


def oracle(document, reference, protocol):
  """Returns the oracle's sentences, joined by spaces.

  Args:
    document: str.
    reference: str.
    protocol: a `protocols.Protocol`, which splits texts into words.
  """
  sentences = text_lib.split_sentences(document)
  words = list(map(protocol.tokenize, sentences))
  chosen = extractive_oracle.select(words, protocol.tokenize(reference))
  return ' '.join(sentences[i] for i in chosen)


def _sentences(text):
  return len(text_lib.split_sentences(text))
