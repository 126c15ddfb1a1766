"""Span corruption: T5's objective, as a part of pretraining.

Of the tokens of a text a share is cut out in spans. The input has a sentinel in
the place of each; the target has every sentinel with the span behind it (Raffel
et al. 2020, section 3.1.4):

  text      Thank you for inviting me to your party last week
  input     Thank you <0> me to your party <1> week
  target    <0> for inviting <1> last

Of a text of n tokens round(density n) are cut out, in round(that / mean_length)
spans; the lengths of the spans, and of what stands between them, are drawn with
equal probability from all ways to divide their totals. The first token stays.
There are at most as many spans as sentinels: spans of a longer text are longer.

One example is made of a document: of a run of tokens at a random place, as long
as the maximum lengths of input and target allow, so that neither is cut.
Everything is drawn from a hash of the seed and the document's id.
"""

import hashlib

import numpy as np

from locost_jax.errors import InputError
from locost_jax.values import ranges
from locost_jax.vocabularies import vocabulary as vocabulary_lib

DEFAULTS = dict(share=0.5, density=0.15, mean_length=3.0, seed=0)


def settings(given):
  """Returns all settings of some, checked.

  Args:
    given: config.span_corruption as a dict: share, of the documents; density,
      of a text's tokens; mean_length, of a span, in tokens; seed.

  Raises:
    InputError: an unknown key, or a number out of its range.
  """
  unknown = sorted(set(given) - set(DEFAULTS))
  if unknown:
    raise InputError(
        f'config.span_corruption has unknown keys {", ".join(unknown)}; '
        f'expected {", ".join(DEFAULTS)}'
    )
  ranges.check_section('span_corruption', given)
  return {**DEFAULTS, **given}


def sentinels(vocabulary):
  """Returns the ids of '<extra_id_0>', '<extra_id_1>', ...: a list.

  Raises:
    InputError: it has none, or they are not its last ids, as T5's are.
  """
  ids = range(vocabulary.size)[::-1][: vocabulary.extra_ids]
  first = vocabulary.decode(ids[:1])
  if not ids or first not in ('', '<extra_id_0>'):  # '': they have no text
    raise InputError(
        f'config.span_corruption: the last token of the vocabulary is '
        f'{first!r}; expected <extra_id_0>, as T5 has it: sentinels stand for '
        'the spans'
    )
  return list(ids)


def is_drawn(name, share, seed):
  """Whether the document of this id is corrupted; of the others, gap sentences.

  Args:
    name: the id.
    share: of the documents, from 0 to 1.
    seed: of the draw.
  """
  return int.from_bytes(_hash(name, seed)[:8], 'big') < share * 2**64


def _hash(name, seed):
  key = b'%d' % seed
  return hashlib.blake2b(
      name.encode('utf-8', 'replace'), key=key, digest_size=32
  ).digest()


def counts(length, density, mean_length, most):
  """Returns (tokens cut out, spans) of a text.

  Args:
    length: tokens of the text, at least 2.
    density: share that is cut out.
    mean_length: of a span.
    most: spans at most.
  """
  noise = min(max(round(length * density), 1), length - 1)
  spans = min(max(round(noise / mean_length), 1), most, length - noise)
  return noise, spans


def longest(max_input, max_target, density, mean_length, most):
  """Returns the most tokens of a text whose input and target both fit.

  Args:
    max_input, max_target: most tokens, without marks.
    density, mean_length, most: see `counts`.

  Returns:
    At least 2, or 0: none fits.
  """

  def fits(length):
    noise, spans = counts(length, density, mean_length, most)
    return length - noise + spans <= max_input and noise + spans <= max_target

  low, high = 1, 2 * (max_input + max_target)
  while low < high:  # the most that fits, of numbers that grow together
    middle = (low + high + 1) // 2
    low, high = (middle, high) if fits(middle) else (low, middle - 1)
  return low if low > 1 else 0


def draw(length, density, mean_length, most, generator):
  """Draws which tokens are cut out: bool [length].

  Args:
    length, density, mean_length, most: see `counts`.
    generator: a numpy Generator.
  """
  noise, spans = counts(length, density, mean_length, most)
  lengths = np.stack(
      [_divide(n, spans, generator) for n in (length - noise, noise)], 1
  )
  return np.repeat(np.arange(2 * spans) % 2 == 1, lengths.ravel())


def _divide(total, parts, generator):
  """Draws positive whole numbers with this total: int [parts]."""
  cuts = 1 + np.sort(generator.choice(total - 1, parts - 1, replace=False))
  return np.diff(cuts, prepend=0, append=total)


def cut_out(ids, is_noise, sentinels):
  """Makes input and target of a text.

  Args:
    ids: int [n].
    is_noise: bool [n], what is cut out.
    sentinels: ids, one for each span at least.

  Returns:
    Two int arrays, see the top of this module.
  """
  begins = is_noise & ~np.append(False, is_noise[:-1])
  marks = np.asarray(sentinels, np.int32)[np.cumsum(begins) - 1]
  inputs = np.where(begins, marks, ids)[begins | ~is_noise]
  pairs = np.stack([marks, ids], 1)
  return inputs, pairs[np.stack([begins, is_noise], 1)]


def maker(vocabulary, data, settings):
  """Returns the function that makes the examples of documents.

  Args:
    vocabulary: one of vocabularies/vocabulary.py, with sentinels.
    data: config.data, for its maximum lengths.
    settings: of `settings`.

  Returns:
    (ids of a text without marks, its id) -> (input, target), int32 arrays
    without marks. None where it is not drawn, or has less than two tokens.

  Raises:
    InputError: no sentinels, or maximum lengths that no example fits.
  """
  marks = len(vocabulary_lib.surround(vocabulary, []))
  ids_of_spans = sentinels(vocabulary)
  share, seed, *numbers = (
      settings[key] for key in ('share', 'seed', 'density', 'mean_length')
  )
  numbers.append(len(ids_of_spans))
  most = longest(
      data.max_input_length - marks, data.max_target_length - marks, *numbers
  )

  if not most:
    raise InputError(
        f'config.data.max_input_length={data.max_input_length}, '
        f'max_target_length={data.max_target_length}: too short for span '
        'corruption; expected room for one token and one sentinel in each'
    )

  def make(ids, name):
    length = min(len(ids), most)
    if length < 2 or not is_drawn(name, share, seed):
      return None
    generator = np.random.default_rng(list(_hash(name, seed)[8:]))
    start = generator.integers(len(ids) - length + 1)
    part = np.asarray(ids, np.int32)[start : start + length]
    return cut_out(part, draw(length, *numbers, generator), ids_of_spans)

  return make
