"""Faithfulness by entailment, in MiniCheck's FLAN-T5 form (Tang et al. 2024).

A T5 is trained to answer 1 if a passage supports a sentence, else 0. It reads

  predict: PASSAGE</s>SENTENCE</s>

The probability is the softmax over two logits of the first output token: the
first tokens of "1" and of "0" (ids 209 and 3 in T5's vocabulary). A sentence is
supported if its best passage has a probability above --threshold (0.5).

The model runs in this library's T5 (`locost_jax.load`). --model is any WORKDIR
or Hugging Face directory of a T5 that was trained for this prompt.
"""

import numpy as np

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import passages
from locost_jax.evaluation.model_metrics import torch_models

NAME = 'entailment'
PROMPT = 'predict: '
_SMALLEST = 64  # inputs are padded to this many tokens times a power of two


def run(rows, settings):
  """Measures how much of the summaries is supported: a `score_metric.Result`.

  Args:
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`; uses model, threshold and batch_size.
  """
  from locost_jax.summarizing import pretrained

  loaded = pretrained.load(settings.model)
  name = type(loaded.config).__name__.removesuffix('Config').lower()
  if name != 't5':
    raise InputError(
        f'--model={settings.model}: --metrics={NAME} needs a T5, got {name}'
    )
  if loaded.vocabulary is None:
    raise InputError(
        f'--model={settings.model}: --metrics={NAME} needs its vocabulary: '
        'spiece.model or tokenizer.json'
    )
  support = lambda pairs: probabilities(loaded, pairs, settings.batch_size)
  return passages.run(
      NAME,
      rows,
      settings,
      support,
      (torch_models.short_name(settings.model), 'prompt:predict'),
  )


def probabilities(loaded, pairs, batch_size):
  """Returns P(supported) of each (passage, sentence), float [n].

  Args:
    loaded: a `locost_jax.Summarizer` of a T5.
    pairs: list of n pairs of str.
    batch_size: pairs per batch.
  """
  vocabulary = loaded.vocabulary
  rows = [prompt(vocabulary, *pair) for pair in pairs]
  no, yes = answers(vocabulary)
  found = np.zeros(len(rows))
  for chosen in torch_models.batches(list(map(len, rows)), batch_size):
    length = _SMALLEST
    while length < len(rows[chosen[0]]):
      length *= 2
    # Always batch_size rows, so that few shapes are compiled.
    inputs = np.full([batch_size, length], vocabulary.pad_id, np.int32)
    inputs[:, 0] = vocabulary.eos_id
    for b, i in enumerate(chosen):
      inputs[b, : len(rows[i])] = rows[i]
    start = np.full([batch_size, 1], vocabulary.start_id, np.int32)
    logits = loaded.logits(inputs, start)[: len(chosen), 0]
    logits = logits.astype(np.float64)
    found[chosen] = 1 / (1 + np.exp(logits[:, no] - logits[:, yes]))
  return found


def prompt(vocabulary, passage, sentence):
  """Returns the ids of 'predict: PASSAGE</s>SENTENCE</s>'."""
  eos = [vocabulary.eos_id]
  passage, sentence = (
      vocabulary.encode(text) for text in (PROMPT + passage, sentence)
  )
  return [*passage, *eos, *sentence, *eos]


def answers(vocabulary):
  """Returns the first ids of '0' and '1'.

  Raises:
    InputError: they are equal.
  """
  no, yes = (vocabulary.encode(text)[0] for text in '01')
  if no == yes:
    raise InputError(
        f'--metrics={NAME}: expected a vocabulary of --model in which 0 and 1 '
        'begin with different tokens'
    )
  return no, yes


METRIC = score_metric.ScoreMetric(
    NAME,
    'sentences that the document supports (a T5 in the form of MiniCheck)',
    run,
    (score_metric.DOCUMENT, score_metric.MODEL),
)
