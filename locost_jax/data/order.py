"""PURE: the order of training examples as a function of seed and position.

The training stream is infinite, and every epoch has another order. An epoch
lists the shards of the corpus in a seeded order, cuts the list into windows of
`window_shards` shards, and permutes the records of each window. A corpus that
is tokenised as a whole has one shard and one window, so its epoch is a
permutation of all records.

Batches of similar lengths need little padding. `GROUP` batches are made at
once: `GROUP * batch_size` consecutive records of the stream are sorted by the
lengths they are padded to and cut into batches, and the batches are permuted.
So batch s depends only on (seed, s), and a run that stopped after step s
resumes with batch s.

A permutation sorts raw bits of Philox, whose stream NumPy guarantees (NEP 19);
the methods of `Generator` may change between releases.
"""

import itertools

import numpy as np

from locost_jax.errors import InputError

# Batches whose records are sorted together. The remaining padding falls like
# 1 / GROUP; records more than GROUP batches apart are never in one batch.
GROUP = 16

# Purposes of a permutation; they make its uses independent of each other.
SHARDS, RECORDS, BATCHES = 0, 1, 2


def permutation(n, *key):
  """Returns a permutation of range(n), int64, by integers such as a seed."""
  words = [k % 2**64 for k in key]
  bits = np.random.Philox(np.random.SeedSequence(words)).random_raw(n)
  return np.argsort(bits, kind='stable')


def window_shards(shards, size, seed, epoch, window):
  """Returns the numbers of the shards of one window; [] after the last one.

  Args:
    size: shards in a window; the last window of an epoch may have fewer.
  """
  order = permutation(shards, seed, SHARDS, epoch)
  return order[window * size : (window + 1) * size].tolist()


def stream(sizes, windows, total, seed, start=0):
  """Yields the infinite stream of records from position `start` on.

  Args:
    sizes: function (epoch, index) -> list of int, the number of records of
      each part (shard) of a window; may block until the shards exist.
    total: function () -> number of records of an epoch, None if unknown. If
      known, whole epochs are skipped without calling `sizes`.

  Yields:
    (epoch, index, part int64 [n], row int64 [n]) for each window: its remaining
    records in order, the i-th being record row[i] of its part part[i].

  Raises:
    InputError: an epoch has no records.
  """
  size = total()
  first = start // size if size else 0
  position = first * (size or 0)
  for epoch in itertools.count(first):
    before = position
    for index in range(windows):
      parts = np.asarray(sizes(epoch, index), np.int64)
      count = int(parts.sum())
      if position + count > start:
        order = permutation(count, seed, RECORDS, epoch, index)
        order = order[max(start - position, 0) :]
        ends = np.cumsum(parts)
        part = np.searchsorted(ends, order, side='right')
        yield epoch, index, part, order - (ends - parts)[part]
      position += count
    if position == before:
      raise InputError('the training corpus gave no records')


def by_length(padded):
  """Returns the numbers of records by their shapes, int [n, k]; stable."""
  return np.lexsort(padded.T[::-1])  # whose last key is the primary one
