"""Cached records -> padded batches, in an order that position determines.

`train_batches` is infinite, and its batch s is a function of (config.data.seed,
config.train.batch_size, the records, s) alone (`data/order.py` says how): a run
continued at step s starts with batch s. Neither the number of hosts nor
prefetching changes a batch; a host gets its contiguous part of every global
batch. `eval_batches` passes once over the first records of a split; a last,
partial batch is filled up with rows of padding and zero weights, so nothing is
dropped or counted twice, and every host sees the same number of batches.

A batch is a dict of arrays under SeqIO's names, B rows, L and T the smallest
buckets that hold the longest row of the GLOBAL batch, so that all hosts agree:

  encoder_input_tokens   int32 [B, L]    inputs, padded with 0
  decoder_target_tokens  int32 [B, T]    targets y, padded with 0
  decoder_input_tokens   int32 [B, T]    0, y_0, ..., y_{T-2}
  decoder_loss_weights   float32 [B, T]  1 where a target stands, else 0

NumPy and the record reader only: no TensorFlow, no JAX.
"""

import queue
import threading

import numpy as np

from locost_jax.data import order
from locost_jax.errors import InputError

PREFETCH = 4  # batches made ahead
SMALLEST_BUCKET = 16


def buckets(maximum, given=()):
  """The lengths that rows are padded to, ascending; the last is `maximum`.

  Args:
    maximum: tokens of the longest row.
    given: own lengths; (): powers of two and 1.5 times them, from 16.

  Returns:
    int64 [n].

  Raises:
    InputError: a given length is not positive.
  """
  given = tuple(given)
  if any(length < 1 for length in given):
    raise InputError(f'buckets={given}: lengths must be positive')
  if not given:
    powers = 2 ** np.arange(4, 63)
    given = np.stack([powers, powers // 2 * 3], axis=1).ravel().tolist()
  return np.array(sorted({n for n in given if n < maximum} | {maximum}))


def train_batches(cache, config, start_step=0, host=0, hosts=1):
  """Training batches from step `start_step` on, for ever.

  Args:
    cache: a Cache or a StreamedCache (data/cache.py).
    config: the run's config: data (seed, lengths, buckets), train.batch_size.
    start_step: steps already taken; batch s of a run from 0 comes first here
      with start_step = s.
    host: this host's number.
    hosts: how many hosts share each global batch.

  Returns:
    An iterator of batches (see above) of batch_size / hosts rows. Made ahead
    in a thread, which stops when the iterator is closed or forgotten and whose
    exceptions are raised here.

  Raises:
    InputError: hosts do not divide the batch size; from the iterator, when
      the training corpus has no records.
  """
  part = _host_part(config.train.batch_size, 'train.batch_size', host, hosts)
  pads = _bucket_pair(config)
  return _prefetch(_train(cache, config, pads, start_step, part))


def _train(cache, config, pads, start_step, part):
  batch_size, seed = config.train.batch_size, config.data.seed
  size = order.GROUP * batch_size
  group, skipped = divmod(start_step, order.GROUP)
  for records, lengths in _groups(cache, seed, group * size, size):
    padded = _padded(lengths, pads)
    batches = order.group_batches(padded, batch_size, seed, group)
    for batch in batches[skipped:]:
      inputs, targets = padded[batch].max(axis=0)
      rows = _read([records[i] for i in batch[part]])
      yield _make_batch(rows, len(rows), inputs, targets)
    group, skipped = group + 1, 0


def _groups(cache, seed, start, size):
  """Yields ([(cache, row)] * size, lengths [size, 2]) along the stream."""
  records, lengths = [], []
  stream = order.stream(cache.sizes, cache.windows, cache.total, seed, start)
  for epoch, index, part, row in stream:
    caches = cache.window(epoch, index)
    while len(row):
      take = min(len(row), size - len(records))
      for p, r in zip(part[:take].tolist(), row[:take].tolist()):
        records.append((caches[p], r))
        lengths.append(caches[p].lengths[r])
      part, row = part[take:], row[take:]
      if len(records) == size:
        yield records, np.stack(lengths)
        records, lengths = [], []


def eval_batches(cache, config, host=0, hosts=1):
  """One pass over the first `config.eval.examples` records (0: all).

  Records come sorted by length, which wastes the least padding.

  Args:
    cache: a Cache.
    config: the run's config: data (lengths, buckets), eval (examples,
      batch_size).
    host: this host's number.
    hosts: how many hosts share each global batch.

  Returns:
    An iterator of (batch, info): a batch (see above) of eval.batch_size / hosts
    rows, and a dict of lists, id and reference, for its real rows, which come
    first; the rows after them are padding with zero weights.

  Raises:
    InputError: hosts do not divide the batch size.
  """
  part = _host_part(config.eval.batch_size, 'eval.batch_size', host, hosts)
  return _prefetch(_evaluate(cache, config, _bucket_pair(config), part))


def _evaluate(cache, config, pads, part):
  batch_size = config.eval.batch_size
  padded = _padded(cache.lengths[:config.eval.examples or None], pads)
  by_length = np.lexsort(padded.T[::-1])
  for start in range(0, len(padded), batch_size):
    batch = by_length[start:start + batch_size]
    inputs, targets = padded[batch].max(axis=0)
    rows = _read([(cache, int(i)) for i in batch[part]])
    info = {name: [row[name] for row in rows] for name in ('id', 'reference')}
    yield _make_batch(rows, part.stop - part.start, inputs, targets), info


def _host_part(batch_size, name, host, hosts):
  if batch_size < 1 or batch_size % hosts:
    raise InputError(
        f'{name}={batch_size} must be positive and divisible by the number of '
        f'hosts, {hosts}')
  rows = batch_size // hosts
  return slice(host * rows, (host + 1) * rows)


def _bucket_pair(config):
  data = config.data
  return (buckets(data.max_input_length, data.input_buckets),
          buckets(data.max_target_length, data.target_buckets))


def _padded(lengths, pads):
  """Lengths [n, 2] -> the buckets [n, 2] that hold them."""
  return np.stack([pad[np.searchsorted(pad, lengths[:, i])]
                   for i, pad in enumerate(pads)], axis=1)


def _read(places):
  """[(cache, row)] -> their records, read with one call per cache."""
  rows = [None] * len(places)
  caches = {id(cache): cache for cache, _ in places}
  for key, cache in caches.items():
    where = [i for i, (c, _) in enumerate(places) if id(c) == key]
    for i, row in zip(where, cache.read([places[i][1] for i in where])):
      rows[i] = row
  return rows


def _make_batch(rows, batch_size, input_length, target_length):
  inputs = np.zeros((batch_size, input_length), np.int32)
  targets = np.zeros((batch_size, target_length), np.int32)
  weights = np.zeros((batch_size, target_length), np.float32)
  for i, row in enumerate(rows):
    inputs[i, :len(row['inputs'])] = row['inputs']
    targets[i, :len(row['targets'])] = row['targets']
    weights[i, :len(row['targets'])] = 1
  shifted = np.zeros_like(targets)
  shifted[:, 1:] = targets[:, :-1]
  return dict(encoder_input_tokens=inputs, decoder_input_tokens=shifted,
              decoder_target_tokens=targets, decoder_loss_weights=weights)


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
    thread.join()
