"""Batches of documents of similar shape, padded to one of few lengths.

The shape of a document is (L,), or (P, L) if the model reads pages: P pages,
each padded to L tokens.
"""

import numpy as np

from locost_jax.data import buckets

# Above this number of tokens, `bucket_length` takes smaller steps.
LONG = 1 << 17


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
  """Returns the padded length of inputs of this length.

  Args:
    config: the model's. With the release's convolution, whose results depend on
      the length, inputs are not padded.
    length: tokens, not more than the model has positions.
    least: shorter inputs are padded like inputs of this length.
  """
  if config.convolution != 'exact':
    return length
  most = config.max_positions
  padded = bucket_length(max(length, least))
  return padded if most is None else min(padded, most)


def padded_shape(config, pages, paged, least=1):
  """Returns the shape that a document is padded to.

  Args:
    config, least: see `padded_length`.
    pages: lists of ids, of `reading.Read`.
    paged: whether the model reads pages.
  """
  length = padded_length(config, max(map(len, pages)), least)
  return (len(pages), length) if paged else (length,)


def pad(documents, shape, pad_id):
  """Pads documents of one shape.

  Args:
    documents: for each document its `Read.pages`, lists of ids.
    shape: of each document, from `padded_shape`.
    pad_id: the vocabulary's.

  Returns:
    (int32 ids [B, L] or [B, P, L], their mask).
  """
  inputs = np.full((len(documents), *shape), pad_id, np.int32)
  mask = np.zeros(inputs.shape, bool)
  for row, keep, pages in zip(inputs, mask, documents):
    for p, ids in enumerate(pages):
      row.reshape(-1, shape[-1])[p, : len(ids)] = ids
      keep.reshape(-1, shape[-1])[p, : len(ids)] = True
  return inputs, mask


def power_of_two_in(number):
  """Returns the largest power of two up to `number`."""
  return 2 ** (int(number).bit_length() - 1)


def truncate(ids, most):
  """Returns at most `most` of a document's ids, ending with eos.

  Args:
    ids: list, with eos last.
    most: maximum number of ids; None: no limit.
  """
  if most is None or len(ids) <= most:
    return ids
  return ids[: most - 1] + ids[-1:]


def make_batches(documents, shape_of, rows):
  """Groups documents of one shape; the first documents are read first.

  Args:
    documents: list of any type, in the desired order of the summaries.
    shape_of: document -> the shape it is padded to.
    rows: shape -> maximum documents in a batch; 0 counts as 1.

  Returns:
    List of (shape, list of documents).
  """
  groups, batches = {}, []
  for document in documents:
    shape = shape_of(document)
    if shape not in groups or len(groups[shape]) == max(rows(shape), 1):
      groups[shape] = []
      batches.append((shape, groups[shape]))
    groups[shape].append(document)
  return batches
