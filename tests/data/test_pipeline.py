"""data/order.py and data/pipeline.py: order and contents of batches."""

import gc
import itertools
import threading
import time
import types
from unittest import mock

import numpy as np
import pytest

from locost_jax.data import buckets
from locost_jax.data import order
from locost_jax.data import pipeline
from locost_jax.errors import InputError
from tests.batches import BART
from tests.batches import BYTES
from tests.batches import KEYS
from tests.batches import make_cache
from tests.batches import make_config
from tests.batches import row_contents
from tests.batches import slow_stream
from tests.batches import take


def assert_same(a, b):
  assert len(a) == len(b)
  for x, y in zip(a, b):
    assert x.keys() == y.keys() == KEYS
    for key in KEYS:
      assert x[key].dtype == y[key].dtype
      np.testing.assert_array_equal(x[key], y[key])


def tiled(parts):
  """Returns the global batches of those of several hosts."""
  return [
      {key: np.concatenate([part[key] for part in step]) for key in KEYS}
      for step in zip(*parts)
  ]


def test_buckets():
  lengths = [16, 24, 32, 48, 64, 96, 128, 192, 200]
  assert buckets.bucket_lengths(200).tolist() == lengths
  assert buckets.bucket_lengths(64).tolist() == [16, 24, 32, 48, 64]
  assert buckets.bucket_lengths(10).tolist() == [10]
  assert buckets.bucket_lengths(100, (50, 20, 500)).tolist() == [20, 50, 100]


def test_permutation_is_stable_and_complete():
  # Exact numbers, because a changed order would break resumed runs.
  assert order.permutation(8, 0, 1, 2).tolist() == [6, 7, 2, 3, 0, 5, 1, 4]
  for n in 0, 1, 1000:
    assert sorted(order.permutation(n, 5, 6).tolist()) == list(range(n))
  assert (order.permutation(99, 1) != order.permutation(99, 2)).any()
  order.permutation(3, -1)  # seeds may be negative


@pytest.mark.parametrize('vocabulary', [BYTES, BART])
def test_contents_of_batches(tmp_path, vocabulary):
  cache, rows = make_cache(tmp_path / 'c', 30)
  config = make_config()
  config.eval.examples = 0
  by_id = {row['id']: row for row in rows}
  for batch, info in pipeline.eval_batches(cache, vocabulary, config):
    pads = [buckets.bucket_lengths(100), buckets.bucket_lengths(50)]
    for i, name in enumerate(info['id']):
      row = by_id[name]
      inputs = batch['encoder_input_tokens'][i]
      targets = batch['decoder_target_tokens'][i]
      shifted = batch['decoder_input_tokens'][i]
      n = len(row['targets'])
      np.testing.assert_array_equal(inputs[: len(row['inputs'])], row['inputs'])
      assert (inputs[len(row['inputs']) :] == vocabulary.pad_id).all()
      np.testing.assert_array_equal(targets[:n], row['targets'])
      assert (targets[n:] == vocabulary.pad_id).all()
      assert shifted[0] == vocabulary.start_id
      np.testing.assert_array_equal(shifted[1:], targets[:-1])
      np.testing.assert_array_equal(
          batch['decoder_loss_weights'][i], np.arange(len(targets)) < n
      )
      assert info['reference'][i] == row['reference']
    for key, pad in zip(
        ('encoder_input_tokens', 'decoder_target_tokens'), pads
    ):
      longest = (batch[key] != vocabulary.pad_id).sum(axis=1).max()
      assert batch[key].shape[1] == pad[pad >= longest][0]


@pytest.mark.parametrize('start', [1, 15, 16, 17, 40])
@pytest.mark.parametrize('hosts, size', [(4, 37), (2, 300)])
def test_resumed_runs_and_hosts_change_no_batch(tmp_path, start, hosts, size):
  cache, _ = make_cache(tmp_path / 'c', size, seed=4)
  config = make_config(4)
  unbroken = take(pipeline.train_batches(cache, BYTES, config), 50)
  run = lambda *of: take(
      pipeline.train_batches(cache, BYTES, config, start, *of), 50 - start
  )
  assert_same(run(), unbroken[start:])
  assert_same(tiled([run(h, hosts) for h in range(hosts)]), unbroken[start:])


