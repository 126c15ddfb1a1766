"""Helpers for tests of batches: caches, batches, and a slow definition."""

import itertools
import types

import numpy as np

from configs import default
from locost_jax.data import order
from locost_jax.data import records
from locost_jax.vocabularies import byte_vocabulary

BYTES = byte_vocabulary.ByteVocabulary()
# BART's ids; batches need nothing else of a vocabulary.
BART = types.SimpleNamespace(pad_id=1, start_id=2)
KEYS = {
    'encoder_input_tokens',
    'decoder_input_tokens',
    'decoder_target_tokens',
    'decoder_loss_weights',
}


def as_batch(inputs, targets, weights, start=0):
  """Returns a batch; decoders read the targets after the id `start`."""
  shifted = np.pad(targets, ((0, 0), (1, 0)), constant_values=start)[:, :-1]
  return dict(
      encoder_input_tokens=inputs.astype(np.int32),
      decoder_input_tokens=shifted.astype(np.int32),
      decoder_target_tokens=targets.astype(np.int32),
      decoder_loss_weights=weights.astype(np.float32),
  )


def make_cache(path, n, seed=0, longest=(90, 40)):
  rng = np.random.default_rng(seed)

  def ids(most):
    return np.append(rng.integers(2, 300, rng.integers(0, most)), 1)

  rows = [
      dict(
          id=str(i),
          inputs=ids(longest[0]),
          targets=ids(longest[1]),
          reference=f'text {i}',
      )
      for i in range(n)
  ]
  records.write(path, {}, rows, 300)
  return records.Cache(path), rows


def make_config(batch_size=4, **data):
  config = default.get_config()
  config.train.batch_size = config.eval.batch_size = batch_size
  config.data.max_input_length, config.data.max_target_length = 100, 50
  config.data.update(data)
  return config


def take(iterator, n):
  found = list(itertools.islice(iterator, n))
  iterator.close()
  return found


def row_contents(batch):
  """Returns the unpadded (inputs, targets) of the real rows, as tuples."""
  return [
      (tuple(inputs[inputs != 0]), tuple(targets[targets != 0]))
      for inputs, targets in zip(
          batch['encoder_input_tokens'], batch['decoder_target_tokens']
      )
  ]


def slow_stream(shards, window, seed, epochs):
  """Yields records in the order defined in data/order.py, one by one."""
  found = []
  for epoch in range(epochs):
    names = order.permutation(len(shards), seed, order.SHARDS, epoch)
    for index, start in enumerate(range(0, len(names), window)):
      pool = [
          (int(s), r)
          for s in names[start : start + window]
          for r in range(shards[s])
      ]
      places = order.permutation(len(pool), seed, order.RECORDS, epoch, index)
      found += [pool[i] for i in places]
  return found
