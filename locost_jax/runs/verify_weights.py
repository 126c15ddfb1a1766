"""Verifies converted weights: runs the same documents in both frameworks.

Needs PyTorch and transformers. Models: T5, LongT5 and BART.
"""

import importlib.util
import os

import numpy as np

from locost_jax.errors import InputError
from locost_jax.summarizing import summarizer

SUPPORTED = ('t5', 'longt5', 'bart')  # values of config.model.name
# Largest difference of logits, as a share of the largest logit: both sides
# compute in float32; weights exported in bfloat16 have 8 significant bits.
TOLERANCE = {'float32': 1e-3, 'bfloat16': 0.1}
_SHAPE = 2, 64, 16  # documents, tokens per document, tokens per target
_FIRST = 3  # smaller token ids are special tokens


def check(name):
  """Raises an InputError if a model cannot be compared."""
  if name not in SUPPORTED:
    raise InputError(
        f'--verify: transformers has no {name!r}; expected one of '
        f'{", ".join(SUPPORTED)}'
    )
  for package in 'torch', 'transformers':
    if importlib.util.find_spec(package) is None:
      raise InputError(
          f'--verify needs {package}, which is not installed: '
          "pip install 'locost_jax[peers]'"
      )


def compare(run, release, dtype='float32'):
  """Compares the logits of a run with those that transformers computes.

  Args:
    run: a WORKDIR or a checkpoint in it.
    release: the Hugging Face directory of the same weights.
    dtype: of the release's weights.

  Returns:
    A dict: tokens compared, difference (the largest of two logits), largest
    (logit), same_choice (share of positions with the same likeliest token).

  Raises:
    InputError: transformers cannot load the directory, or the logits differ.
  """
  ours = summarizer.load(os.fspath(run))
  inputs, targets = _make_tokens(ours.config)
  expected = _transformers_logits(os.fspath(release), inputs, targets)
  found = ours.logits(inputs, targets)
  difference = float(np.abs(found - expected).max())
  largest = float(np.abs(expected).max())
  if not difference <= TOLERANCE[dtype] * largest:
    raise InputError(
        f'--verify: the logits of {run} and of {release} in transformers '
        f'differ by {difference:.2g}, the largest is {largest:.2g}: expected '
        f'at most {TOLERANCE[dtype]:g} of it; do not use the converted weights'
    )
  return dict(
      tokens=inputs.size + targets.size,
      difference=difference,
      largest=largest,
      same_choice=float((found.argmax(-1) == expected.argmax(-1)).mean()),
  )


def _make_tokens(config):
  """Returns random documents [B, L] and targets [B, T], no special tokens."""
  rng = np.random.default_rng(0)
  B, L, T = _SHAPE
  most = config.max_positions or L
  draw = lambda length: rng.integers(
      min(_FIRST, config.vocab_size - 1), config.vocab_size, (B, length)
  ).astype(np.int32)
  return draw(min(L, most)), draw(min(T, most))


def _transformers_logits(directory, inputs, targets):
  """Returns the logits [B, T, V] that transformers computes in float32."""
  import torch
  import transformers

  try:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        directory, local_files_only=True
    )
  except (OSError, ValueError, RuntimeError) as error:
    reason = ' '.join(str(error).split())
    raise InputError(
        f'--verify: transformers cannot load {directory}: {reason}'
    ) from None
  tokens = lambda ids: torch.tensor(ids, dtype=torch.long)
  with torch.inference_mode():
    return (
        model.float()
        .eval()(
            input_ids=tokens(inputs),
            attention_mask=torch.ones(inputs.shape, dtype=torch.long),
            decoder_input_ids=tokens(targets),
        )
        .logits.numpy()
    )
