"""The memory of a batch: an estimate, and the documents that fit."""

import math

import jax

from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder
from locost_jax.ops import long_attention
from locost_jax.summarizing import reading

# By default, maximum tokens of a batch, padding included: enough rows for the
# matrix products of short documents, and no more memory than one document of
# this length takes.
BATCH_TOKENS = 2**15
_MOST_ROWS = 64
_COMPILING = 2**28  # bytes for compiling and for the libraries


def needed_bytes(model, params, batch, shape, settings):
  """Estimates the bytes that summarising a batch takes: {part: bytes}.

  Args:
    params: or their shapes.
    batch: number of documents.
    shape: padded shape of each document, see `reading`.
  """
  c, itemsize = model.config, model.dtype.itemsize
  *pages, length = shape
  texts = batch * math.prod(pages)
  copies, seen = c.decoder_rows(math.prod(pages), length)
  rows, width = batch * settings.num_beams, c.num_heads * c.d_kv
  own = 2 * copies * rows * settings.max_length * width
  own *= c.num_decoder_layers + 1  # a step reads one layer at a time out of all
  attended = texts * length
  if seen >= long_attention.ABSORBED:
    # A compact memory may be short enough for keys and values.
    attended = batch * long_attention.ABSORBED * c.is_compacted
  cross = 2 * c.num_decoder_layers * attended * width
  states = texts * length * c.d_model
  if c.copy:
    # Keys, the tokens and those before them.
    states += texts * length * (c.copy_dim + 1 + c.copy_ngram)
  kernels = low_memory_encoder.kernel_bytes(model, length)
  return {
      'parameters': sum(
          leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params)
      ),
      'kernels': kernels if kernels <= generate.KEPT_BYTES else 0,
      'encoding': low_memory_encoder.encoder_bytes(
          model, params, texts, length
      ),
      'decoding': (states + cross + own) * itemsize + 16 * rows * c.vocab_size,
      'compiling': _COMPILING,
  }


def peak_of(parts):
  """Returns the sum of `needed_bytes`, but decoding follows encoding."""
  return sum(parts.values()) - min(parts['encoding'], parts['decoding'])


def limiting_flag(summarizer):
  """Returns the flag that limits how much of a document is read."""
  is_limited = summarizer.pages and not summarizer.pages.are_chunks
  return 'num_pages' if is_limited else 'max_input_length'


def most_rows(summarizer, options, shape):
  """Returns how many documents of this shape fit into a batch."""
  model, params = summarizer.model, summarizer.params
  available = math.inf if options.available is None else options.available
  peak = lambda rows: peak_of(
      needed_bytes(model, params, rows, shape, options.settings)
  )
  most = options.batch_size or reading.power_of_two_in(
      max(1, min(_MOST_ROWS, BATCH_TOKENS // math.prod(shape)))
  )
  while most and peak(most) > available:
    most //= 2
  return most


def too_large(summarizer, options, job, shape):
  """Returns the InputError of a document that does not fit into memory."""
  model, params = summarizer.model, summarizer.params
  parts = needed_bytes(model, params, 1, shape, options.settings)
  shown = ', '.join(
      f'{name} {memory.format_bytes(size)}' for name, size in parts.items()
  )
  return InputError(
      f'{job.document.id}: {job.read} tokens need about '
      f'{memory.format_bytes(peak_of(parts))} ({shown}), but '
      f'{memory.format_bytes(options.available)} are available: '
      f'--{limiting_flag(summarizer)} lowers the need'
  )
