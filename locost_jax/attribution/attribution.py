"""Finds the passages that the decoder attended to, for each summary sentence.

The decoder runs once more over a finished summary, all tokens in parallel. For
each token, `models/attention.py` sums its cross-attention, averaged over
heads and layers, over each passage. This shows where the decoder looked while
it wrote, not why it wrote what it wrote (Jain and Wallace 2019).

Passages are ranked by the mean of their mass over the tokens of a sentence. On
facts planted in 40 and 100 paragraphs (November 2026, a model trained on 10)
this ranked the true passage among the first three for all of 60 facts each. In
a similar model, subtracting or dividing by the mean over the whole summary did
so for 82% to 95%, a single layer for 97% to 100%. Some attention falls on the
same passages in every sentence: compare a sentence's mass with the mean over
the whole summary, which is returned with it.

Each sentence also has the passage that shares most words with it, found without
the model.

A model that weighs pages (PageSum) gives a weight to each page for each token;
the attention on a passage is then multiplied by the weight of its page.
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from locost_jax.attribution import passages as passages_lib
from locost_jax.attribution import selected_tokens
from locost_jax.attribution import words
from locost_jax.data import text as text_lib

TOP = 3  # passages named for a sentence


class PageWeights(NamedTuple):
  """How much each page counted for the text of a summary."""

  weights: Any  # [T, pages], of each token; rows sum to 1
  ends: Any  # int [T], where each token ends in the summary
  sentences: Any  # int [T], the sentence of each
  begins: list  # for each page the passage it begins in


class Sentence(NamedTuple):
  """A sentence of a summary and where it comes from."""

  span: tuple  # of the summary
  mass: Any  # [P], share of its tokens' attention on each passage
  attended: list  # words.Match, the first TOP passages, best first
  closest: Any  # words.Match by words; None: no word in common


class Source(NamedTuple):
  """A summary, its document, and the passages of each sentence."""

  text: str
  summary: str
  passages: list  # (start, end) in the text, in order
  tokens: Any  # int [P], tokens of each passage
  sentences: list  # Sentence, in order
  mass: Any  # [P], share of the whole summary's attention
  tokens_total: int  # of the document, marks included
  tokens_read: int
  pages: Any = None  # PageWeights; None: the model weighs no pages
  selection: Any = None  # selected_tokens.Selection; None: all are decoded
  copied: Any = None  # list of words.Copied; None: the model has no copy head


class Written(NamedTuple):
  """A summary of T tokens, n of which are text."""

  text: str
  spans: list  # (start, end) of each sentence in the text
  is_text: Any  # bool [T], false at bos and eos
  ends: Any  # int [n], where each token of the text ends in it
  sentence_of: Any  # int [n], the sentence of each

  def describe_sentences(self, mass, quotes):
    """Returns a list of Sentence from [n, P] and the texts of P passages."""
    closest = words.closest_passages(
        [self.text[start:end] for start, end in self.spans], quotes
    )
    found = []
    for i, (span, match) in enumerate(zip(self.spans, closest)):
      own = mean(mass[self.sentence_of == i])
      best = np.argsort(-own, kind='stable')[:TOP]
      attended = [words.Match(int(p), float(own[p])) for p in best]
      found.append(Sentence(span, own, attended, match))
    return found


def mean(mass):
  """Returns the mean over the tokens of [n, P]; zeros without tokens."""
  return mass.mean(0) if len(mass) else np.zeros(mass.shape[1])


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def apply(model, params, method, static, *arrays):
  """Calls a method of the model, whose last arguments are static."""
  return model.apply({'params': params}, *arrays, *static, method=method)


def _apply(summarizer, method, memory, tokens, *arrays, static=()):
  """Calls a method of the model on one summary that the decoder reads."""
  T = _round_up(len(tokens), 16)
  targets_in = np.full((1, T), summarizer.settings.start_id, np.int32)
  targets_in[0, 1 : len(tokens)] = tokens[:-1]
  given = memory, targets_in, *arrays
  return apply(summarizer.model, summarizer.params, method, static, *given)


def _round_up(number, smallest):
  """Returns the next power of two, so that few shapes are compiled."""
  return max(smallest, 1 << max(0, number - 1).bit_length())


def split(vocabulary, tokens):
  """Returns the Written of ids without start and padding."""
  text = vocabulary.decode(tokens)
  spans = text_lib.sentence_spans(text)
  marks = vocabulary.bos_id, vocabulary.eos_id
  is_text = ~np.isin(tokens, [mark for mark in marks if mark is not None])
  ends = [len(vocabulary.decode(tokens[: i + 1])) for i in range(len(tokens))]
  ends = np.maximum.accumulate(np.array(ends, int))[is_text]
  return Written(
      text, spans, is_text, ends, passages_lib.owners(ends, spans or [(0, 0)])
  )


def attribute(summarizer, text, tokens, max_input_length=None, memory=None):
  """Finds the passages of a document that a summary attended to.

  Args:
    tokens: ids of the summary as generated, without start; or of
      `token_places.summary_tokens`.
    max_input_length: the limit the document was read with; None: no limit.
    memory: output of the model's `encode`; None: the text is encoded again.

  Returns:
    A Source.
  """
  vocabulary = summarizer.vocabulary
  tokens = [int(token) for token in tokens if token != vocabulary.pad_id]
  text, read, ends = summarizer.locate(text, max_input_length)
  passages = passages_lib.cut(text) or [(0, len(text))]
  P, owners = len(passages), [
      passages_lib.owners(own, passages) for own in ends
  ]
  if memory is None:
    memory = summarizer.memory_of(read.pages)
  written = split(vocabulary, tokens)
  copied = trace(summarizer, memory, tokens, ends)
  if copied is not None:
    copied = words.Traced(*(x[written.is_text] for x in copied))
    copied = words.find_copied(written.text, text, written.ends, copied)
  mass = passage_mass(summarizer, memory, owners, P, tokens)[written.is_text]
  flat = np.concatenate(owners)
  counts = np.bincount(flat[flat >= 0], minlength=P)
  pages = page_weights(summarizer, memory, tokens)
  if pages is not None:
    begins = [next((int(p) for p in own if p >= 0), 0) for own in owners]
    pages = pages[written.is_text], written.ends, written.sentence_of, begins
  return Source(
      text,
      written.text,
      passages,
      counts,
      written.describe_sentences(
          mass,
          # Passages that were not read are no source.
          [text[a:b] if n else '' for (a, b), n in zip(passages, counts)],
      ),
      mean(mass),
      read.tokens,
      len(flat),
      pages and PageWeights(*pages),
      _select(summarizer, read.pages, ends, owners, memory, tokens, written),
      copied,
  )


def _select(summarizer, pages, ends, owners, memory, tokens, written):
  """Returns Source.selection."""
  if summarizer.config.select == 'none':
    return None
  columns, number = selected_tokens.columns(summarizer, pages)
  mass = passage_mass(summarizer, memory, columns, number + 1, tokens)
  return selected_tokens.describe(
      summarizer,
      pages,
      np.concatenate(ends),
      np.concatenate(owners),
      memory['mask'][0],
      mean(mass[written.is_text]),
  )


def passage_mass(summarizer, memory, owners, P, tokens):
  """Computes the attention of each token of a summary to each passage.

  Args:
    memory: output of the model's `encode`: [1, L, ...] or [1, pages, L, ...],
      L padded or not.
    owners: the passage of each id of each page (of the document where the model
      reads no pages); -1 at bos, eos and padding.
    P: number of passages.
    tokens: ids of the summary, without start, with or without eos.

  Returns:
    float32 [len(tokens), P]: the rest of a row, to 1, fell on ids of -1.
  """
  # Runs of ids of one passage: a passage on two pages has two. Their numbers
  # must not decrease, so rows that only fill the batch have the last one.
  flat = np.concatenate(owners)
  begins = np.diff(flat, prepend=flat[0] - 1) != 0
  runs, of_run = np.cumsum(begins) - 1, flat[begins]
  padded = np.full(memory['mask'].shape, runs[-1], np.int32)
  for row, own in zip(
      padded.reshape(-1, padded.shape[-1]),
      np.split(runs, np.cumsum([len(own) for own in owners])[:-1]),
  ):
    row[:] = own[-1]
    row[: len(own)] = own
  static = (_round_up(len(of_run), 64),)
  mass = _apply(summarizer, 'cross_mass', memory, tokens, padded, static=static)
  is_passage = of_run >= 0
  found = np.zeros((P, len(tokens)), np.float32)
  mass = np.asarray(mass)[0, : len(tokens), : len(of_run)].T
  np.add.at(found, of_run[is_passage], mass[is_passage])
  return found.T


def page_weights(summarizer, memory, tokens):
  """Returns how much each page counted for each token, [tokens, pages].

  Rows sum to 1. None where the model weighs no pages.
  """
  if not summarizer.config.weighs_pages:
    return None
  weights = _apply(summarizer, 'page_weights', memory, tokens)
  return np.asarray(weights)[0, :, : len(tokens)].T


def trace(summarizer, memory, tokens, ends):
  """Returns the words.Traced of a summary; None: the model has no copy head.

  Args:
    ends: for each page where its ids end in the text, -1 at marks.
  """
  if not summarizer.config.copy:
    return None
  targets = np.zeros((1, _round_up(len(tokens), 16)), np.int32)
  targets[0, : len(tokens)] = tokens
  found = _apply(summarizer, 'copied_from', memory, tokens, targets)
  share, place, weight = (np.asarray(x)[0, : len(tokens)] for x in found)
  padded = np.full(memory['mask'].shape[1:], -1)
  for row, own in zip(padded.reshape(-1, padded.shape[-1]), ends):
    row[: len(own)] = own
  return words.Traced(share, weight, padded.ravel()[place])
