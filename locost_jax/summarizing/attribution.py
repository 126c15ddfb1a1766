"""Finds the passages that the decoder attended to, for each summary sentence.

The decoder runs once more over a finished summary, all tokens in parallel. For
each token, `models/attention_mass.py` sums its cross-attention, averaged over
heads and layers, over each passage. This shows where the decoder looked while
it wrote, not why it wrote what it wrote (Jain and Wallace 2019).

Passages are ranked by the mean of their mass over the tokens of a sentence. On
planted facts (tests/summarizing/test_attribution.py, 40 and 100 paragraphs)
this ranks the true passage among the first three for all of 60 facts each. In a
similar model, subtracting or dividing by the mean over the whole summary did so
for 82% to 95%, a single layer for 97% to 100%. Some attention falls on the same
passages in every sentence: compare a sentence's mass with the mean over the
whole summary, which is returned with it.

Each sentence also has the passage that shares most words with it, found without
the model.

A model that weighs pages (PageSum) gives a weight to each page for each token;
the attention on a passage is then multiplied by the weight of its page.
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from locost_jax.summarizing import copied_words
from locost_jax.summarizing import passages as passages_lib
from locost_jax.summarizing import reading
from locost_jax.summarizing import selected_tokens
from locost_jax.summarizing import texts
from locost_jax.summarizing import written_tokens


class PageWeights(NamedTuple):
  """How much each page counted for the text of a summary."""

  weights: Any  # [T, pages], of each token; rows sum to 1
  ends: Any  # int [T], where each token ends in the summary
  sentences: Any  # int [T], the sentence of each
  begins: list  # for each page the passage it begins in


class Source(NamedTuple):
  """A summary, its document, and the passages of each sentence."""

  text: str
  summary: str
  passages: list  # (start, end) in the text, in order
  tokens: Any  # int [P], tokens of each passage
  sentences: list  # written_tokens.Sentence, in order
  mass: Any  # [P], share of the whole summary's attention
  tokens_read: int  # of the document, marks included
  tokens_kept: int
  pages: Any = None  # PageWeights; None: the model weighs no pages
  selection: Any = None  # selection.Selection; None: all tokens are decoded
  copied: Any = None  # list of CopiedWord; None: the model has no copy head
  parts: Any = None  # of `hierarchical_attribution`; None: read as a whole


@functools.partial(jax.jit, static_argnums=(0, 5))
def cross_mass(model, params, memory, targets_in, segments, num_segments):
  """Calls the model's `cross_mass`: the attention on each segment."""
  return model.apply(
      {'params': params},
      memory,
      targets_in,
      segments,
      num_segments,
      method='cross_mass',
  )


@functools.partial(jax.jit, static_argnums=0)
def page_weights(model, params, memory, targets_in):
  """Calls the model's `page_weights`: [B, P, T]."""
  return model.apply(
      {'params': params}, memory, targets_in, method='page_weights'
  )


def round_up(number, smallest):
  """Returns the next power of two, so that few shapes are compiled."""
  return max(smallest, 1 << max(0, number - 1).bit_length())


def token_mass(summarizer, pages, segments, num_segments, tokens, memory=None):
  """Computes the attention of each token of one summary to each segment.

  Args:
    pages: the document's ids, marks included: a list of arrays, one where the
      model reads no pages.
    segments: like `pages`, an int for each id, not decreasing.
    num_segments: P.
    tokens: ids of the summary, without start, with or without eos.
    memory: output of the model's `encode` ([1, L, ...] or [1, pages, L, ...], L
      padded or not); None: the document is encoded again.

  Returns:
    float32 [len(tokens), P]; rows sum to 1.
  """
  if memory is None:
    memory = read_again(summarizer, pages)
  # Rows that only fill the batch come last: segments must not decrease.
  padded = np.full(memory['mask'].shape, segments[-1][-1], np.int32)
  for row, own in zip(padded.reshape(-1, padded.shape[-1]), segments):
    row[:] = own[-1]
    row[: len(own)] = own
  mass = cross_mass(
      summarizer.model,
      summarizer.params,
      memory,
      _targets_in(summarizer, tokens),
      padded,
      round_up(num_segments, 64),
  )
  return np.asarray(mass)[0, : len(tokens), :num_segments]


def token_pages(summarizer, pages, tokens, memory=None):
  """Computes how much each page counted for each token of one summary.

  Args:
    summarizer, pages, tokens, memory: see `token_mass`.

  Returns:
    float32 [len(tokens), pages], rows sum to 1; None where the model weighs no
    pages.
  """
  if not summarizer.config.weighs_pages:
    return None
  if memory is None:
    memory = read_again(summarizer, pages)
  weights = page_weights(
      summarizer.model,
      summarizer.params,
      memory,
      _targets_in(summarizer, tokens),
  )
  return np.asarray(weights)[0, :, : len(tokens)].T


