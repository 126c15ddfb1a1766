"""Similarity of a document's sentences against their distance.

PageSum's figure 1: the mean cosine similarity of two sentence embeddings at
each distance (difference of their indices), and the mean over all pairs, the
dashed line. A sentence's embedding is the last-layer state of its first token,
as in SimCSE (Gao et al. 2021), which the paper uses.
"""

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import torch_models

NAME = 'locality'
FARTHEST = 50  # sentences
COLUMNS = (
    metric.Column('neighbours', 'neighbours', 3),
    metric.Column('all_pairs', 'all pairs', 3),
)


def run(rows, settings):
  """Measures the similarity of documents' sentences: a `score_metric.Result`.

  Args:
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`; uses model and batch_size.

  Returns:
    A Result. In its JSON, `similarities` is a list of {distance, similarity,
    count}, means over all pairs of all documents.
  """
  loaded = torch_models.load(
      NAME, settings.model, 'AutoModel', 'a model that embeds sentences'
  )
  values = np.full([len(rows), 2], np.nan)
  sums, counts = np.zeros(FARTHEST), np.zeros(FARTHEST, np.int64)
  for i, row in enumerate(rows):
    settings.show(NAME, i, len(rows))
    sentences = text_lib.split_sentences(row.document)
    if len(sentences) < 2:
      continue
    vectors = embed(loaded, sentences, settings.batch_size)
    total, count, mean = similarities(vectors, FARTHEST)
    sums, counts = sums + total, counts + count
    values[i] = total[0] / count[0], mean
  return score_metric.Result(
      COLUMNS,
      {score_metric.DOCUMENT: values},
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
  import torch

  model = loaded.model
  if model.config.is_encoder_decoder:
    model = model.get_encoder()
  found = [None] * len(sentences)
  for chosen in torch_models.batches(list(map(len, sentences)), batch_size):
    read = loaded.tokenizer(
        [sentences[i] for i in chosen],
        truncation=True,
        max_length=loaded.length,
        padding=True,
        return_tensors='pt',
    ).to(loaded.device)
    with torch.inference_mode():
      states = model(**read).last_hidden_state[:, 0]
    for i, state in zip(chosen, states.double().cpu().numpy()):
      found[i] = state / np.linalg.norm(state)
  return np.stack(found)


METRIC = score_metric.ScoreMetric(
    NAME,
    'sentence similarity by distance (PageSum, figure 1)',
    run,
    (score_metric.DOCUMENT, score_metric.MODEL),
)
