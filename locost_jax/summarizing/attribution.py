"""Which passages of a document the decoder attended to, for each sentence.

The decoder is run once more over a finished summary, all tokens in parallel,
and gives for each of them how its cross-attention, averaged over heads and
layers, is spread over the passages (`models/attention_mass.py`). This says
where the decoder looked while it wrote; it is no proof of why it wrote what it
wrote (Jain and Wallace 2019).

Passages are ranked by the mean of their mass over the tokens of a sentence. On
planted facts (tests/summarizing/test_attribution.py, 40 and 100 paragraphs)
that puts the true passage among the first three for all of 60 facts each. With
a like model, subtracting or dividing by the mean over the whole summary did so
for 82% to 95%, a single layer for 97% to 100%. Some attention falls on the same
passages whatever is written: compare a sentence's mass with the mean over the
whole summary, which is kept with it.

Each sentence also has the passage that shares most words with it, found without
the model.
"""

import collections
import functools
import re
from typing import Any, NamedTuple
import unicodedata

import jax
import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.summarizing import batching
from locost_jax.vocabularies.vocabulary import surround

LONGEST = 1200  # characters of a passage; longer paragraphs are cut
TOP = 3  # passages named for a sentence

_WORD = re.compile(r'\w+')


class Match(NamedTuple):
  """A passage that belongs to a sentence."""

  passage: int
  score: float  # a part of the attention, or an overlap; both 0 to 1


class Sentence(NamedTuple):
  """A sentence of a summary and where it comes from."""

  span: tuple  # of the summary
  mass: Any  # [P], the part of its tokens' attention on each passage
  attended: list  # Match, the first TOP passages, best first
  closest: Any  # Match by words, or None: no word in common


class Source(NamedTuple):
  """A summary, its document, and the passages of each sentence."""

  text: str
  summary: str
  passages: list  # (start, end) in the text, in order
  tokens: Any  # int [P], tokens of each passage
  sentences: list  # Sentence, in order
  mass: Any  # [P], the part of the whole summary's attention
  tokens_read: int  # of the document, marks included
  tokens_kept: int


