"""Finds the passages of a document behind a summary of summaries.

The last summary attended to the summaries of a level, these to the summaries
below them, those of the first level to the passages of the document
(`summarizing.parts`). The attention is followed through all levels:

  M_1[s, p] = a_1[s, p]                    sentence s of level 1, passage p
  M_k[s, p] = sum_r a_k[s, r] M_k-1[r, p]  r: the sentences of level k - 1

a_k[s, r] is the mean attention of the tokens of sentence s on sentence r
(`attribution.passage_mass`). Below the last level, the rows of a_k are scaled
to sum to 1, so that bos and eos lose no share.

Cutting a text into parts may change its white space. Places are therefore
counted in letters: characters that are no white space.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from locost_jax.attribution import attribution
from locost_jax.attribution import passages as passages_lib


class PartSummary(NamedTuple):
  """A part of the document and its summary."""

  passages: tuple  # (first, last), those that it begins and ends in
  text: str  # its summary; '' if the model wrote nothing


class _Read(NamedTuple):
  """A part of a level."""

  written: Any  # `attribution.Written` of its summary
  first: int  # the first segment of the level in it
  mass: Any  # [n, S], attention of the summary's tokens of text on S segments
  tokens: Any  # int [S], the number of its tokens in each of them
  length: int  # all of its tokens, marks included


def attribute(summarizer, text, levels, progress=None, places=()):
  """Finds the passages of a document that a summary of summaries goes back to.

  Args:
    levels: for each level a list of `parts.Part`; the last has one part.
    progress: None, or called as progress('page', parts done, parts).

  Returns:
    An `attribution.Source` with `parts`.
  """
  passages = passages_lib.cut(text, places) or [(0, len(text))]
  P = len(passages)
  segments = _letters_before(text, [start for start, _ in passages])
  below = sparse.eye_array(P, format='csr')
  done, total = itertools.count(), sum(map(len, levels))
  first_level = None
  for level in levels:
    found, begin = [], 0
    for part in level:
      if progress:
        progress('page', next(done), total)
      found.append(_read_part(summarizer, part, segments, begin))
      begin += _letters_before(part.text, len(part.text))
    first_level = first_level or found
    if level is not levels[-1]:
      segments = _sentence_letters(level, found)
      below = sparse.vstack([_follow(part, below) for part in found], 'csr')
      if not len(segments):  # no summary has words
        segments, below = np.zeros(1, int), sparse.csr_array((1, P))
  (last,) = found
  mass = last.mass @ below[last.first : last.first + last.mass.shape[1]]
  length = sum(part.length for part in first_level)
  tokens = np.zeros(P, int)
  parts = []
  for read, part in zip(first_level, levels[0]):
    stop = read.first + len(read.tokens)
    tokens[read.first : stop] += read.tokens
    parts.append(PartSummary((read.first, stop - 1), part.summary))
  return attribution.Source(
      text,
      last.written.text,
      passages,
      tokens,
      last.written.describe_sentences(
          mass, [text[start:end] for start, end in passages]
      ),
      attribution.mean(mass),
      length,
      length,
      parts=parts,
  )


def _read_part(summarizer, part, segments, begin):
  """Returns the _Read of a part.

  Args:
    segments: int [S], the letter of the level at which each segment begins.
    begin: the letter of the level at which the part begins.
  """
  _, read, (ends,) = summarizer.locate(part.text)
  is_text = ends > 0
  last = begin + _letters_before(part.text, ends[is_text]) - 1
  owners = np.maximum(np.searchsorted(segments, last, 'right') - 1, 0)
  first = owners.min(initial=len(segments) - 1)
  local = np.full(len(ends), -1)
  local[is_text] = owners - first
  S = int(local.max(initial=0)) + 1
  written = attribution.split(summarizer.vocabulary, part.tokens)
  memory = summarizer.memory_of(read.pages)
  mass = attribution.passage_mass(summarizer, memory, [local], S, part.tokens)
  return _Read(
      written,
      int(first),
      mass[written.is_text],
      np.bincount(local[is_text], minlength=S),
      len(ends),
  )


def _follow(part, below):
  """Returns M_k of the sentences of a part: sparse [sentences, P].

  Args:
    below: M_k-1, sparse [segments of the level, P].
  """
  shares = part.written.sentence_mass(part.mass)
  shares /= np.maximum(shares.sum(1, keepdims=True), 1e-30)
  rows = below[part.first : part.first + shares.shape[1]]
  return sparse.csr_array(shares) @ rows


def _sentence_letters(parts, found):
  """Returns the letter of the next level at which each sentence begins."""
  begins, before = [], 0
  for part, read in zip(parts, found):
    starts = [start for start, _ in read.written.spans]
    begins.append(before + _letters_before(read.written.text, starts))
    before += _letters_before(part.summary, len(part.summary))
  return np.concatenate(begins)


def _letters_before(text, offsets):
  """Returns how many letters stand before each offset of a text: int [n]."""
  is_letter = [not letter.isspace() for letter in text]
  before = np.append(0, np.cumsum(is_letter, dtype=int))
  return before[np.asarray(offsets, int)]