def read_again(summarizer, pages):
  """Encodes the ids of a document; returns the output of `encode`."""
  inputs, mask = reading.pad(
      [pages],
      reading.padded_shape(
          summarizer.config, pages, summarizer.pages is not None
      ),
      summarizer.settings.pad_id,
  )
  return summarizer.memory(inputs, mask)


def _targets_in(summarizer, tokens):
  """Returns the decoder's inputs for these tokens: int32 [1, T], padded."""
  T = round_up(len(tokens), 16)
  targets_in = np.full((1, T), summarizer.settings.start_id, np.int32)
  targets_in[0, 1 : len(tokens)] = tokens[:-1]
  return targets_in


def attribute(
    summarizer, text, tokens, max_input_length=None, memory=None, places=()
):
  """Finds the passages of a document that a summary attended to.

  Args:
    tokens: ids of the summary as generated, without start; or of
      `reading.summary_tokens`.
    max_input_length: the limit the document was read with; None: no limit.
    memory: output of the model's `encode`; None: the text is encoded again.

  Returns:
    A Source.
  """
  vocabulary = summarizer.vocabulary
  tokens = [int(token) for token in tokens if token != vocabulary.pad_id]
  document = texts.text_of(text, summarizer.pages)
  given = vocabulary, document, summarizer.pages, max_input_length
  read, ends = reading.read(*given), reading.places(*given)
  text = document.text
  passages = passages_lib.cut(text, places) or [(0, len(text))]
  owners = _find_owners(ends, passages)
  if memory is None:
    memory = read_again(summarizer, read.pages)
  mass = passage_mass(
      summarizer, read.pages, owners, len(passages), tokens, memory
  )
  weights = token_pages(summarizer, read.pages, tokens, memory)
  written = written_tokens.split(vocabulary, tokens)
  is_text = written.is_text
  selected = _selection(
      summarizer, read.pages, ends, owners, tokens, is_text, memory
  )
  targets_in = _targets_in(summarizer, tokens)
  copied = copied_words.trace(summarizer, memory, targets_in, tokens, ends)

  mass, counts = mass[is_text], _count_tokens(owners, len(passages))
  return Source(
      text,
      written.text,
      passages,
      counts,
      written_tokens.describe_sentences(
          written,
          mass,
          # Passages that were not read are no source.
          [text[a:b] if n else '' for (a, b), n in zip(passages, counts)],
      ),
      written_tokens.mean_mass(mass),
      read.tokens,
      sum(map(len, read.pages)),
      weights
      if weights is None
      else PageWeights(
          weights[is_text], written.ends, written.sentence_of, _first(owners)
      ),
      selected,
      copied
      and copied_words.find(
          written.text, text, written.ends, copied.take(is_text)
      ),
  )


def _find_owners(places, passages):
  """Returns the passage of each token: arrays like `reading.places`."""
  return [
      np.where(ends < 0, -1, written_tokens.token_passages(ends, passages))
      for ends in places
  ]


def _count_tokens(owners, P):
  """Returns how many tokens each of P passages has: int [P]."""
  of_passage = np.concatenate(owners)
  return np.bincount(of_passage[of_passage >= 0], minlength=P)


def _selection(summarizer, pages, places, owners, tokens, is_text, memory):
  """Returns Source.selection.

  Args:
    pages: ids of the document, see `token_mass`.
    places, owners: for each id, its end in the text and its passage.
    tokens: ids of the summary.
    is_text: bool [len(tokens)], false at marks.
  """
  if summarizer.config.select == 'none':
    return None
  columns, number = selected_tokens.columns(summarizer, pages)
  cuts = np.cumsum([len(page) for page in pages])[:-1]
  mass = passage_mass(
      summarizer, pages, np.split(columns, cuts), number + 1, tokens, memory
  )
  return selected_tokens.describe(
      summarizer,
      pages,
      np.concatenate(places),
      np.concatenate(owners),
      memory['mask'][0],
      written_tokens.mean_mass(mass[is_text]),
  )


def _first(owners):
  """Returns the passage that each page begins in, 0 where it has no text."""
  return [int(own[own >= 0][0]) if (own >= 0).any() else 0 for own in owners]


def passage_mass(summarizer, pages, owners, P, tokens, memory=None):
  """Computes the attention of each token of a summary to each passage.

  Args:
    pages: ids of the document, see `token_mass`.
    owners: like `pages`, the passage of each id; -1 at bos, eos and padding.
    P: number of passages.
    tokens: ids of the summary.
    memory: see `token_mass`.

  Returns:
    float32 [len(tokens), P].
  """
  # Runs of tokens of one passage: a passage on two pages has two.
  flat = np.concatenate(owners)
  begins = np.diff(flat, prepend=flat[0] - 1) != 0
  runs = np.cumsum(begins) - 1
  of_run = flat[begins]
  segments = np.split(runs, np.cumsum([len(own) for own in owners])[:-1])
  found = token_mass(summarizer, pages, segments, len(of_run), tokens, memory)
  mass = np.zeros((P, len(tokens)), np.float32)
  is_text = of_run >= 0
  np.add.at(mass, of_run[is_text], found.T[is_text])
  return mass.T
