"""PageSum's metrics of sentences: coherence and locality.

coherence (equation 12): a BERT gives the probability that sentence S_i follows
S_(i-1), and

  SC(S) = sum over i = 2 .. N of p(S_i | S_(i-1)) / (N - 1)

A text of one sentence has no SC. The table has the predictions, the references,
and as a lower bound the references with their sentences shuffled. The p-values
are those of `score --compare` (approximate randomisation over documents).

locality (figure 1): the mean cosine similarity of two sentence embeddings of a
document at each distance (difference of their indices), and the mean over all
pairs, the dashed line. A sentence's embedding is the last-layer state of its
first token, as in SimCSE (Gao et al. 2021), which the paper uses.
"""

import itertools
import random

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.evaluation.metrics import intervals
from locost_jax.evaluation.metrics import metric
from papers import torch_models

SHUFFLED = 'shuffled'
FARTHEST = 50  # sentences
COLUMNS = (metric.Column('coherence', 'coherence', 4),)
LOCALITY_COLUMNS = (
    metric.Column('neighbours', 'neighbours', 3),
    metric.Column('all_pairs', 'all pairs', 3),
)


def coherence(rows, settings, seed=0):
  """Measures predictions and references: a `metric.Result`."""
  loaded = torch_models.load(
      'coherence',
      settings.model,
      'AutoModelForNextSentencePrediction',
      'a BERT with its next-sentence head',
  )
  texts = {
      metric.PREDICTION: [
          text_lib.split_sentences(row.prediction) for row in rows
      ],
      metric.REFERENCE: [
          text_lib.split_sentences(row.references[0]) for row in rows
      ],
  }
  texts[SHUFFLED] = [
      shuffled(sentences, f'{seed}:{i}')
      for i, sentences in enumerate(texts[metric.REFERENCE])
  ]
  values = {}
  for name, documents in texts.items():
    pairs = [
        pair
        for sentences in documents
        for pair in zip(sentences, sentences[1:])
    ]
    show = lambda done: settings.show(f'coherence {name}', done, len(pairs))
    found = iter(next_probabilities(loaded, pairs, settings.batch_size, show))
    values[name] = np.array(
        [[mean_of([next(found) for _ in one[1:]])] for one in documents]
    )
  p_values = compare_rows(values)
  return metric.Result(
      COLUMNS,
      values,
      (loaded.name, f'seed:{seed}'),
      more=dict(p_values=p_values),
      numbers={
          f'p, {pair}': 'n/a' if p is None else f'{p:.4f}'
          for pair, p in p_values.items()
      },
  )


def compare_rows(values):
  """Returns {'one row - another': p-value of their difference, or None}."""
  rows, found = (metric.PREDICTION, metric.REFERENCE, SHUFFLED), {}
  for one, other in itertools.combinations(rows, 2):
    both = np.concatenate([values[one], values[other]], axis=1)
    ours, theirs = np.split(both[~np.isnan(both).any(1)], 2, axis=1)
    found[f'{one} - {other}'] = None
    if len(ours):
      (result,) = intervals.compare(ours, theirs)
      found[f'{one} - {other}'] = result['p_randomisation']
  return found


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


def locality(rows, settings):
  """Measures the similarity of documents' sentences: a `metric.Result`.

  In its JSON, `similarities` is a list of {distance, similarity, count}, means
  over all pairs of all documents.
  """
  loaded = torch_models.load(
      'locality', settings.model, 'AutoModel', 'a model that embeds sentences'
  )
  values = np.full([len(rows), 2], np.nan)
  sums, counts = np.zeros(FARTHEST), np.zeros(FARTHEST, np.int64)
  for i, row in enumerate(rows):
    settings.show('locality', i, len(rows))
    sentences = text_lib.split_sentences(row.document)
    if len(sentences) < 2:
      continue
    vectors = embed(loaded, sentences, settings.batch_size)
    total, count, mean = similarities(vectors, FARTHEST)
    sums, counts = sums + total, counts + count
    values[i] = total[0] / count[0], mean
  return metric.Result(
      LOCALITY_COLUMNS,
      {metric.DOCUMENT: values},
      (loaded.name, 'pool:first'),
      more=dict(
          similarities=[
              dict(
                  distance=d + 1,
                  similarity=float(sums[d] / counts[d]),
                  count=int(counts[d]),
              )
              for d in range(FARTHEST)
              if counts[d]
          ]
      ),
  )


def similarities(vectors, farthest):
  """Returns sums of cosines by distance, their counts, and the mean of all.

  Args:
    vectors: float [S, D], unit vectors in the order of the document.
    farthest: largest distance.

  Returns:
    float [farthest], int [farthest], float; distance 1 comes first.
  """
  S = len(vectors)
  sums, counts = np.zeros(farthest), np.zeros(farthest, np.int64)
  for d in range(1, min(farthest, S - 1) + 1):
    sums[d - 1] = (vectors[:-d] * vectors[d:]).sum()
    counts[d - 1] = S - d
  # The squared norm of the sum counts each pair twice, and S ones.
  mean = ((vectors.sum(0) ** 2).sum() - S) / (S * (S - 1))
  return sums, counts, float(mean)


def embed(loaded, sentences, batch_size):
  """Returns the sentences' unit vectors, float64 [S, D].

  Args:
    loaded: a `torch_models.Loaded`.
    sentences: list of S str; sentences that are too long are cut.
    batch_size: sentences per batch.
  """
  cut = dict(truncation=True, max_length=loaded.length)
  ids = loaded.tokenizer(sentences, **cut)['input_ids']
  found = [None] * len(sentences)
  for chosen in torch_models.batches(list(map(len, ids)), batch_size):
    vectors = torch_models.embed(loaded, [ids[i] for i in chosen])
    for i, of_tokens in zip(chosen, vectors):
      found[i] = of_tokens[0]
  return np.stack(found)
