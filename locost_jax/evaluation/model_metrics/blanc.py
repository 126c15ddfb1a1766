"""BLANC-help: how much a summary helps a model to read its document.

Vasilyev et al. 2020, section 2. Tokens of each sentence of the document are
masked, every GAP-th one, in GAP ways, and a masked language model guesses them:
once behind the summary, once behind as many full stops. With the number of
tokens that were guessed right (+) and wrong (-) behind the full stops, then
behind the summary,

  BLANC = (S-+ - S+-) / (S++ + S+- + S-+ + S--)

A token is masked if it is long enough: a word in one piece has at least 4
characters, the first piece of a word 2; later pieces are never masked. GAP and
these lengths are the defaults of the authors' package (0.3), which the paper's
6 is not; it reads [CLS] summary sentence [SEP].
"""

import unicodedata

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import torch_models

NAME = 'blanc'
GAP = 2
WHOLE, FIRST = 4, 2  # least characters of a token that is masked
SHORTEST = 100  # tokens to which a sentence is cut before the summary is
COLUMNS = (metric.Column('blanc', 'BLANC-help', 2),)


def run(rows, settings):
  """Measures BLANC-help x 100 of predictions: a `score_metric.Result`.

  Args:
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`; read are model and batch_size.
  """
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
        f'that begin with ##), which the tokenizer of a {loaded.kind} has not'
    )
  values = np.full([len(rows), 1], np.nan)
  for i, row in enumerate(rows):
    settings.show(NAME, i, len(rows))
    helped, filled, expected = [], [], []
    summary = tokenize(loaded.tokenizer, row.prediction)
    for sentence in tokenize(loaded.tokenizer, row.document):
      one, other, answers = inputs(loaded, summary, sentence)
      helped += one
      filled += other
      expected += answers
    if expected:
      right = [
          guess(loaded, side, expected, settings.batch_size)
          for side in (filled, helped)
      ]
      values[i] = 100 * score(*right)
  return score_metric.Result(
      COLUMNS,
      {score_metric.PREDICTION: values},
      (loaded.name, f'gap:{GAP}', f'lengths:{WHOLE},{FIRST}'),
  )


def score(filled, helped):
  """Returns BLANC of bool [n] of the tokens: guessed behind each of both."""
  gained = np.sum(~filled & helped)
  lost = np.sum(filled & ~helped)
  return (gained - lost) / len(filled)


def tokenize(tokenizer, text):
  """Returns the tokens of each sentence of a text, NFKD."""
  return [
      tokenizer.tokenize(sentence)
      for sentence in text_lib.split_sentences(
          unicodedata.normalize('NFKD', text)
      )
  ]


def inputs(loaded, summary, sentence):
  """Returns the ways to mask a sentence.

  Args:
    loaded: a `torch_models.Loaded`.
    summary: list of lists of tokens, one a sentence.
    sentence: list of tokens.

  Returns:
    Three lists of equal length: ids behind the summary, ids behind full stops,
    and {position: id that is expected there}.
  """
  tokenizer = loaded.tokenizer
  to_ids = tokenizer.convert_tokens_to_ids
  given, sentence = fit(summary, sentence, loaded.length - 2)
  helped, filled, expected = [], [], []
  for places in masks(sentence):
    masked = [
        tokenizer.mask_token if t in places else token
        for t, token in enumerate(sentence)
    ]
    for rows, front in ((helped, given), (filled, ['.'] * len(given))):
      ends = [tokenizer.cls_token], [tokenizer.sep_token]
      rows.append(to_ids([*ends[0], *front, *masked, *ends[1]]))
    offset = 1 + len(given)
    expected.append({offset + t: to_ids(sentence[t]) for t in places})
  return helped, filled, expected


def masks(tokens):
  """Returns sets of places of tokens: those that are masked together."""
  gap = min(GAP, len(tokens))
  found = []
  for start in range(gap):
    places = {
        t
        for t in range(start, len(tokens), gap)
        if is_long(tokens[t], tokens[t + 1] if t + 1 < len(tokens) else '')
    }
    if places:
      found.append(places)
  return found


def is_long(token, following):
  """Whether a token is masked, given the token that follows it."""
  if token.startswith('##'):
    return False
  return len(token) >= (FIRST if following.startswith('##') else WHOLE)


def fit(summary, sentence, most):
  """Returns (tokens of the summary, tokens of the sentence) that fit.

  The sentence loses its end until SHORTEST tokens are left, then the summary
  its last sentences; of a first sentence that is too long the end is kept.

  Args:
    summary: list of lists of tokens.
    sentence: list of tokens.
    most: how many fit.
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
  """Returns bool [n]: which masked tokens the model guesses.

  Args:
    loaded: a `torch_models.Loaded`.
    rows: list of lists of ids.
    expected: list of {position: id}, one a row; n positions in all.
    batch_size: how many rows are read at once.
  """
  import torch

  found = [None] * len(rows)
  for chosen in torch_models.batches(list(map(len, rows)), batch_size):
    ids, mask = torch_models.pad(torch, loaded, [rows[i] for i in chosen])
    with torch.inference_mode():
      best = loaded.model(input_ids=ids, attention_mask=mask).logits.argmax(-1)
    for i, guesses in zip(chosen, best.cpu().numpy()):
      found[i] = [guesses[t] == wanted for t, wanted in expected[i].items()]
  return np.array([right for row in found for right in row], bool)


METRIC = score_metric.ScoreMetric(
    NAME,
    'BLANC-help (Vasilyev et al. 2020)',
    run,
    (score_metric.DOCUMENT, score_metric.MODEL),
)
