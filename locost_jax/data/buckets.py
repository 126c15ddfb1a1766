"""Length buckets: rows are padded to few lengths, so few shapes are compiled.

The lengths are 2^k and 1.5 * 2^k, or those of the config.
"""

import numpy as np

from locost_jax.data import pages
from locost_jax.errors import InputError

SMALLEST = 16  # tokens
# Numbers of chunks are rounded up to one of these, by at most 50%.
_CHUNKS = np.array(sorted({n << k for n in (2, 3) for k in range(20)} | {1}))


def bucket_lengths(maximum, given=()):
  """Returns the lengths that rows are padded to, up to `maximum`: int64 [n].

  Args:
    maximum: tokens of the longest row.
    given: lengths to use; (): powers of two and 1.5 times them, from 16.
  """
  given = tuple(given)
  if any(length < 1 for length in given):
    raise InputError(f'buckets={given}: lengths must be positive')
  if not given:
    powers = 2 ** np.arange(4, 63)
    given = np.stack([powers, powers // 2 * 3], axis=1).ravel().tolist()
  return np.array(sorted({n for n in given if n < maximum} | {maximum}))


def column_buckets(config):
  """Returns the buckets of each column of a cache's shapes."""
  data = config.data
  targets = bucket_lengths(data.max_target_length, data.target_buckets)
  if not data.pages:
    return bucket_lengths(data.max_input_length, data.input_buckets), targets
  if data.pages in pages.LOCALITIES:
    several = np.array([data.num_pages])
  else:  # not rounded up for the longest documents, which may be many
    several = np.union1d(_CHUNKS, pages.max_chunks(data))
  return several, bucket_lengths(data.page_length, data.input_buckets), targets


def pad_shapes(shapes, pads):
  """Rounds shapes up to buckets.

  Args:
    shapes: int [n, k].
    pads: k ascending arrays; see `column_buckets`.

  Returns:
    int [n, k], the smallest buckets that hold the shapes.
  """
  return np.stack(
      [pad[np.searchsorted(pad, shapes[:, i])] for i, pad in enumerate(pads)],
      axis=1,
  )
