"""Makes padded batches from cached records, in a reproducible order.

Both iterators are prefetched. `train_batches` is infinite. Batch s depends only
on config.data.seed, config.train.batch_size, the records and s (see
`data/order.py`), so a run resumed at step s starts with batch s. The number of
hosts and prefetching do not change a batch; each host gets a contiguous part of
every global batch.

`eval_batches` passes once over the first records of a split. The last batch is
filled up with padding rows of zero weight, so no record is dropped or counted
twice, and every host sees the same number of batches.

data/buckets.py lists the arrays of a batch and the lengths they are padded to.
This module needs neither TensorFlow nor JAX.
"""

import contextlib
import functools
import queue
import threading

import numpy as np

from locost_jax.data import buckets
from locost_jax.data import order
from locost_jax.data.pages import CHUNKS

PREFETCH = 4  # batches


def _prefetched(generate):
  """Decorates a generator: a thread prefetches its items.

  Closing the iterator, or losing the last reference to it, ends the thread.
  """

  @functools.wraps(generate)
  def prefetch(*args, **options):
    ready, stopped = queue.Queue(PREFETCH), threading.Event()

    def put(item):
      while not stopped.is_set():
        with contextlib.suppress(queue.Full):
          return ready.put(item, timeout=0.1)

    def work():
      try:
        for item in generate(*args, **options):
          put((item, None))
          if stopped.is_set():
            return
        put((None, StopIteration()))
      except BaseException as error:  # raised again in the reader
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
      thread.join(5)  # a blocked read must not block here

  return prefetch


@_prefetched
def train_batches(cache, vocabulary, config, start_step=0, host=0, hosts=1):
  """Yields training batches from a step on, for ever.

  They have batch_size / hosts rows (see data/buckets.py).

  Args:
    cache: a Cache or a StreamedCache (data/cache.py).
    start_step: steps already taken; the first batch is number start_step.
    hosts: how many hosts share each global batch; they divide its rows.

  Raises:
    InputError: the training corpus has no records.
  """
  batch_size, seed = config.train.batch_size, config.data.seed
  pads = buckets.column_buckets(config)
  size, count = order.GROUP * batch_size, batch_size // hosts
  group, skipped = divmod(start_step, order.GROUP)
  for records, shapes in _groups(cache, seed, group * size, size):
    padded = buckets.pad_shapes(shapes, pads)
    cut = order.by_length(padded).reshape(-1, batch_size)
    places = order.permutation(len(cut), seed, order.BATCHES, group)
    for rows in cut[places][skipped:]:
      own = rows[host * count : (host + 1) * count]
      found = _read([records[i] for i in own])
      shape = _shape_of(padded[rows], config)
      yield buckets.make_batch(
          found, count, shape, vocabulary, config.data.targets_start
      )
    group, skipped = group + 1, 0


def _shape_of(padded, config):
  """Returns (*shape of an input, length of targets) of a batch of rows [n, k].

  The number of chunks is rounded up to a multiple of config.mesh.sequence. The
  added chunks are empty and masked.
  """
  shape = padded.max(axis=0).tolist()
  if config.data.pages in CHUNKS:
    shape[0] += -shape[0] % config.mesh.sequence
  return tuple(shape)


def _groups(cache, seed, start, size):
  """Yields (list of `size` (cache, row), shapes [size, k]) from the stream."""
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


@_prefetched
def eval_batches(cache, vocabulary, config, host=0, hosts=1):
  """Yields (batch, info) of the first `config.eval.examples` records (0: all).

  A batch (see data/buckets.py) has eval.batch_size / hosts rows; info is a dict
  with the lists id and reference of the real rows, which come first. A
  reference is a list if the document has several references.
  """
  batch_size, count = config.eval.batch_size, config.eval.batch_size // hosts
  padded = buckets.pad_shapes(
      cache.shapes[: config.eval.examples or None],
      buckets.column_buckets(config),
  )
  by_length = order.by_length(padded)
  for start in range(0, len(padded), batch_size):
    rows = by_length[start : start + batch_size]
    found = cache.read(rows[host * count : (host + 1) * count])
    info = dict(
        id=[row['id'] for row in found],
        reference=[row.get('references') or row['reference'] for row in found],
    )
    shape = _shape_of(padded[rows], config)
    yield buckets.make_batch(
        found, count, shape, vocabulary, config.data.targets_start
    ), info


def _read(places):
  """Reads the records of [(cache, row)], with one call per cache."""
  rows = [None] * len(places)
  caches = {id(cache): cache for cache, _ in places}
  for key, cache in caches.items():
    where = [i for i, (c, _) in enumerate(places) if id(c) == key]
    for i, row in zip(where, cache.read([places[i][1] for i in where])):
      rows[i] = row
  return rows
