"""Semantic coherence by next-sentence prediction (PageSum, equation 12).

A BERT gives the probability that sentence S_i follows S_(i-1):

  SC(S) = sum over i = 2 .. N of p(S_i | S_(i-1)) / (N - 1)

A text of one sentence has no SC. The table has the predictions, the references,
and as a lower bound the references with their sentences shuffled. The p-values
come from a paired randomisation test over the documents (10,000 draws of random
signs of the differences).
"""

import itertools
import random

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import torch_models

NAME, SHUFFLED = 'coherence', 'shuffled'
COLUMNS = (metric.Column('coherence', 'coherence', 4),)
_TRIALS = 10_000


def run(rows, settings):
  """Measures the coherence of predictions and references: a Result.

  Args:
    rows: list of `score_metric.Row`.
    settings: `score_metric.Settings`; uses model, batch_size and seed.
  """
  loaded = torch_models.load(
      NAME,
      settings.model,
      'AutoModelForNextSentencePrediction',
      'a BERT with its next-sentence head',
  )
  texts = {
      score_metric.PREDICTION: [
          text_lib.split_sentences(row.prediction) for row in rows
      ],
      score_metric.REFERENCE: [
          text_lib.split_sentences(row.references[0]) for row in rows
      ],
  }
  texts[SHUFFLED] = [
      shuffled(sentences, f'{settings.seed}:{i}')
      for i, sentences in enumerate(texts[score_metric.REFERENCE])
  ]
  values = {}
  for name, documents in texts.items():
    pairs = [
        pair
        for sentences in documents
        for pair in zip(sentences, sentences[1:])
    ]
    show = lambda done: settings.show(f'{NAME} {name}', done, len(pairs))
    found = iter(next_probabilities(loaded, pairs, settings.batch_size, show))
    values[name] = np.array(
        [[mean_of([next(found) for _ in one[1:]])] for one in documents]
    )
  p_values = compare_rows(values, settings.seed)
  return score_metric.Result(
      COLUMNS,
      values,
      (loaded.name, f'seed:{settings.seed}'),
      more=dict(p_values=p_values),
      numbers={
          f'p, {pair}': 'n/a' if p is None else f'{p:.4f}'
          for pair, p in p_values.items()
      },
  )


def compare_rows(values, seed):
  """Returns {'one row - another': p-value of their difference, or None}.

  Args:
    values: {row: float [n, 1]}.
    seed: of `p_value`.
  """
  pairs = itertools.combinations(
      (score_metric.PREDICTION, score_metric.REFERENCE, SHUFFLED), 2
  )
  return {
      f'{one} - {other}': p_value(values[one][:, 0] - values[other][:, 0], seed)
      for one, other in pairs
  }


def mean_of(numbers):
  """Returns the mean; NaN for an empty list."""
  return sum(numbers) / len(numbers) if numbers else np.nan


def shuffled(sentences, seed):
  """Returns the sentences shuffled with a seed."""
  return random.Random(seed).sample(sentences, len(sentences))


def next_probabilities(loaded, pairs, batch_size, show):
  """Returns the probability of each second sentence after its first.

  Args:
    loaded: a `torch_models.Loaded` of a BERT.
    pairs: list of n pairs of str.
    batch_size: pairs per batch.
    show: function (done) that shows progress.

  Returns:
    float [n]. In a pair that is too long, the longer sentence is cut.
  """
  import torch

  found = np.zeros(len(pairs))
  lengths = [len(one) + len(other) for one, other in pairs]
  done = 0
  for chosen in torch_models.batches(lengths, batch_size):
    show(done)
    read = loaded.tokenizer(
        [pairs[i][0] for i in chosen],
        [pairs[i][1] for i in chosen],
        truncation='longest_first',
        max_length=loaded.length,
        padding=True,
        return_tensors='pt',
    ).to(loaded.device)
    with torch.inference_mode():
      logits = loaded.model(**read).logits
    # BERT's label 0 is "follows".
    found[chosen] = logits.double().softmax(-1)[:, 0].cpu().numpy()
    done += len(chosen)
  return found


def p_value(differences, seed):
  """Tests whether the mean of paired differences is 0, two-sided.

  Args:
    differences: float [n]; NaN: the document is left out.
    seed: of the random signs.

  Returns:
    (trials whose mean is at least as large + 1) / (trials + 1); None without
    differences.
  """
  known = differences[~np.isnan(differences)]
  if not len(known):
    return None
  draw = np.random.default_rng(seed)
  observed = abs(known.sum())
  at_least = sum(
      abs(known @ (2 * draw.integers(2, size=len(known)) - 1))
      >= observed - 1e-9
      for _ in range(_TRIALS)
  )
  return (int(at_least) + 1) / (_TRIALS + 1)


METRIC = score_metric.ScoreMetric(
    NAME,
    'coherence by next-sentence prediction (PageSum)',
    run,
    (score_metric.MODEL,),
)
