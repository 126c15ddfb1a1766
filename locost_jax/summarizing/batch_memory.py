"""How many documents fit into a batch: the memory of a batch, estimated."""

import jax

from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder
from locost_jax.ops import long_attention
from locost_jax.summarizing import batching

# By default as many documents share a batch as have this many tokens together,
# padding included: enough rows for the matrix products of short documents, and
# no more memory than one document of this length takes.
BATCH_TOKENS = 2**15
_MOST_ROWS = 64
_COMPILING = 2**28  # bytes for compiling and the libraries' own needs
# Shorter documents are padded to this: fewer programs to compile.
_SMALLEST_LENGTH = 64


def needed_bytes(model, params, batch, length, settings):
  """Estimates what summarising a batch takes.

  Args:
    model: the Flax module.
    params: its parameters, or their shapes.
    batch: documents.
    length: tokens each is padded to.
    settings: dict with num_beams and max_length.

  Returns:
    {part: bytes}; `peak_of` adds them up.
  """
  c, itemsize = model.config, model.dtype.itemsize
  rows, width = batch * settings['num_beams'], c.num_heads * c.d_kv
  own = 2 * rows * settings['max_length'] * width
  own *= c.num_decoder_layers + 1  # a step reads one layer at a time out of all
  cross = (
      0
      if length >= long_attention.ABSORBED
      else (2 * c.num_decoder_layers * batch * length * width)
  )
  states = batch * length * c.d_model
  kernels = low_memory_encoder.kernel_bytes(model, length)
  return {
      'parameters': sum(
          leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params)
      ),
      'kernels': kernels if kernels <= generate.KEPT_BYTES else 0,
      'encoding': low_memory_encoder.encoder_bytes(model, batch, length),
      'decoding': (states + cross + own) * itemsize + 16 * rows * c.vocab_size,
      'compiling': _COMPILING,
  }


def peak_of(parts):
  """Returns the peak of `needed_bytes`: decoding follows encoding."""
  return sum(parts.values()) - min(parts['encoding'], parts['decoding'])


class BatchLimits:
  """The lengths that documents are padded to, and how many share a batch."""

  def __init__(self, summarizer, settings, batch_size=None, available=None):
    """Computes nothing yet.

    Args:
      summarizer: of `locost_jax.load`.
      settings: dict with num_beams and max_length.
      batch_size: most documents in a batch; None: see BATCH_TOKENS.
      available: bytes that may be taken, parameters included; None: no limit.
    """
    self._summarizer, self._settings = summarizer, settings
    self._batch_size, self._available = batch_size, available

  def length_of(self, job):
    """Returns the length that a tokenised job is padded to."""
    return batching.padded_length(
        self._summarizer.config, len(job.ids), _SMALLEST_LENGTH
    )

  def rows(self, length):
    """Returns how many documents of this length fit into a batch."""
    most = self._batch_size or batching.power_of_two_in(
        max(1, min(_MOST_ROWS, BATCH_TOKENS // length))
    )
    while (
        most
        and self._available is not None
        and peak_of(self._needs(most, length)) > self._available
    ):
      most //= 2
    return most

  def too_large(self, job, length):
    """Returns the InputError of a document for which there is no memory."""
    parts = self._needs(1, length)
    shown = ', '.join(
        f'{name} {memory.show(size)}' for name, size in parts.items()
    )
    fits = [
        other
        for k in range(6, 40)
        for other in (2**k, 3 * 2 ** (k - 1))
        if other < length and peak_of(self._needs(1, other)) <= self._available
    ]
    way_out = (
        f'--max_input_length={max(fits)} fits' if fits else 'no length fits'
    )
    return InputError(
        f'{job.document.id}: {len(job.ids)} tokens need about '
        f'{memory.show(peak_of(parts))} ({shown}), but '
        f'{memory.show(self._available)} are available: {way_out}'
    )

  def _needs(self, batch, length):
    return needed_bytes(
        self._summarizer.model,
        self._summarizer.params,
        batch,
        length,
        self._settings,
    )
