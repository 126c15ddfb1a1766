"""data/pipeline.py: batches with a token budget."""

import numpy as np
import pytest

from locost_jax.data import buckets
from locost_jax.data import order
from locost_jax.data import pipeline
from locost_jax.errors import InputError
from tests.batches import BYTES
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
  # All batches of a length have the same number of rows.
  assert len({length for _, length in shapes}) == len(shapes) > 3
  known = {(tuple(r['inputs']), tuple(r['targets'])) for r in rows}
  assert {row for b in batches for row in row_contents(b) if row[1]} <= known


def test_a_document_beyond_the_budget():
  with pytest.raises(InputError, match='=99 holds no document of 100 tokens'):
    order.budget_batches(np.array([[50, 8], [100, 8]]), 99)


def test_batches_of_a_budget_are_those_of_the_stream(tmp_path):
  """They are groups of the stream, longest rows first, in permuted order."""
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


@pytest.mark.parametrize('start', [1, 17, 40])
def test_variable_groups_continue_exactly(tmp_path, start):
  cache, _ = long_cache(tmp_path)
  config = make_config(4)
  config.train.batch_tokens = 450
  unbroken = take(pipeline.train_batches(cache, BYTES, config), 50)
  again = take(pipeline.train_batches(cache, BYTES, config, start), 50 - start)
  for a, b in zip(again, unbroken[start:], strict=True):
    for key in b:
      np.testing.assert_array_equal(a[key], b[key])
  # The number of hosts or devices changes no batch.
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


@pytest.mark.parametrize(
    'tokens,devices', [(99, 1), (399, 4), (400, 3), (-1, 1)]
)
def test_invalid_budgets(tokens, devices):
  config = make_config(4)
  config.train.batch_tokens = 400
  pipeline.check(config, 4)
  config.train.batch_tokens = tokens
  with pytest.raises(InputError, match=f'batch_tokens={tokens} must be 0 or'):
    pipeline.check(config, devices)
