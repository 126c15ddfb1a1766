"""Batches of documents of similar length, padded to one of few lengths."""

import numpy as np

from locost_jax import models
from locost_jax.data import buckets

# Tokens from where on `bucket_length` goes in smaller steps.
LONG = 1 << 17


def bucket_length(length):
  """Returns what inputs of this length are padded to: 2^k or 1.5 * 2^k.

  Above LONG to eighths of 2^k: there reading takes far longer than compiling.
  """
  if length > LONG:
    eighth = 1 << ((length - 1).bit_length() - 4)
    return -(-length // eighth) * eighth
  lengths = buckets.bucket_lengths(max(2 * length, buckets.SMALLEST))
  return int(lengths[np.searchsorted(lengths, length)])


def padded_length(config, length, least=1):
  """Returns what inputs of this length are padded to.

  Args:
    config: the model's. The release's convolution, whose results depend on the
      length, takes no padding.
    length: tokens, not more than the model has positions.
    least: shorter inputs are padded like inputs of this length.
  """
  if getattr(config, 'convolution', 'exact') != 'exact':
    return length
  most = models.max_positions(config)
  padded = bucket_length(max(length, least))
  return padded if most is None else min(padded, most)


def power_of_two_in(number):
  """Returns the largest power of two that is not above `number`."""
  return 2 ** (int(number).bit_length() - 1)


def truncate(ids, most):
  """Returns at most `most` of a document's ids, the end mark among them.

  Args:
    ids: list, the end mark last.
    most: None: all of them.
  """
  if most is None or len(ids) <= most:
    return ids
  return ids[: most - 1] + ids[-1:]


def make_batches(documents, length_of, rows):
  """Groups documents of one length; the first documents are read first.

  Args:
    documents: anything that stands for them, in the order in which their
      summaries are to come.
    length_of: document -> the length it is padded to.
    rows: length -> most documents in a batch; 0 counts as 1.

  Returns:
    List of (length, list of documents).
  """
  groups, batches = {}, []
  for document in documents:
    length = length_of(document)
    if length not in groups or len(groups[length]) == max(rows(length), 1):
      groups[length] = []
      batches.append((length, groups[length]))
    groups[length].append(document)
  return batches
