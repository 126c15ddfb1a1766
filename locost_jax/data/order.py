"""PURE: the order of training examples, a function of seed and position.

The training stream is infinite: epoch after epoch, every epoch a new order. An
epoch lists the shards of the corpus in a seeded order, cuts that list into
windows of `window_shards` shards, and permutes the records of every window. A
corpus that is tokenised as a whole is one shard, hence one window, and its
epoch is a plain permutation of all records.

Batches of similar lengths waste little padding. So `GROUP` batches are made at
once: `GROUP * batch_size` consecutive records of the stream are sorted by the
lengths they will be padded to, cut into batches, and the batches are permuted.
Batch s is thus a function of (seed, s) alone: a run that stopped after step s
continues with batch s, and the position in the data is the step.

With a budget of tokens instead of a number of rows, a group gives as many
batches as it takes; batch s is found by counting those of the groups before, of
which only lengths are read.

Random bits come raw from Philox, whose stream NumPy keeps for ever (NEP 19; the
methods of `Generator` may change from release to release), and are sorted.
"""

import itertools

import numpy as np

from locost_jax.errors import InputError

# Batches whose records are sorted together. The padding that is left falls
# like 1 / GROUP; records that lie further apart than GROUP batches never meet.
GROUP = 16

# What a permutation is for; keeps the uses independent of each other.
SHARDS, RECORDS, BATCHES = 0, 1, 2


def permutation(n, *key):
  """A permutation of range(n), a function of the integers in `key` alone.

  Args:
    n: how many.
    *key: integers, for example (seed, RECORDS, epoch, window).

  Returns:
    int64 [n].
  """
  words = [k % 2**64 for k in key]
  bits = np.random.Philox(np.random.SeedSequence(words)).random_raw(n)
  return np.argsort(bits, kind='stable')


def window_shards(shards, size, seed, epoch, window):
  """The shards of one window.

  Args:
    shards: how many shards the corpus has.
    size: shards in a window; the last window of an epoch may have fewer.
    seed: of the order.
    epoch: counts from 0.
    window: counts from 0 within the epoch.

  Returns:
    A list of shard numbers; empty past the last window of the epoch.
  """
  order = permutation(shards, seed, SHARDS, epoch)
  return order[window * size : (window + 1) * size].tolist()


def stream(sizes, windows, total, seed, start=0):
  """The infinite stream of records from position `start` on.

  Args:
    sizes: function (epoch, index) -> list of int, the number of records of
      every part (shard) of that window; may block until the shards exist.
    windows: windows in an epoch.
    total: function () -> records of an epoch, or None while that is unknown;
      known, whole epochs are stepped over at once.
    seed: of the order.
    start: position in the stream, counts from 0.

  Yields:
    (epoch, index, part int64 [n], row int64 [n]): the rest of one window, in
    order: record row[i] of the window's part part[i].

  Raises:
    InputError: an epoch has no records at all.
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


def group_batches(lengths, batch_size, seed, group):
  """Cuts a group of records into batches of similar lengths.

  Args:
    lengths: int [GROUP * batch_size, k], what each record is padded to.
    batch_size: records in a batch.
    seed: of the order.
    group: the group's number, counts from 0.

  Returns:
    int64 [GROUP, batch_size]: the records of each batch, as indices into
    `lengths`.
  """
  # lexsort's last key is the first to decide; equal lengths keep their order.
  by_length = np.lexsort(np.asarray(lengths).T[::-1])
  batches = by_length.reshape(-1, batch_size)
  return batches[permutation(len(batches), seed, BATCHES, group)]


def rows_in_budget(tokens, length):
  """Rows of a batch whose longest has this length: a power of two, or 0."""
  rows = tokens // length
  return 1 << rows.bit_length() - 1 if rows else 0


def budget_batches(padded, tokens):
  """Cuts a group of records into batches of about as many input tokens.

  From the longest record down: a batch has as many rows as the budget holds of
  its longest one, rounded down to a power of two, which devices divide; so
  there is one number of rows for each length.

  Args:
    padded: int [n, k], what each record is padded to; all but the last column
      are of its input, which has their product of tokens.
    tokens: of the inputs of a batch, padding included.

  Returns:
    A list of (rows int64 [at most size], size): records as indices into
    `padded`, and the number of rows that the batch is filled up to.

  Raises:
    InputError: a record is longer than the budget.
  """
  sizes = padded[:, :-1].prod(axis=1)
  left = np.lexsort([*padded.T[::-1], sizes])
  batches = []
  while len(left):
    size = rows_in_budget(tokens, int(sizes[left[-1]]))
    if not size:
      raise InputError(
          f'config.train.batch_tokens={tokens} holds no document '
          f'of {sizes[left[-1]]} tokens, padding included'
      )
    batches.append((left[-size:], size))
    left = left[:-size]
  return batches