@pytest.mark.parametrize(
    'examples,hosts', [(0, 1), (0, 4), (9, 2), (8, 2), (1, 4), (100, 1)]
)
def test_evaluation_counts_every_record_once(tmp_path, examples, hosts):
  cache, rows = make_cache(tmp_path / 'c', 21)
  config = make_config(4)
  config.eval.examples = examples
  parts = [
      list(pipeline.eval_batches(cache, BYTES, config, h, hosts))
      for h in range(hosts)
  ]
  wanted = rows[: examples or None]
  assert {len(part) for part in parts} == {-(-len(wanted) // 4)}
  ids, weight = [], 0
  for batch, info in itertools.chain(*parts):
    n = len(info['id'])
    assert batch['decoder_loss_weights'].shape[0] == 4 // hosts
    for value in batch.values():
      assert not value[n:].any()
    ids += info['id']
    weight += batch['decoder_loss_weights'].sum()
  assert sorted(ids) == sorted(row['id'] for row in wanted)
  assert weight == sum(len(row['targets']) for row in wanted)
  for step in zip(*parts):  # the same shape on every host
    assert len({b['encoder_input_tokens'].shape for b, _ in step}) == 1


@pytest.mark.parametrize('seed', range(6))
def test_stream_equals_its_slow_definition(seed):
  rng = np.random.default_rng(seed)
  shards = rng.integers(0, 9, rng.integers(1, 12)).tolist()
  shards[0] += 1  # at least one record
  window = int(rng.integers(1, 5))
  epochs = 4
  expected = slow_stream(shards, window, seed, epochs)
  total = sum(shards)
  windows = -(-len(shards) // window)

  def members(epoch, index):
    return order.window_shards(len(shards), window, seed, epoch, index)

  def sizes(epoch, index):
    return [shards[s] for s in members(epoch, index)]

  starts = {0, 1, total - 1, total, total + 1, int(rng.integers(2 * total))}
  for start in starts:
    for known in total, None:
      found = []
      for epoch, index, part, row in order.stream(
          sizes, windows, lambda known=known: known, seed, start
      ):
        if epoch == epochs:
          break
        found += [(members(epoch, index)[p], int(r)) for p, r in zip(part, row)]
      assert found == expected[start:]


@pytest.mark.parametrize('sizes, window', [((30, 50, 25), 2), ((300,), 1)])
def test_batches_equal_their_slow_definition(tmp_path, sizes, window):
  """Groups of the stream, sorted by lengths, in permuted order."""
  parts = [
      make_cache(tmp_path / str(s), n, seed=s)[0] for s, n in enumerate(sizes)
  ]
  cache = parts[0]
  if len(parts) > 1:
    members = lambda e, i: order.window_shards(len(parts), window, 7, e, i)
    cache = types.SimpleNamespace(
        windows=-(-len(parts) // window),
        total=lambda: None,
        sizes=lambda e, i: [len(parts[s]) for s in members(e, i)],
        window=lambda e, i: [parts[s] for s in members(e, i)],
    )
  batch_size, steps = 6, 64
  found = take(
      pipeline.train_batches(cache, BYTES, make_config(6, seed=7)), steps
  )
  stream = slow_stream(sizes, window, 7, 6)
  pads = buckets.bucket_lengths(100), buckets.bucket_lengths(50)
  expected = []
  for g in range(steps // order.GROUP):
    size = order.GROUP * batch_size
    group = [parts[s][r] for s, r in stream[g * size : (g + 1) * size]]
    group.sort(
        key=lambda row: (
            min(pads[0][pads[0] >= len(row['inputs'])]),
            min(pads[1][pads[1] >= len(row['targets'])]),
        )
    )
    cut = [group[i : i + batch_size] for i in range(0, size, batch_size)]
    places = order.permutation(order.GROUP, 7, order.BATCHES, g)
    expected += [cut[i] for i in places]
  assert [row_contents(batch) for batch in found] == [
      [(tuple(row['inputs']), tuple(row['targets'])) for row in rows]
      for rows in expected
  ]


def prefetching():
  return [t for t in threading.enumerate() if t.name == 'prefetch']


def test_exceptions_reach_the_caller(tmp_path):
  cache, _ = make_cache(tmp_path / 'c', 5)
  cache.read = mock.Mock(side_effect=OSError('the disk is gone'))
  with pytest.raises(OSError, match='the disk is gone'):
    next(pipeline.train_batches(cache, BYTES, make_config()))
  empty, _ = make_cache(tmp_path / 'empty', 0)
  with pytest.raises(InputError, match='no record'):
    next(pipeline.train_batches(empty, BYTES, make_config()))
  assert not prefetching()


def test_thread_ends_with_the_iterator(tmp_path):
  cache, _ = make_cache(tmp_path / 'c', 5)
  closed = pipeline.train_batches(cache, BYTES, make_config())
  next(closed)
  assert len(prefetching()) == 1
  closed.close()
  assert not prefetching()
  forgotten = pipeline.train_batches(cache, BYTES, make_config())
  next(forgotten)
  del forgotten
  gc.collect()
  time.sleep(0.05)
  assert not prefetching()
