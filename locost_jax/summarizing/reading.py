"""How a model reads a document: its tokens, and the shape they are padded to.

Most models read a document as one sequence, others as pages (`page_reading`).
The padded shape of a document is (L,), or (P, L) if the model reads pages: P
pages, each padded to L tokens. Documents of one shape share a batch.
"""

from typing import NamedTuple

import numpy as np

from locost_jax.data import buckets
from locost_jax.summarizing import page_reading
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# Above this number of tokens, `bucket_length` takes smaller steps.
LONG = 1 << 17


class Read(NamedTuple):
  """The tokens of a document."""

  pages: list  # of lists of ids, with bos and eos; one if there are no pages
  tokens: int  # of the whole document, with bos and eos of the read part
  dropped: int = 0  # parts beyond the maximum, which are not read


def read(vocabulary, text, pages=None, max_input_length=None):
  """Returns the tokens of a document as a Read.

  Args:
    pages: None: one sequence.
    max_input_length: maximum tokens of one sequence, or of all chunks; None: no
      limit. Always None with P pages.
  """
  if pages is not None:
    return Read(*page_reading.read(vocabulary, text, pages, max_input_length))
  ids = vocabulary.encode(front_of(text) + text.text)
  ids = vocabulary_lib.surround(vocabulary, ids, True)
  most = max_input_length or len(ids)
  last = 1 + len(vocabulary_lib.after_input(vocabulary))
  kept = ids if len(ids) <= most else ids[: most - last] + ids[-last:]
  return Read([kept], len(ids))


def front_of(text):
  """The characters in front of a document of one sequence, as in training."""
  return text.prefix + (f'{text.query}\n\n' if text.query else '')


def bucket_length(length):
  """Returns the padded length of inputs of this length: 2^k or 1.5 * 2^k.

  Above LONG, a multiple of 2^k / 8: there, reading takes far longer than
  compiling.
  """
  if length > LONG:
    eighth = 1 << ((length - 1).bit_length() - 4)
    return -(-length // eighth) * eighth
  lengths = buckets.bucket_lengths(max(2 * length, buckets.SMALLEST))
  return int(lengths[np.searchsorted(lengths, length)])


def padded_length(config, length, least=1):
  """Returns the padded length of inputs, which are padded to `least` or more.

  Where results depend on the padded length (`ModelConfig.padding_unit`), inputs
  are padded as little as possible.
  """
  most, unit = config.max_positions, config.padding_unit
  padded = bucket_length(max(length, least))
  if unit:
    padded = -(-length // unit) * unit
  return padded if most is None else min(padded, most)


def padded_shape(config, pages, paged, least=1):
  """Returns the shape that `Read.pages` are padded to."""
  length = padded_length(config, max(map(len, pages)), least)
  return (len(pages), length) if paged else (length,)


def pad(read, shape, pad_id):
  """Pads `Read.pages` of B documents: (int32 [B, L] or [B, P, L], mask)."""
  inputs = np.full((len(read), *shape), pad_id, np.int32)
  mask = np.zeros(inputs.shape, bool)
  for row, keep, pages in zip(inputs, mask, read):
    for p, ids in enumerate(pages):
      row.reshape(-1, shape[-1])[p, : len(ids)] = ids
      keep.reshape(-1, shape[-1])[p, : len(ids)] = True
  return inputs, mask


def power_of_two_in(number):
  """Returns the largest power of two up to `number`."""
  return 2 ** (int(number).bit_length() - 1)


def make_batches(items, shape_of, rows):
  """Groups documents of one shape; the first documents are read first.

  Args:
    items: documents of any type, in the desired order of the summaries.
    shape_of: document -> the shape it is padded to.
    rows: shape -> maximum documents in a batch; 0 counts as 1.

  Returns:
    List of (shape, list of documents).
  """
  groups, batches = {}, []
  for item in items:
    shape = shape_of(item)
    if shape not in groups or len(groups[shape]) == max(rows(shape), 1):
      groups[shape] = []
      batches.append((shape, groups[shape]))
    groups[shape].append(item)
  return batches
