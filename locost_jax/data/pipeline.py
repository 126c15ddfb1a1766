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

  encoder_input_tokens   int32 [B, L]    inputs, padded with pad
  decoder_target_tokens  int32 [B, T]    targets y, padded with pad
  decoder_input_tokens   int32 [B, T]    start, y_0, ..., y_{T-2}
  decoder_loss_weights   float32 [B, T]  1 where a target stands, else 0

pad and start are the vocabulary's pad_id and start_id.

Where documents are cut into pages, encoder_input_tokens is int32 [B, P, L]: P
pages, L tokens of a page.

With config.train.batch_tokens the number of rows depends on the length; with
config.data.packing several short documents share a row, for models that keep
them apart by SeqIO's further keys, all int32:

  encoder_segment_ids, decoder_segment_ids [B, L], [B, T]  1, 2, ...; 0: padding
  encoder_positions, decoder_positions     likewise  0, 1, ... in each document

and decoder_input_tokens begin anew with start in each. Rows that are empty,
which fill a batch up, have zero weights.

NumPy and the record reader only: no TensorFlow, no JAX.
"""

import functools
import queue
import threading
from typing import NamedTuple

import numpy as np

from locost_jax.data import order
from locost_jax.data.pages import LOCALITIES
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


class Batch(NamedTuple):
  """Which records stand where."""
  rows: list  # lists of records' numbers; more than one if they are packed
  size: int  # rows, empty ones included
  shape: tuple  # of the inputs of a row, and behind it length of its targets


def check(config, parts):
  """Raises an InputError for batches that cannot be.

  Args:
    config: the run's config: data (pages, lengths, packing), train
      (batch_size, batch_tokens).
    parts: a batch is split into, over devices and one after the other.
  """
  data, tokens = config.data, config.train.batch_tokens
  longest = data.page_length * data.num_pages if (
      data.pages in LOCALITIES) else data.max_input_length
  if tokens and order.rows_in_budget(max(tokens, 0), longest) % parts or (
      tokens and tokens < longest):
    raise InputError(
        f'config.train.batch_tokens={tokens} must be 0 or hold a document of '
        f'{longest} tokens for each of its {parts} parts (devices x '
        'train.accumulate), a power of two')
  if data.packing and (tokens or data.pages):
    raise InputError('config.data.packing: rows are as long as '
                     'max_input_length; expected train.batch_tokens=0 and '
                     "data.pages=''")


def train_batches(cache, vocabulary, config, start_step=0, host=0, hosts=1):
  """Training batches from step `start_step` on, for ever.

  Args:
    cache: a Cache or a StreamedCache (data/cache.py).
    vocabulary: whose tokens its records hold.
    config: the run's config: data (seed, lengths, buckets, packing), train
      (batch_size, batch_tokens).
    start_step: steps already taken; batch s of a run from 0 comes first here
      with start_step = s.
    host: this host's number.
    hosts: how many hosts share each global batch.

  Returns:
    An iterator of batches (see above) of batch_size / hosts rows. Made ahead
    in a thread, which stops when the iterator is closed or forgotten and whose
    exceptions are raised here.

  Raises:
    InputError: hosts do not divide the batch size, or as `check` raises; from
      the iterator, when the training corpus has no records.
  """
  _host_rows(config.train.batch_size, 'train.batch_size', hosts)
  check(config, hosts)
  return _prefetch(
      _train(cache, vocabulary, config, start_step, host, hosts))


def _train(cache, vocabulary, config, start_step, host, hosts):
  batch_size, seed = config.train.batch_size, config.data.seed
  plan = functools.partial(_plan, config, _buckets_of(config))
  size = order.GROUP * batch_size
  group, skipped = 0, start_step
  if not (config.train.batch_tokens or config.data.packing):
    group, skipped = divmod(start_step, order.GROUP)
  for records, shapes in _groups(cache, seed, group * size, size):
    batches = plan(shapes, group)
    for batch in batches[skipped:]:
      rows, count = _host_part(batch, host, hosts)
      found = _read([records[i] for row in rows for i in row])
      if config.data.packing:
        found = iter(found)
        rows = [[next(found) for _ in row] for row in rows]
        yield _make_packed_batch(rows, count, batch.shape, vocabulary)
      else:
        yield _make_batch(found, count, batch.shape, vocabulary)
    group, skipped = group + 1, max(skipped - len(batches), 0)


def _plan(config, pads, shapes, group):
  """The batches of a group, as a list of Batch."""
  padded, seed = _padded(shapes, pads), config.data.seed
  if config.data.packing:
    most = config.data.max_input_length, config.data.max_target_length
    rows, size = order.pack(shapes, most), config.train.batch_size
    batches = [Batch(rows[i:i + size], size, most)
               for i in range(0, len(rows), size)]
  else:
    if config.train.batch_tokens:
      cut = order.budget_batches(padded, config.train.batch_tokens)
    else:
      cut = [(batch, config.train.batch_size) for batch in order.group_batches(
          padded, config.train.batch_size, seed, group)]
    batches = [Batch([[i] for i in rows.tolist()], size,
                     tuple(padded[rows].max(axis=0).tolist()))
               for rows, size in cut]
    if not config.train.batch_tokens:
      return batches
  return [batches[i] for i in order.permutation(
      len(batches), seed, order.BATCHES, group)]


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
    An iterator of (batch, info): a batch (see above) of eval.batch_size / hosts
    rows, and a dict of lists, id and reference, for its real rows, which come
    first; the rows after them are padding with zero weights. A reference is a
    list where several texts count as right.

  Raises:
    InputError: hosts do not divide the batch size.
  """
  _host_rows(config.eval.batch_size, 'eval.batch_size', hosts)
  return _prefetch(_evaluate(cache, vocabulary, config, host, hosts))


