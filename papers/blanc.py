"""BLANC-help: how much a summary helps a model to read its document.

Vasilyev et al. 2020, section 2. In each sentence of the document every GAP-th
token is masked, in GAP ways, and a masked language model predicts it twice:
after the summary, and after the same number of full stops. S counts tokens; its
first sign says whether the prediction after the full stops was right (+) or
wrong (-), its second sign the same after the summary:

  BLANC = (S-+ - S+-) / (S++ + S+- + S-+ + S--)

Only long tokens are masked: a word of one piece with at least 4 characters, or
the first piece of a word with at least 2; later pieces are never masked. GAP
and these lengths are the defaults of the authors' package (0.3); the paper has
GAP = 6. The model reads [CLS] summary sentence [SEP].
"""

import unicodedata

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from papers import torch_models

NAME = 'blanc'
GAP = 2
WHOLE, FIRST = 4, 2  # fewest characters of a masked token
SHORTEST = 100  # tokens of a sentence that are kept before the summary is cut
COLUMNS = (metric.Column('blanc', 'BLANC-help', 2),)


def run(rows, settings):
  """Measures BLANC-help x 100 of predictions: a `metric.Result`."""
  loaded = torch_models.load(
      NAME,
      settings.model,
      'AutoModelForMaskedLM',
      'a masked language model with WordPiece, like BERT',
  )
  vocabulary = loaded.tokenizer.get_vocab()
  if not any(token.startswith('##') for token in vocabulary):
    raise InputError(
        f'--model={settings.model}: --metrics={NAME} needs WordPiece (pieces '
        f'that begin with ##), got the tokenizer of a {loaded.kind}'
    )
  values = np.full([len(rows), 1], np.nan)
  for i, row in enumerate(rows):
    settings.show(NAME, i, len(rows))
    summary, ways = tokenize(loaded.tokenizer, row.prediction), []
    for sentence in tokenize(loaded.tokenizer, row.document):
      ways += inputs(loaded, summary, sentence)
    if ways:
      helped, filled, expected = zip(*ways)
      right = [
          guess(loaded, side, expected, settings.batch_size)
          for side in (filled, helped)
      ]
      values[i] = 100 * score(*right)
  return metric.Result(
      COLUMNS,
      {metric.PREDICTION: values},
      (loaded.name, f'gap:{GAP}', f'lengths:{WHOLE},{FIRST}'),
  )


def score(filled, helped):
  """Returns BLANC, from -1 to 1: both are bool [n], which were predicted."""
  return (np.sum(~filled & helped) - np.sum(filled & ~helped)) / len(filled)


def tokenize(tokenizer, text):
  """Returns the tokens of each sentence of a text in NFKD."""
  sentences = text_lib.split_sentences(unicodedata.normalize('NFKD', text))
  return [tokenizer.tokenize(sentence) for sentence in sentences]


def inputs(loaded, summary, sentence):
  """Yields the ways to mask a sentence.

  A way is the ids of the masked sentence after the summary, the same after full
  stops, and {position: id of the masked token}.
  """
  tokenizer = loaded.tokenizer
  to_ids = tokenizer.convert_tokens_to_ids
  given, sentence = fit(summary, sentence, loaded.length - 2)
  cls, sep, offset = tokenizer.cls_token, tokenizer.sep_token, 1 + len(given)
  for places in masks(sentence):
    masked = [
        tokenizer.mask_token if t in places else token
        for t, token in enumerate(sentence)
    ]
    yield (
        to_ids([cls, *given, *masked, sep]),
        to_ids([cls, *['.'] * len(given), *masked, sep]),
        {offset + t: to_ids(sentence[t]) for t in places},
    )


def masks(tokens):
  """Returns the sets of token positions that are masked together."""
  is_later = [token.startswith('##') for token in tokens] + [False]
  long = [
      t
      for t, token in enumerate(tokens)
      if not is_later[t] and len(token) >= (FIRST if is_later[t + 1] else WHOLE)
  ]
  gap = min(GAP, len(tokens))
  found = ({t for t in long if t % gap == start} for start in range(gap))
  return list(filter(None, found))


def fit(summary, sentence, most):
  """Returns (tokens of the summary, tokens of the sentence) that fit.

  First the sentence is cut at its end, to no fewer than SHORTEST tokens. Then
  the last sentences of the summary are dropped. If its first sentence alone is
  too long, only the end of that sentence is kept.
  """
  total = sum(map(len, summary))
  sentence = sentence[: max(most - total, min(SHORTEST, len(sentence)))]
  room, given = most - len(sentence), []
  for tokens in summary:
    if len(given) + len(tokens) > room:
      break
    given += tokens
  if not given and summary:
    given = summary[0][max(len(summary[0]) - room, 0) :]
  return given, sentence


def guess(loaded, rows, expected, batch_size):
  """Returns bool [n]: which of the n expected {position: id} are predicted."""
  import torch

  found = [None] * len(rows)
  for chosen in torch_models.batches(list(map(len, rows)), batch_size):
    ids, mask = torch_models.pad(torch, loaded, [rows[i] for i in chosen])
    with torch.inference_mode():
      best = loaded.model(input_ids=ids, attention_mask=mask).logits.argmax(-1)
    for i, guesses in zip(chosen, best.cpu().numpy()):
      found[i] = [guesses[t] == wanted for t, wanted in expected[i].items()]
  return np.array([right for row in found for right in row], bool)


BLANC = metric.Metric(
    NAME,
    COLUMNS,
    needs=metric.DOCUMENT,
    what='BLANC-help (Vasilyev et al. 2020)',
    run=run,
    loads_model=True,
)
