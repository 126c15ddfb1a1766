"""Estimates the memory of a batch, and how many documents fit into one."""

import math

import jax

from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder
from locost_jax.ops import long_attention
from locost_jax.summarizing import reading
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# By default, maximum tokens of a batch, padding included: enough rows for the
# matrix products of short documents, and no more memory than one document of
# this length takes.
BATCH_TOKENS = 2**15
_MOST_ROWS = 64
_COMPILING = 2**28  # bytes for compiling and for the libraries
# Shorter documents are padded to this: fewer programs to compile.
_SMALLEST_LENGTH = 64


def needed_bytes(model, params, batch, shape, settings):
  """Estimates the bytes that summarising a batch takes.

  Args:
    params: or their shapes.
    batch: number of documents.
    shape: padded shape of each document, see `reading`.
    settings: `decode_settings.Settings`.

  Returns:
    {part: bytes}; `peak_of` adds them up.
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
      'encoding': low_memory_encoder.encoder_bytes(model, texts, length),
      'decoding': (states + cross + own) * itemsize + 16 * rows * c.vocab_size,
      'compiling': _COMPILING,
  }


def peak_of(parts):
  """Returns the peak of `needed_bytes`: decoding follows encoding."""
  return sum(parts.values()) - min(parts['encoding'], parts['decoding'])


def limiting_flag(summarizer):
  """Returns the flag that limits how much of a document is read."""
  is_limited = summarizer.pages and not reading.reads_chunks(summarizer.pages)
  return 'num_pages' if is_limited else 'max_input_length'


class BatchLimits:
  """The shapes that documents are padded to, and how many share a batch."""

  def __init__(self, summarizer, options):
    """Keeps `stream.Options`."""
    self._summarizer, self._options = summarizer, options

  def shape_of(self, job):
    """Returns the shape that a tokenised job is padded to."""
    return reading.padded_shape(
        self._summarizer.config,
        job.pages,
        bool(self._summarizer.pages),
        _SMALLEST_LENGTH,
    )

  def rows(self, shape):
    """Returns how many documents of this shape fit into a batch."""
    available = self._options.available
    most = self._options.batch_size or reading.power_of_two_in(
        max(1, min(_MOST_ROWS, BATCH_TOKENS // math.prod(shape)))
    )
    while (
        most
        and available is not None
        and peak_of(self._needs(most, shape)) > available
    ):
      most //= 2
    return most

  def too_large(self, job, shape):
    """Returns the InputError of a document that does not fit into memory."""
    parts = self._needs(1, shape)
    shown = ', '.join(
        f'{name} {memory.format_bytes(size)}' for name, size in parts.items()
    )
    flag, others = self._smaller(shape)
    fits = [
        number
        for number, other in others
        if peak_of(self._needs(1, other)) <= self._options.available
    ]
    way_out = f'--{flag}={max(fits)} fits' if fits else f'no {flag} fits'
    return InputError(
        f'{job.document.id}: {job.kept} tokens need about '
        f'{memory.format_bytes(peak_of(parts))} ({shown}), but '
        f'{memory.format_bytes(self._options.available)} are available: {way_out}'
    )

  def _smaller(self, shape):
    """Returns the flag that lowers the need, and (its value, shape) to try."""
    *pages, length = shape
    flag = limiting_flag(self._summarizer)
    if flag == 'num_pages':
      return flag, [(P, (P, length)) for P in range(1, *pages)]
    lengths = (n for k in range(6, 40) for n in (2**k, 3 * 2 ** (k - 1)))
    lengths = [n for n in lengths if n < length]
    if not pages:
      return flag, [(n, (n,)) for n in lengths]
    marks = len(vocabulary_lib.surround(self._summarizer.vocabulary, []))
    room = self._summarizer.pages.page_length - marks
    full = self._summarizer.pages.pages == 'chunks'
    # Of sentences, two chunks that follow each other have more than one holds.
    most = lambda C: C * room if full else (C - 1) * room // 2
    return flag, [
        *((n - marks, (1, n)) for n in lengths),
        *((most(C), (C, length)) for C in range(1, *pages) if most(C)),
    ]

  def _needs(self, batch, shape):
    model, params = self._summarizer.model, self._summarizer.params
    return needed_bytes(model, params, batch, shape, self._options.settings)
