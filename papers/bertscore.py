"""BERTScore, written from its definition (Zhang et al. 2020, section 3).

A model embeds each token in its context. With unit vectors x_i of a reference,
y_j of a prediction and weights w:

  recall    = sum_i w(x_i) max_j x_i . y_j / sum_i w(x_i)
  precision = sum_j w(y_j) max_i x_i . y_j / sum_j w(y_j)
  F1        = their harmonic mean

The special tokens at the ends of a text have weight 0, but can be matched, as
in the authors' package; others have weight 1. With several references, the
one with the highest F1 counts. Numbers are x 100.
"""

import numpy as np

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from papers import torch_models

NAME = 'bertscore'
COLUMNS = (
    metric.Column('bertscore_precision', 'precision', 2),
    metric.Column('bertscore_recall', 'recall', 2),
    metric.Column('bertscore', 'F1', 2),
)
# The layers of the authors' package, by model_type and number of layers. For
# bart-large-mnli, which SimCAS uses, it is 11.
LAYERS = {
    ('bert', 12): 9,
    ('bert', 24): 18,
    ('roberta', 12): 10,
    ('roberta', 24): 17,
    ('distilbert', 6): 5,
    ('bart', 6): 6,
    ('bart', 12): 10,
}
# Byte-level BPE: the package adds a space before the first word.
_SPACED = ('roberta', 'gpt2')


def match(ours, theirs, our_weights, their_weights):
  """Returns (precision, recall, F1).

  Args:
    ours: float [T, D], unit vectors of the prediction's tokens.
    theirs: float [S, D], unit vectors of the reference's tokens.
  """
  similar = ours @ theirs.T
  precision = (our_weights * similar.max(1)).sum() / our_weights.sum()
  recall = (their_weights * similar.max(0)).sum() / their_weights.sum()
  both = precision + recall
  return precision, recall, 2 * precision * recall / both if both else 0.0


def run(rows, settings, layer=None):
  """Scores predictions by BERTScore: a `metric.Result`."""
  loaded = torch_models.load(
      NAME, settings.model, 'AutoModel', 'a model that embeds texts, like BERT'
  )
  layer = choose_layer(loaded, settings, layer)
  texts = [[row.prediction, *row.references] for row in rows]
  ids = [[encode(loaded, text) for text in group] for group in texts]
  cut = sum(len(one) > loaded.length for group in ids for one in group)
  # The last special token stays.
  shorten = lambda one: one[: loaded.length - 1] + one[-1:]
  ids = [
      [shorten(one) if len(one) > loaded.length else one for one in group]
      for group in ids
  ]
  ends = [f'{end}_token_id' for end in ('cls', 'sep', 'bos', 'eos')]
  special = {getattr(loaded.tokenizer, end) for end in ends}
  weigh = lambda one: np.array([float(t not in special) for t in one])
  values, done = np.full([len(rows), 3], np.nan), 0
  lengths = [max(map(len, group)) for group in ids]
  for chosen in torch_models.batches(lengths, settings.batch_size):
    settings.show(NAME, done, len(rows))
    flat = [one for i in chosen for one in ids[i]]
    vectors = torch_models.embed(loaded, flat, layer)
    for i in chosen:
      own = [(one, next(vectors), weigh(one)) for one in ids[i]]
      values[i] = _best(*own, special=special)
    done += len(chosen)
  return metric.Result(
      COLUMNS,
      {metric.PREDICTION: 100 * values},
      (loaded.name, f'layer:{layer}', 'idf:no', 'baseline:no', 'agg:max'),
      tuple(_notes(texts, cut, loaded.length)),
  )


def _notes(texts, cut, length):
  empty = sum(
      not ours.strip() or not any(map(str.strip, theirs))
      for ours, *theirs in texts
  )
  for count, what in (
      (
          cut,
          f'texts are longer than the {length:,} tokens that the model reads, '
          'and were cut',
      ),
      (empty, 'pairs with an empty prediction or reference, counted as 0'),
  ):
    if count:
      yield f'warning: {NAME}: {count:,} {what}'


def _best(ours, *references, special):
  """Returns (precision, recall, F1) of the reference with the highest F1.

  Args:
    ours: (ids, vectors, weights) of the prediction.
    *references: the same of each reference.
    special: the ids that an empty text has.
  """
  found = []
  for theirs in references:
    if special.issuperset(ours[0]) or special.issuperset(theirs[0]):
      found.append((0.0, 0.0, 0.0))
    else:
      found.append(match(ours[1], theirs[1], ours[2], theirs[2]))
  return max(found, key=lambda one: one[2])


def encode(loaded, text):
  """Returns the ids of a text with special tokens, at full length."""
  text = text.strip()
  if text and loaded.kind in _SPACED:
    text = ' ' + text
  return loaded.tokenizer(text, verbose=False)['input_ids']


def choose_layer(loaded, settings, layer):
  """Returns the layer to embed with, from 1 (0 would be the embeddings)."""
  config = loaded.model.config
  layers = getattr(config, 'encoder_layers', None) or config.num_hidden_layers
  layer = layer or LAYERS.get((loaded.kind, layers))
  if layer is None:
    raise InputError(
        f'--model={settings.model}: --metrics={NAME} needs --layer=N, 1 <= N '
        f'<= {layers}: there is no default for {loaded.kind} with {layers} '
        'layers'
    )
  if layer > layers:
    raise InputError(f'--layer={layer}: --model has {layers} layers')
  return layer


BERTSCORE = metric.Metric(
    NAME,
    COLUMNS,
    what='BERTScore (Zhang et al. 2020)',
    run=run,
    loads_model=True,
)