def cut_passages(text):
  """Finds the passages of a text: its paragraphs; long ones are cut.

  Paragraphs of more than LONGEST characters are cut at the ends of sentences,
  into parts as even as the sentences allow.

  Returns:
    A list of (start, end), in order, without white space at their ends.
  """
  passages = []
  for start, end in text_lib.paragraph_spans(text):
    if end - start <= LONGEST:
      passages.append((start, end))
      continue
    begin, last = start, start
    for _, stop in text_lib.sentence_spans(text[start:end]):
      stop += start
      parts = -(-(end - begin) // LONGEST)
      if (stop - begin) * parts > end - begin and last > begin:
        passages.append((begin, last))
        begin = last + len(text[last:stop]) - len(text[last:stop].lstrip())
      last = stop
    passages.append((begin, end))
  return passages


def token_passages(ends, passages):
  """Finds the passage of each token.

  Args:
    ends: of each token, where it ends in the text, in characters.
    passages: of `cut_passages`.

  Returns:
    int [len(ends)]: the passage that the token's last character lies in or
    follows. What stands before the first passage belongs to it.
  """
  starts = np.array([start for start, _ in passages])
  found = np.searchsorted(starts, np.array(ends, int) - 1, 'right') - 1
  return np.maximum(found, 0)


def decoded_ends(vocabulary, tokens):
  """Returns where in their text the tokens of a summary end: int [T]."""
  lengths = [
      len(vocabulary.decode(tokens[: i + 1])) for i in range(len(tokens))
  ]
  return np.maximum.accumulate(np.array(lengths, int))


@functools.partial(jax.jit, static_argnums=(0, 5))
def cross_mass(model, params, memory, targets_in, segments, num_segments):
  return model.apply(
      {'params': params},
      memory,
      targets_in,
      segments,
      num_segments,
      method='cross_mass',
  )


def round_up(number, smallest):
  """Returns the next power of two, so that few shapes are compiled."""
  return max(smallest, 1 << max(0, number - 1).bit_length())


def token_mass(summarizer, inputs, segments, num_segments, tokens, memory=None):
  """Computes the attention of each token of one summary to each segment.

  Args:
    summarizer: of `locost_jax.load`.
    inputs: the document's ids, marks included.
    segments: int, one for each of them, not decreasing.
    num_segments: P.
    tokens: ids of the summary, without start, with or without eos.
    memory: what the model's `encode` gave for the document ([1, L, ...], L
      padded or not); None: the document is read again.

  Returns:
    float32 [len(tokens), P]; rows sum to 1.
  """
  if memory is None:
    length = batching.padded_length(summarizer.config, len(inputs))
    padded = np.full((1, length), summarizer.settings.pad_id, np.int32)
    padded[0, : len(inputs)] = inputs
    mask = np.arange(length)[None] < len(inputs)
    memory = {'states': summarizer.encode(padded, mask), 'mask': mask}
  L, T = memory['mask'].shape[1], round_up(len(tokens), 16)
  padded_segments = np.full((1, L), segments[-1], np.int32)
  padded_segments[0, : len(segments)] = segments
  targets_in = np.full((1, T), summarizer.settings.start_id, np.int32)
  targets_in[0, 1 : len(tokens)] = tokens[:-1]
  mass = cross_mass(
      summarizer.model,
      summarizer.params,
      memory,
      targets_in,
      padded_segments,
      round_up(num_segments, 64),
  )
  return np.asarray(mass)[0, : len(tokens), :num_segments]


def attribute(summarizer, text, tokens, max_input_length=None, memory=None):
  """Finds the passages of a document that a summary attended to.

  Args:
    summarizer: of `locost_jax.load`, with a vocabulary.
    text: the document.
    tokens: ids of the summary as generated, without start. (Of a summary that
      is only there as text: `summarizer.tokenize(summary)`.)
    max_input_length: as the document was read; None: all of it.
    memory: what the model's `encode` gave for it; None: it is read again.

  Returns:
    A Source.
  """
  vocabulary = summarizer.vocabulary
  tokens = [int(token) for token in tokens if token != vocabulary.pad_id]
  passages = cut_passages(text) or [(0, len(text))]
  P, marks = len(passages), len(surround(vocabulary, []))
  ids, ends = vocabulary.encode_with_ends(text)
  tokens_read = len(ids) + marks
  if max_input_length is not None:
    ids, ends = (x[: max_input_length - marks] for x in (ids, ends))
  owners = token_passages(ends, passages)
  mass = _passage_mass(summarizer, ids, owners, P, tokens, memory)

  summary = vocabulary.decode(tokens)
  spans = text_lib.sentence_spans(summary)
  closest = closest_passages(
      [summary[start:end] for start, end in spans],
      [text[start:end] for start, end in passages],
  )
  is_text = ~np.isin(
      tokens,
      [i for i in (vocabulary.bos_id, vocabulary.eos_id) if i is not None],
  )
  mass = mass[is_text]
  sentence_of = token_passages(
      decoded_ends(vocabulary, tokens)[is_text], spans or [(0, 0)]
  )
  sentences = [
      _describe_sentence(span, mass[sentence_of == i], closest[i])
      for i, span in enumerate(spans)
  ]
  return Source(
      text,
      summary,
      passages,
      np.bincount(owners, minlength=P),
      sentences,
      _mean_mass(mass),
      tokens_read,
      len(ids) + marks,
  )


def _passage_mass(summarizer, ids, owners, P, tokens, memory):
  """Computes the attention of each token of a summary to each passage.

  Args:
    summarizer: of `locost_jax.load`.
    ids: of the document, without marks.
    owners: int [len(ids)], the passage of each.
    P: number of passages.
    tokens: ids of the summary.
    memory: see `token_mass`.

  Returns:
    float32 [len(tokens), P].
  """
  vocabulary = summarizer.vocabulary
  marks = len(surround(vocabulary, []))
  front = marks - 1  # the last mark is behind the document
  # Marks have segments of their own: they are no part of the document.
  segments = np.concatenate(
      [np.arange(front), front + owners, [front + P]]
  ).astype(np.int32)
  mass = token_mass(
      summarizer, surround(vocabulary, ids), segments, P + marks, tokens, memory
  )
  return mass[:, front : front + P]


def _describe_sentence(span, mass, closest):
  """Makes the Sentence at a span.

  Args:
    span: of the summary.
    mass: [n, P], of its tokens.
    closest: the Match by words, or None.
  """
  mean = _mean_mass(mass)
  best = np.argsort(-mean, kind='stable')[:TOP]
  attended = [Match(int(p), float(mean[p])) for p in best]
  return Sentence(span, mean, attended, closest)


def _mean_mass(mass):
  """Returns the mean over the tokens of [n, P]; zeros if there are none."""
  return mass.mean(0) if len(mass) else np.zeros(mass.shape[1])


def word_spans(text):
  """Returns (start, end, word as it is compared) of the words of a text."""
  return [
      (*match.span(), _fold(match.group())) for match in _WORD.finditer(text)
  ]


def words(text):
  """Returns the words of a text, as they are compared."""
  return [_fold(word) for word in _WORD.findall(text)]


def _fold(word):
  """Removes case and accents of a word: Kurágin and KURAGIN are one."""
  if word.isascii():
    return word.lower()
  return ''.join(
      letter
      for letter in unicodedata.normalize('NFKD', word)
      if not unicodedata.combining(letter)
  ).casefold()


def closest_passages(sentences, passages):
  """Finds for each sentence the passage that shares most words with it.

  The overlap is the part of the sentence that the passage has: the mean of
  ROUGE-1 and ROUGE-2 recall (Lin 2004), in which a word or pair of words that
  n of P passages have weighs log(1 + P / n), so that names count and articles
  do not. Words are looked up in an index: the time grows with the words that
  are shared and not with sentences times passages.

  Args:
    sentences: list of str.
    passages: list of str.

  Returns:
    A list of Match, None for a sentence without a word in common. Of equal
    passages the shorter wins.
  """
  wanted = [_grams(words(sentence)) for sentence in sentences]
  index = {gram: [] for grams in wanted for gram in grams}
  lengths = []
  for p, passage in enumerate(passages):
    own = words(passage)
    lengths.append(len(own))
    for gram, count in _grams(own).items():
      if gram in index:
        index[gram].append((p, count))
  matches = []
  for grams in wanted:
    shared = collections.Counter()
    for size in (1, 2):
      weights = {
          gram: np.log1p(len(passages) / max(1, len(index[gram])))
          for gram in grams
          if len(gram) == size
      }
      total = sum(grams[gram] * weight for gram, weight in weights.items())
      for gram, weight in weights.items():
        for p, there in index[gram]:
          shared[p] += min(grams[gram], there) * weight / total / 2
    best = max(shared, key=lambda p: (shared[p], -lengths[p], -p), default=None)
    matches.append(None if best is None else Match(best, float(shared[best])))
  return matches


def _grams(words_):
  """Counts the words and the pairs of neighbours, as tuples."""
  return collections.Counter(
      [(word,) for word in words_] + list(zip(words_, words_[1:]))
  )
