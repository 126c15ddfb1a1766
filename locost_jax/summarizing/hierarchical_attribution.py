"""Finds the passages of a document behind a summary of summaries.

The last summary attended to the summaries of a level, these to the summaries
below them, those of the first level to the passages of the document
(`parts`). The attention is followed through all levels:

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

from locost_jax.summarizing import attribution
from locost_jax.summarizing import passages as passages_lib
from locost_jax.summarizing import reading
from locost_jax.summarizing import texts
from locost_jax.summarizing import written_tokens


class PartSummary(NamedTuple):
  """A part of the document and its summary.

  Attributes:
    passages: (first, last), those that it begins and ends in.
    text: its summary; '' if the model wrote nothing.
  """

  passages: tuple
  text: str


class _Read(NamedTuple):
  """A part of a level.

  Attributes:
    written: `written_tokens.Written` of its summary.
    first: the first segment of the level in it.
    mass: [n, S], the attention of the summary's tokens of text on S segments.
    tokens: int [S], the number of its tokens in each of them.
    length: all of its tokens, marks included.
  """

  written: Any
  first: int
  mass: Any
  tokens: Any
  length: int


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
  tokens, first_level = np.zeros(P, int), None
  done, total = itertools.count(), sum(map(len, levels))
  on_part = lambda: progress and progress('page', next(done), total)
  for level in levels:
    found = _read_level(summarizer, level, segments, on_part)
    if first_level is None:
      first_level = found
      for part in found:
        tokens[part.first : part.first + len(part.tokens)] += part.tokens
    if level is not levels[-1]:
      segments = _sentence_letters(level, found)
      below = sparse.vstack([_follow(part, below) for part in found], 'csr')
      if not len(segments):  # no summary has words
        segments, below = np.zeros(1, int), sparse.csr_array((1, P))
  (last,) = found
  mass = last.mass @ below[last.first : last.first + last.mass.shape[1]]
  length = sum(part.length for part in first_level)
  return attribution.Source(
      text,
      last.written.text,
      passages,
      tokens,
      written_tokens.describe_sentences(
          last.written, mass, [text[start:end] for start, end in passages]
      ),
      written_tokens.mean_mass(mass),
      length,
      length,
      parts=[
          PartSummary(
              (read.first, read.first + len(read.tokens) - 1), p.summary
          )
          for read, p in zip(first_level, levels[0])
      ],
  )


def _read_level(summarizer, parts, segments, on_part):
  """Returns the _Read of each part of a level.

  Args:
    parts: list of `parts.Part`.
    segments: int [S], the letter of the level at which each segment begins.
    on_part: called before each part.
  """
  found, begin = [], 0
  for part in parts:
    on_part()
    found.append(_read_part(summarizer, part, segments, begin))
    begin += _count_letters(part.text)
  return found


def _read_part(summarizer, part, segments, begin):
  """Returns the _Read of a part that begins at this letter of its level."""
  vocabulary, text = summarizer.vocabulary, texts.Text(part.text)
  read = reading.read(vocabulary, text, None, None)
  (ends,) = reading.places(vocabulary, text, None, None)
  is_text = ends > 0
  last = begin + _letters_before(part.text, ends[is_text]) - 1
  owners = np.maximum(np.searchsorted(segments, last, 'right') - 1, 0)
  first = owners.min(initial=len(segments) - 1)
  local = np.full(len(ends), -1)
  local[is_text] = owners - first
  S = int(local.max(initial=0)) + 1
  written = written_tokens.split(vocabulary, part.tokens)
  mass = attribution.passage_mass(
      summarizer, read.pages, [local], S, part.tokens
  )
  return _Read(
      written,
      int(first),
      mass[written.is_text],
      np.bincount(local[is_text], minlength=S),
      sum(map(len, read.pages)),
  )


def _follow(part, below):
  """Returns M_k of the sentences of a part: sparse [sentences, P].

  Args:
    below: M_k-1, sparse [segments of the level, P].
  """
  shares = written_tokens.sentence_mass(part.written, part.mass)
  shares /= np.maximum(shares.sum(1, keepdims=True), 1e-30)
  rows = below[part.first : part.first + shares.shape[1]]
  return sparse.csr_array(shares) @ rows


def _sentence_letters(parts, found):
  """Returns the letter of the next level at which each sentence begins."""
  begins, before = [], 0
  for part, read in zip(parts, found):
    starts = [start for start, _ in read.written.spans]
    begins.append(before + _letters_before(read.written.text, starts))
    before += _count_letters(part.summary)
  return np.concatenate(begins)


def _letters_before(text, offsets):
  """Returns how many letters stand before each offset of a text: int [n]."""
  is_letter = [not letter.isspace() for letter in text]
  before = np.append(0, np.cumsum(is_letter, dtype=int))
  return before[np.asarray(offsets, int)]


def _count_letters(text):
  return sum(not letter.isspace() for letter in text)
