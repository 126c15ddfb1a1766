"""The tokens of a finished summary and the sentences they belong to."""

from typing import Any, NamedTuple

import numpy as np

from locost_jax.summarizing import closest_words
from locost_jax.summarizing import passages as passages_lib

TOP = 3  # passages named for a sentence


class Sentence(NamedTuple):
  """A sentence of a summary and where it comes from."""

  span: tuple  # of the summary
  mass: Any  # [P], share of its tokens' attention on each passage
  attended: list  # Match, the first TOP passages, best first
  closest: Any  # Match by words; None: no word in common


class Written(NamedTuple):
  """A summary of T tokens, n of which are text.

  Attributes:
    text: str.
    spans: (start, end) of each sentence in the text.
    is_text: bool [T], false at bos and eos.
    ends: int [n], where each token of the text ends in it.
    sentence_of: int [n], the sentence of each.
  """

  text: str
  spans: list
  is_text: Any
  ends: Any
  sentence_of: Any


def split(vocabulary, tokens):
  """Returns the Written of a summary.

  Args:
    vocabulary: that the tokens belong to.
    tokens: T ids, without start and padding.
  """
  text = vocabulary.decode(tokens)
  spans = passages_lib.sentence_spans(text)
  marks = vocabulary.bos_id, vocabulary.eos_id
  is_text = ~np.isin(tokens, [mark for mark in marks if mark is not None])
  ends = _decoded_ends(vocabulary, tokens)[is_text]
  return Written(
      text, spans, is_text, ends, token_passages(ends, spans or [(0, 0)])
  )


def token_passages(ends, passages):
  """Finds the passage of each token.

  Args:
    ends: for each token its end in the text, in characters.
    passages: list of (start, end) in the text, in order.

  Returns:
    int [len(ends)]: the passage that the token's last character lies in or
    follows. Text before the first passage belongs to it.
  """
  starts = np.array([start for start, _ in passages])
  found = np.searchsorted(starts, np.array(ends, int) - 1, 'right') - 1
  return np.maximum(found, 0)


def mean_mass(mass):
  """Returns the mean over the tokens of [n, P]; zeros without tokens."""
  return mass.mean(0) if len(mass) else np.zeros(mass.shape[1])


def sentence_mass(written, mass):
  """Returns the mean mass of each sentence: float [sentences, P].

  Args:
    written: Written of n tokens of text.
    mass: [n, P].
  """
  return np.reshape(
      [
          mean_mass(mass[written.sentence_of == i])
          for i in range(len(written.spans))
      ],
      (len(written.spans), mass.shape[1]),
  )


def describe_sentences(written, mass, quotes):
  """Returns the Sentence list of a summary.

  Args:
    written: Written of n tokens of text.
    mass: [n, P].
    quotes: the texts of the P passages.
  """
  closest = closest_words.closest_passages(
      [written.text[start:end] for start, end in written.spans], quotes
  )
  return [
      Sentence(span, mean, _best(mean), match)
      for span, mean, match in zip(
          written.spans, sentence_mass(written, mass), closest
      )
  ]


def _best(mean):
  """Returns the first TOP passages of a mean mass [P], as Match."""
  best = np.argsort(-mean, kind='stable')[:TOP]
  return [closest_words.Match(int(p), float(mean[p])) for p in best]


def _decoded_ends(vocabulary, tokens):
  """Returns where in their text the tokens of a summary end: int [T]."""
  lengths = [
      len(vocabulary.decode(tokens[: i + 1])) for i in range(len(tokens))
  ]
  return np.maximum.accumulate(np.array(lengths, int))
