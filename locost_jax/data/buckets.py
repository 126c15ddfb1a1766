"""Pads records to few lengths and into the arrays of a batch.

The lengths are 2^k and 1.5 * 2^k, or those of the config, so few shapes are
compiled.

A batch is a dict of arrays with SeqIO's names. It has B rows; L and T are the
smallest buckets that hold the longest row of the GLOBAL batch, so that all
hosts agree:

  encoder_input_tokens   int32 [B, L]    inputs, padded with pad
  decoder_target_tokens  int32 [B, T]    targets y, padded with pad
  decoder_input_tokens   int32 [B, T]    start, y_0, ..., y_{T-2}
  decoder_loss_weights   float32 [B, T]  1 for targets, 0 for padding

pad and start are the vocabulary's pad_id and start_id. Targets begin with the
vocabulary's bos, if it has one, so the model learns to write it. With
config.data.targets_start='bos' the decoder reads bos in place of start (as in
PageSum's release), and y begins with the first word.

If documents are cut into pages, encoder_input_tokens is int32 [B, P, L]: P
pages of L tokens.
"""

import numpy as np

from locost_jax.data import pages

SMALLEST = 16  # tokens
# Numbers of chunks are rounded up to one of these, by at most 50%.
_CHUNKS = np.array(sorted({n << k for n in (2, 3) for k in range(20)} | {1}))


def bucket_lengths(maximum, given=()):
  """Returns the lengths that rows are padded to, up to `maximum`: int64 [n].

  Args:
    given: lengths to use; (): powers of two and 1.5 times them, from 16.
  """
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
  """Rounds shapes, int [n, k], up to the buckets `pads` of the k columns."""
  return np.stack(
      [pad[np.searchsorted(pad, shapes[:, i])] for i, pad in enumerate(pads)],
      axis=1,
  )


def make_batch(rows, size, shape, vocabulary, targets_start='start_id'):
  """Pads records into a batch.

  Args:
    size: B, at least the number of records.
    shape: (L, T), or (P, L, T) for pages.
    targets_start: 'start_id', or 'bos' for records whose targets begin with the
      vocabulary's bos.
  """
  *inputs_shape, target_length = shape
  inputs = np.full((size, *inputs_shape), vocabulary.pad_id, np.int32)
  targets = np.full((size, target_length), vocabulary.pad_id, np.int32)
  weights = np.zeros((size, target_length), np.float32)
  start_id, begin = vocabulary.start_id, 0
  if targets_start == 'bos':
    start_id, begin = vocabulary.bos_id, 1  # bos is read, not written
  for i, row in enumerate(rows):
    if 'pages' in row:
      _fill_pages(inputs[i], row)
    else:
      inputs[i, : len(row['inputs'])] = row['inputs']
    written = row['targets'][begin:]
    targets[i, : len(written)] = written
    weights[i, : len(written)] = 1
  shifted = np.full_like(targets, start_id)
  shifted[:, 1:] = targets[:, :-1]
  return dict(
      encoder_input_tokens=inputs,
      decoder_input_tokens=shifted,
      decoder_target_tokens=targets,
      decoder_loss_weights=weights,
  )


def _fill_pages(inputs, record):
  """Copies the pages of a record into inputs [P, L]."""
  start = 0
  for page, length in enumerate(record['pages']):
    inputs[page, :length] = record['inputs'][start : start + length]
    start += length