def _evaluate(cache, vocabulary, config, host, hosts):
  batch_size = config.eval.batch_size
  padded = _padded(cache.shapes[:config.eval.examples or None],
                   _buckets_of(config))
  by_length = np.lexsort(padded.T[::-1])
  for start in range(0, len(padded), batch_size):
    rows = by_length[start:start + batch_size]
    batch = Batch([[i] for i in rows.tolist()], batch_size,
                  tuple(padded[rows].max(axis=0).tolist()))
    places, size = _host_part(batch, host, hosts)
    found = _read([(cache, i) for i, in places])
    info = dict(id=[row['id'] for row in found], reference=[
        row.get('references') or row['reference'] for row in found])
    yield _make_batch(found, size, batch.shape, vocabulary), info


def _host_rows(batch_size, name, hosts):
  """Rows of a batch that each host has."""
  if batch_size < 1 or batch_size % hosts:
    raise InputError(
        f'{name}={batch_size} must be positive and divisible by the number of '
        f'hosts, {hosts}')
  return batch_size // hosts


def _host_part(batch, host, hosts):
  """(rows, how many with empty ones) of a batch that this host has."""
  size = batch.size // hosts
  return batch.rows[host * size:(host + 1) * size], size


# Chunks of a document: at most half as many again as there are.
_CHUNKS = np.array(sorted({n << k for n in (2, 3) for k in range(20)} | {1}))


def _buckets_of(config):
  """What each column of a cache's shapes is padded to."""
  data = config.data
  targets = buckets(data.max_target_length, data.target_buckets)
  if not data.pages:
    return buckets(data.max_input_length, data.input_buckets), targets
  several = np.array([data.num_pages]) if data.pages in LOCALITIES else _CHUNKS
  return several, buckets(data.page_length, data.input_buckets), targets


def _padded(shapes, pads):
  """Shapes [n, k] -> the buckets [n, k] that hold them."""
  return np.stack([pad[np.searchsorted(pad, shapes[:, i])]
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


def _make_batch(rows, size, shape, vocabulary):
  """Pads records into a batch.

  Args:
    rows: list of records.
    size: rows of the batch.
    shape: of the inputs of a row, and behind it length of its targets.
    vocabulary: whose tokens they are.

  Returns:
    A batch (see the top of this module).
  """
  *inputs_shape, target_length = shape
  inputs = np.full((size, *inputs_shape), vocabulary.pad_id, np.int32)
  targets = np.full((size, target_length), vocabulary.pad_id, np.int32)
  weights = np.zeros((size, target_length), np.float32)
  for i, row in enumerate(rows):
    if 'pages' in row:
      _fill_pages(inputs[i], row)
    else:
      inputs[i, :len(row['inputs'])] = row['inputs']
    targets[i, :len(row['targets'])] = row['targets']
    weights[i, :len(row['targets'])] = 1
  shifted = np.full_like(targets, vocabulary.start_id)
  shifted[:, 1:] = targets[:, :-1]
  return dict(encoder_input_tokens=inputs, decoder_input_tokens=shifted,
              decoder_target_tokens=targets, decoder_loss_weights=weights)


def _make_packed_batch(rows, size, shape, vocabulary):
  """The same of lists of records, which share a row and can be told apart."""
  read, written = (np.zeros((4, size, length), np.int32) for length in shape)
  for tokens in read[0], *written[:2]:
    tokens[:] = vocabulary.pad_id
  for i, records in enumerate(rows):
    for row, name in (read[:, i], 'inputs'), (written[:, i], 'targets'):
      _pack_row(row, [record[name] for record in records], vocabulary.start_id)
  return dict(
      encoder_input_tokens=read[0], encoder_segment_ids=read[2],
      encoder_positions=read[3], decoder_target_tokens=written[0],
      decoder_input_tokens=written[1], decoder_segment_ids=written[2],
      decoder_positions=written[3],
      decoder_loss_weights=(written[2] > 0).astype(np.float32))


def _pack_row(row, texts, start_id):
  """Fills [4, L]: tokens, the ones before them, number of text, positions."""
  start = 0
  for number, tokens in enumerate(texts, start=1):
    part = row[:, start:start + len(tokens)]
    part[0], part[1, 0], part[1, 1:] = tokens, start_id, tokens[:-1]
    part[2] = number
    part[3] = np.arange(len(tokens))
    start += len(tokens)


def _fill_pages(inputs, record):
  """Puts the pages of a record into inputs [P, L]."""
  start = 0
  for page, length in enumerate(record['pages']):
    inputs[page, :length] = record['inputs'][start:start + length]
    start += length


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
