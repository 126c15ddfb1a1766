"""Finds the words of a summary that were copied, and their places.

For each token of a summary, a model with a copy head (`models/copy_head.py`)
gives the share of its probability that was copied, and the equal input token
with the most attention. A word counts as copied if the mean share of its tokens
is at least one half. Its place is the document's word around the input token
with the most attention.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np

from locost_jax.summarizing import summary_words

_LEAST = 0.5  # of the probability of a word's tokens


class CopiedWord(NamedTuple):
  """A word of a summary and the word of the document it was copied from."""

  span: tuple  # (start, end) in the summary
  place: tuple  # (start, end) in the document
  share: float  # the copied part of its probability, of 1


class Traced(NamedTuple):
  """Arrays [T], a value for each token of a summary.

  Attributes:
    share: the copied share of its probability.
    weight: the attention on the equal document token with the most attention.
    end: end of that token in the document, in characters; -1 at bos and eos.
  """

  share: np.ndarray
  weight: np.ndarray
  end: np.ndarray

  def take(self, which):
    """Returns the values at an index array or bool [T]."""
    return Traced(*(x[which] for x in self))


@functools.partial(jax.jit, static_argnums=0)
def copied_from(model, params, memory, targets_in, targets):
  """Calls the model's `copied_from`: where each target stands."""
  return model.apply(
      {'params': params}, memory, targets_in, targets, method='copied_from'
  )


def trace(summarizer, memory, targets_in, tokens, places):
  """Returns where the tokens of a summary were copied from.

  Args:
    targets_in: int [1, T], the decoder's inputs.
    tokens: ids of the summary, at most T.
    places: of `reading.places`, the ends of the tokens of each page.

  Returns:
    Traced; None if the model has no copy head.
  """
  if not summarizer.config.copy:
    return None
  targets = np.zeros_like(targets_in)
  targets[0, : len(tokens)] = tokens
  found = copied_from(
      summarizer.model, summarizer.params, memory, targets_in, targets
  )
  share, place, weight = (np.asarray(x)[0, : len(tokens)] for x in found)
  ends = np.full(memory['mask'].shape[1:], -1)
  for row, own in zip(ends.reshape(-1, ends.shape[-1]), places):
    row[: len(own)] = own
  return Traced(share, weight, ends.ravel()[place])


def find(summary, text, ends, traced):
  """Returns the words of a summary that were copied, in order.

  Args:
    ends: int [T], where the tokens of the summary end in it.
    traced: Traced, of these tokens.

  Returns:
    A list of CopiedWord.
  """
  spans, owner = summary_words.find(summary, ends)
  words = []
  for i, span in enumerate(spans):
    own = np.flatnonzero(owner == i)
    share = traced.share[own].mean() if len(own) else 0
    if share < _LEAST:
      continue
    heaviest = own[np.argmax(traced.weight[own])]
    place = _word_around(text, int(traced.end[heaviest]) - 1)
    if place is not None:
      words.append(CopiedWord(span, place, float(share)))
  return words


def _word_around(text, at):
  """Returns (start, end) of the word around a character, or None."""
  if at < 0 or text[at].isspace():
    return None
  start = end = at
  while start and not text[start - 1].isspace():
    start -= 1
  while end < len(text) and not text[end].isspace():
    end += 1
  return start, end
