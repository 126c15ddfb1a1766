"""data/pipeline.py: budgets of tokens, and several documents in a row."""

import numpy as np
import pytest

from locost_jax.data import batch_arrays
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


def long_cache(tmp_path, n=300):
  return make_cache(tmp_path / 'c', n, seed=4)


def test_a_budget_of_tokens(tmp_path):
  cache, rows = long_cache(tmp_path)
  config = make_config(8)
  config.train.batch_tokens = 900
  batches = take(pipeline.train_batches(cache, BYTES, config), 60)
  shapes = {b['encoder_input_tokens'].shape for b in batches}
  for size, length in shapes:
    # A power of two; twice as many rows would not fit.
    assert size & (size - 1) == 0 and size * length <= 900 < 2 * size * length
  # There is one number of rows for each length.
  assert len({length for _, length in shapes}) == len(shapes) > 3
  known = {(tuple(r['inputs']), tuple(r['targets'])) for r in rows}
  assert {row for b in batches for row in row_contents(b) if row[1]} <= known


def test_a_document_that_no_budget_holds():
  with pytest.raises(InputError, match='=99 holds no document of 100 tokens'):
    order.budget_batches(np.array([[50, 8], [100, 8]]), 99)


def test_batches_of_a_budget_are_those_of_the_stream(tmp_path):
  """Groups of the stream, longest rows first, in permuted order."""
  cache, rows = long_cache(tmp_path)
  config = make_config(4)
  config.train.batch_tokens = 300
  found = take(pipeline.train_batches(cache, BYTES, config), 60)
  stream = slow_stream([len(rows)], 1, 0, 3)
  pads, size, expected = buckets.bucket_lengths(100), 4 * order.GROUP, []
  bucket = lambda row: int(min(pads[pads >= len(row['inputs'])]))
  out = lambda row: int(
      min(p for p in buckets.bucket_lengths(50) if p >= len(row['targets']))
  )
  for g in range(4):
    group = [rows[r] for _, r in stream[g * size : (g + 1) * size]]
    group.sort(key=lambda row: (bucket(row), out(row)))
    cut = []
    while group:
      n = 2 ** int(np.log2(300 // bucket(group[-1])))
      cut.append(group[-n:])
      del group[-n:]
    expected += [
        cut[i] for i in order.permutation(len(cut), 0, order.BATCHES, g)
    ]
  assert len(expected) >= 20
  for batch, rows in zip(found, expected):
    contents = row_contents(batch)
    assert contents[: len(rows)] == [
        (tuple(row['inputs']), tuple(row['targets'])) for row in rows
    ]
    assert not any(any(part) for part in contents[len(rows) :])
    assert batch['decoder_loss_weights'].sum() == sum(
        len(row['targets']) for row in rows
    )


@pytest.mark.parametrize('change', [dict(batch_tokens=450), dict(packing=True)])
@pytest.mark.parametrize('start', [1, 17, 40])
def test_variable_groups_continue_exactly(tmp_path, change, start):
  cache, _ = long_cache(tmp_path)
  config = make_config(4)
  for key, value in change.items():
    (config.train if key == 'batch_tokens' else config.data)[key] = value
  unbroken = take(pipeline.train_batches(cache, BYTES, config), 50)
  again = take(pipeline.train_batches(cache, BYTES, config, start), 50 - start)
  for a, b in zip(again, unbroken[start:], strict=True):
    for key in b:
      np.testing.assert_array_equal(a[key], b[key])
  # Neither hosts nor devices change a batch.
  parts = [
      take(
          pipeline.train_batches(cache, BYTES, config, start, host, 2),
          50 - start,
      )
      for host in range(2)
  ]
  for step, whole in zip(zip(*parts), unbroken[start:], strict=True):
    for key in whole:
      np.testing.assert_array_equal(
          np.concatenate([part[key] for part in step]), whole[key]
      )


def test_first_fit():
  lengths = [(5, 1), (4, 1), (3, 1), (2, 9), (1, 1)]
  assert order.pack(lengths, (8, 10)) == [[0, 2], [1, 3], [4]]
  assert order.pack([], (8, 10)) == []


@pytest.mark.parametrize('vocabulary', [BYTES, BART])
def test_packed_rows_can_be_told_apart(tmp_path, vocabulary):
  """What SeqIO packs is read back from our keys, record by record."""
  cache, rows = make_cache(tmp_path / 'c', 100, longest=(30, 12))
  config = make_config(4, packing=True)
  batches = take(pipeline.train_batches(cache, vocabulary, config), 12)
  seen, several = [], 0
  for batch in batches:
    assert batch.keys() == KEYS | {
        'encoder_segment_ids',
        'encoder_positions',
        'decoder_segment_ids',
        'decoder_positions',
    }
    for name in ('encoder_input_tokens', 'decoder_target_tokens'):
      assert batch[name].shape == (4, 100 if name[0] == 'e' else 50)
    for i in range(4):
      row = {key: value[i] for key, value in batch.items()}
      several += row['encoder_segment_ids'].max() > 1
      assert (
          (row['decoder_segment_ids'] > 0) == (row['decoder_loss_weights'] > 0)
      ).all()
      for segment in range(1, row['encoder_segment_ids'].max() + 1):
        read = row['encoder_segment_ids'] == segment
        written = row['decoder_segment_ids'] == segment
        inputs = row['encoder_input_tokens'][read]
        targets = row['decoder_target_tokens'][written]
        assert row['encoder_positions'][read].tolist() == list(
            range(len(inputs))
        )
        assert row['decoder_positions'][written].tolist() == list(
            range(len(targets))
        )
        assert row['decoder_input_tokens'][written].tolist() == [
            vocabulary.start_id,
            *targets[:-1],
        ]
        seen.append((tuple(inputs), tuple(targets)))
      for side in ('encoder', 'decoder'):
        assert (
            row[f'{side}_input_tokens'][row[f'{side}_segment_ids'] == 0]
            == vocabulary.pad_id
        ).all()
  known = {(tuple(r['inputs']), tuple(r['targets'])) for r in rows}
  assert set(seen) <= known and len(seen) > 100 and several > 30


def test_packing_equals_seqio():
  """Where its greedy packing is ours: two fit into a row, never three."""
  import seqio
  import tensorflow as tf

  rng = np.random.default_rng(0)
  rows = [
      dict(
          inputs=rng.integers(2, 300, rng.integers(35, 51)),
          targets=rng.integers(2, 300, rng.integers(1, 17)),
      )
      for _ in range(20)
  ]
  dataset = tf.data.Dataset.from_generator(
      lambda: (
          {key: value.astype(np.int32) for key, value in row.items()}
          for row in rows
      ),
      output_signature={
          key: tf.TensorSpec([None], tf.int32) for key in ('inputs', 'targets')
      },
  )
  expected = list(
      seqio.EncDecFeatureConverter(pack=True)(
          dataset, dict(inputs=100, targets=50)
      ).as_numpy_iterator()
  )
  packed = [
      [rows[i] for i in row]
      for row in order.pack(
          [(len(r['inputs']), len(r['targets'])) for r in rows], (100, 50)
      )
  ]
  ours = batch_arrays.make_packed_batch(packed, len(packed), (100, 50), BYTES)
  assert len(packed) == len(expected) == 10
  for i, row in enumerate(expected):
    assert row.keys() == ours.keys()
    for key in row:
      np.testing.assert_array_equal(ours[key][i], row[key])


@pytest.mark.parametrize(
    'tokens,devices', [(99, 1), (399, 4), (400, 3), (-1, 1)]
)
def test_budgets_that_cannot_be(tokens, devices):
  config = make_config(4)
  config.train.batch_tokens = 400
  pipeline.check(config, 4)
  config.train.batch_tokens = tokens
  with pytest.raises(InputError, match=f'batch_tokens={tokens} must be 0 or'):
    pipeline.check(config, devices)


def test_packing_has_its_own_lengths(tmp_path):
  cache, _ = make_cache(tmp_path / 'c', 5)
  config = make_config(4, packing=True)
  config.train.batch_tokens = 400
  with pytest.raises(InputError, match='packing: rows are as long as max_inp'):
    pipeline.train_batches(cache, BYTES, config)
