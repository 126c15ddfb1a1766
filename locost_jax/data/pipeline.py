"""Cached records -> padded batches, in an order that position determines.

`train_batches` is infinite, and its batch s is a function of (config.data.seed,
config.train.batch_size, the records, s) alone (`data/order.py` says how): a run
continued at step s starts with batch s. Neither the number of hosts nor
prefetching changes a batch; a host gets its contiguous part of every global
batch. `eval_batches` passes once over the first records of a split; a last,
partial batch is filled up with rows of padding and zero weights, so nothing is
dropped or counted twice, and every host sees the same number of batches.

data/batch_arrays.py lists the arrays of a batch, data/buckets.py the lengths
they are padded to.

NumPy and the record reader only: no TensorFlow, no JAX.
"""

import functools
import queue
import threading
from typing import NamedTuple

import numpy as np

from locost_jax.data import batch_arrays
from locost_jax.data import buckets
from locost_jax.data import order
from locost_jax.data.pages import CHUNKS
from locost_jax.data.pages import LOCALITIES
from locost_jax.errors import InputError

PREFETCH = 4  # batches made ahead


class Batch(NamedTuple):
  """Which records stand where."""

  rows: list  # records' numbers
  size: int  # rows, empty ones included
  shape: tuple  # of the inputs of a row, and behind it length of its targets


def check(config, parts):
  """Raises an InputError for batches that cannot be.

  Args:
    config: the run's config: data (pages, lengths), train
      (batch_size, batch_tokens).
    parts: a batch is split into, over devices and one after the other.
  """
  data, tokens = config.data, config.train.batch_tokens
  longest = (
      data.page_length * data.num_pages
      if (data.pages in LOCALITIES)
      else data.max_input_length
  )
  if (
      tokens
      and order.rows_in_budget(max(tokens, 0), longest) % parts
      or (tokens and tokens < longest)
  ):
    raise InputError(
        f'config.train.batch_tokens={tokens} must be 0 or hold a document of '
        f'{longest} tokens for each of its {parts} parts (devices x '
        'train.accumulate), a power of two'
    )


def train_batches(cache, vocabulary, config, start_step=0, host=0, hosts=1):
  """Training batches from step `start_step` on, for ever.

  Args:
    cache: a Cache or a StreamedCache (data/cache.py).
    vocabulary: whose tokens its records hold.
    config: the run's config: data (seed, lengths, buckets), train (batch_size,
      batch_tokens).
    start_step: steps already taken; batch s of a run from 0 comes first here
      with start_step = s.
    host: this host's number.
    hosts: how many hosts share each global batch.

  Returns:
    An iterator of batches (see data/batch_arrays.py) of batch_size / hosts
    rows. Made ahead in a thread, which stops when the iterator is closed or
    forgotten and whose exceptions are raised here.

  Raises:
    InputError: hosts do not divide the batch size, or as `check` raises; from
      the iterator, when the training corpus has no records.
  """
  _host_rows(config.train.batch_size, 'train.batch_size', hosts)
  check(config, hosts)
  return _prefetch(_train(cache, vocabulary, config, start_step, host, hosts))


def _train(cache, vocabulary, config, start_step, host, hosts):
  batch_size, seed = config.train.batch_size, config.data.seed
  plan = functools.partial(_plan, config, buckets.column_buckets(config))
  size = order.GROUP * batch_size
  group, skipped = 0, start_step
  if not config.train.batch_tokens:
    group, skipped = divmod(start_step, order.GROUP)
  for records, shapes in _groups(cache, seed, group * size, size):
    batches = plan(shapes, group)
    for batch in batches[skipped:]:
      rows, count = _host_part(batch, host, hosts)
      found = _read([records[i] for i in rows])
      yield batch_arrays.make_batch(
          found, count, batch.shape, vocabulary, config.data.targets_start
      )
    group, skipped = group + 1, max(skipped - len(batches), 0)


def _plan(config, pads, shapes, group):
  """The batches of a group, as a list of Batch."""
  padded, seed = buckets.pad_shapes(shapes, pads), config.data.seed
  if config.train.batch_tokens:
    cut = order.budget_batches(padded, config.train.batch_tokens)
  else:
    cut = [
        (batch, config.train.batch_size)
        for batch in order.group_batches(
            padded, config.train.batch_size, seed, group
        )
    ]
  batches = [
      Batch(rows.tolist(), size, _shape_of(padded[rows], config))
      for rows, size in cut
  ]
  if not config.train.batch_tokens:
    return batches
  return [
      batches[i]
      for i in order.permutation(len(batches), seed, order.BATCHES, group)
  ]


