"""Span corruption: T5's objective, as a part of pretraining.

A share of the tokens of a text is cut out in spans. In the input a sentinel
replaces each span; the target has each sentinel followed by its span (Raffel et
al. 2020, section 3.1.4):

  text      Thank you for inviting me to your party last week
  input     Thank you <0> me to your party <1> week
  target    <0> for inviting <1> last

Of n tokens, m = round(density n) are cut out in round(m / mean_length) spans.
The lengths of the spans and of the gaps between them are drawn uniformly from
all divisions of their totals. The first token is kept. The number of spans is
at most the number of sentinels, so a longer text has longer spans.

A document gives one example, from a run of tokens at a random position. The run
is as long as the maximum lengths of input and target allow without cutting
either. All draws use a hash of the seed and the document's id.
"""

import hashlib

import numpy as np

from locost_jax.errors import InputError
from locost_jax.vocabularies import vocabulary as vocabulary_lib


def sentinels(vocabulary):
  """Returns the list of the ids of '<extra_id_0>', '<extra_id_1>', ....

  Raises:
    InputError: the vocabulary has no sentinels, or they are not its last ids
      (as in T5).
  """
  ids = range(vocabulary.size)[::-1][: vocabulary.extra_ids]
  first = vocabulary.decode(ids[:1], keep_sentinels=True)
  if not ids or first not in ('', '<extra_id_0>'):  # '': they have no text
    raise InputError(
        f'config.span_corruption: the last token of the vocabulary is '
        f'{first!r}; expected <extra_id_0>, as T5 has it: sentinels stand for '
        'the spans'
    )
  return list(ids)


def is_drawn(name, share, seed):
  """Whether a document is drawn; the others become gap sentences."""
  return int.from_bytes(_hash(name, seed)[:8], 'big') < share * 2**64


def _hash(name, seed):
  key = b'%d' % seed
  return hashlib.blake2b(
      name.encode('utf-8', 'replace'), key=key, digest_size=32
  ).digest()


def counts(length, density, mean_length, max_spans):
  """Returns (tokens cut out, spans) of a text."""
  noise = min(max(round(length * density), 1), length - 1)
  spans = min(max(round(noise / mean_length), 1), max_spans, length - noise)
  return noise, spans


def longest(max_input, max_target, density, mean_length, max_spans):
  """Returns the most tokens of a text whose input and target both fit.

  Maximum lengths are without marks. At least 2; 0 if no text fits.
  """

  def fits(length):
    noise, spans = counts(length, density, mean_length, max_spans)
    return length - noise + spans <= max_input and noise + spans <= max_target

  low, high = 1, 2 * (max_input + max_target)
  while low < high:  # bisection: both lengths grow with the text
    middle = (low + high + 1) // 2
    low, high = (middle, high) if fits(middle) else (low, middle - 1)
  return low if low > 1 else 0


def draw(length, density, mean_length, max_spans, generator):
  """Draws which tokens are cut out: bool [length]."""
  noise, spans = counts(length, density, mean_length, max_spans)
  lengths = np.stack(
      [_divide(n, spans, generator) for n in (length - noise, noise)], 1
  )
  return np.repeat(np.arange(2 * spans) % 2 == 1, lengths.ravel())


def _divide(total, parts, generator):
  """Draws positive whole numbers with this total: int [parts]."""
  cuts = 1 + np.sort(generator.choice(total - 1, parts - 1, replace=False))
  return np.diff(cuts, prepend=0, append=total)


def cut_out(ids, is_noise, sentinels):
  """Makes (input, target), int arrays, of a text; see the top of this module.

  Args:
    ids: int [n].
    is_noise: bool [n], the tokens to cut out.
    sentinels: ids, at least one for each span.
  """
  begins = is_noise & ~np.append(False, is_noise[:-1])
  marks = np.asarray(sentinels, np.int32)[np.cumsum(begins) - 1]
  inputs = np.where(begins, marks, ids)[begins | ~is_noise]
  pairs = np.stack([marks, ids], 1)
  return inputs, pairs[np.stack([begins, is_noise], 1)]


def maker(vocabulary, data, settings):
  """Returns the function that makes the examples of documents.

  Args:
    settings: config.span_corruption as a dict: share (of documents), density
      (share of tokens cut out), mean_length (of a span, in tokens), seed.

  Returns:
    function (ids of a text without marks, id of its document) -> (input,
    target), int32 arrays without marks; None if the document is not drawn or
    has fewer than two tokens.
  """
  marks = len(vocabulary_lib.surround(vocabulary, []))
  ids_of_spans = sentinels(vocabulary)
  share, seed, *numbers = (
      settings[key] for key in ('share', 'seed', 'density', 'mean_length')
  )
  numbers.append(len(ids_of_spans))
  max_length = longest(
      data.max_input_length - marks, data.max_target_length - marks, *numbers
  )

  if not max_length:
    raise InputError(
        f'config.data.max_input_length={data.max_input_length}, '
        f'max_target_length={data.max_target_length}: too short for span '
        'corruption; expected room for one token and one sentinel in each'
    )

  def make(ids, name):
    length = min(len(ids), max_length)
    if length < 2 or not is_drawn(name, share, seed):
      return None
    generator = np.random.default_rng(list(_hash(name, seed)[8:]))
    start = generator.integers(len(ids) - length + 1)
    part = np.asarray(ids, np.int32)[start : start + length]
    return cut_out(part, draw(length, *numbers, generator), ids_of_spans)

  return make