def _shape_of(padded, config):
  """The shape of a batch of rows [n, k].

  Chunks are filled up to a number that `sequence` divides, which changes
  nothing: a chunk without tokens takes no part.
  """
  shape = padded.max(axis=0).tolist()
  if config.data.pages in CHUNKS:
    shape[0] += -shape[0] % config.mesh.sequence
  return tuple(shape)


def _groups(cache, seed, start, size):
  """Yields ([(cache, row)] * size, shapes [size, k]) along the stream."""
  records, shapes = [], []
  stream = order.stream(cache.sizes, cache.windows, cache.total, seed, start)
  for epoch, index, part, row in stream:
    caches = cache.window(epoch, index)
    while len(row):
      take = min(len(row), size - len(records))
      for p, r in zip(part[:take].tolist(), row[:take].tolist()):
        records.append((caches[p], r))
        shapes.append(caches[p].shapes[r])
      part, row = part[take:], row[take:]
      if len(records) == size:
        yield records, np.stack(shapes)
        records, shapes = [], []


def eval_batches(cache, vocabulary, config, host=0, hosts=1):
  """One pass over the first `config.eval.examples` records (0: all).

  Records come sorted by length, which wastes the least padding.

  Args:
    cache: a Cache.
    vocabulary: whose tokens its records hold.
    config: the run's config: data (lengths, buckets), eval (examples,
      batch_size).
    host: this host's number.
    hosts: how many hosts share each global batch.

  Returns:
    An iterator of (batch, info): a batch (see data/batch_arrays.py) of
    eval.batch_size / hosts rows, and a dict of lists, id and reference, for its
    real rows, which come first; the rows after them are padding with zero
    weights. A reference is a list where several texts count as right.

  Raises:
    InputError: hosts do not divide the batch size.
  """
  _host_rows(config.eval.batch_size, 'eval.batch_size', hosts)
  return _prefetch(_evaluate(cache, vocabulary, config, host, hosts))


def _evaluate(cache, vocabulary, config, host, hosts):
  batch_size = config.eval.batch_size
  padded = buckets.pad_shapes(
      cache.shapes[: config.eval.examples or None],
      buckets.column_buckets(config),
  )
  by_length = np.lexsort(padded.T[::-1])
  for start in range(0, len(padded), batch_size):
    rows = by_length[start : start + batch_size]
    batch = Batch(
        rows.tolist(),
        batch_size,
        _shape_of(padded[rows], config),
    )
    places, size = _host_part(batch, host, hosts)
    found = _read([(cache, i) for i in places])
    info = dict(
        id=[row['id'] for row in found],
        reference=[row.get('references') or row['reference'] for row in found],
    )
    yield batch_arrays.make_batch(
        found, size, batch.shape, vocabulary, config.data.targets_start
    ), info


def _host_rows(batch_size, name, hosts):
  """Rows of a batch that each host has."""
  if batch_size < 1 or batch_size % hosts:
    raise InputError(
        f'{name}={batch_size} must be positive and divisible by the number of '
        f'hosts, {hosts}'
    )
  return batch_size // hosts


def _host_part(batch, host, hosts):
  """(rows, how many with empty ones) of a batch that this host has."""
  size = batch.size // hosts
  return batch.rows[host * size : (host + 1) * size], size


def _read(places):
  """[(cache, row)] -> their records, read with one call per cache."""
  rows = [None] * len(places)
  caches = {id(cache): cache for cache, _ in places}
  for key, cache in caches.items():
    where = [i for i, (c, _) in enumerate(places) if id(c) == key]
    for i, row in zip(where, cache.read([places[i][1] for i in where])):
      rows[i] = row
  return rows


def _prefetch(iterator):
  """The same items, made ahead in a thread that ends with this generator."""
  ready = queue.Queue(PREFETCH)
  stopped = threading.Event()

  def put(item):
    while not stopped.is_set():
      try:
        ready.put(item, timeout=0.1)
        return
      except queue.Full:
        pass

  def work():
    try:
      for item in iterator:
        put((item, None))
        if stopped.is_set():
          return
      put((None, StopIteration()))
    except BaseException as error:  # whatever it is, the reader shall see it
      put((None, error))

  thread = threading.Thread(target=work, name='prefetch', daemon=True)
  thread.start()
  try:
    while True:
      item, error = ready.get()
      if isinstance(error, StopIteration):
        return
      if error is not None:
        raise error
      yield item
  finally:
    stopped.set()
    thread.join(5)  # not for ever: it may hang in reading
