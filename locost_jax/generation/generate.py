"""Encodes documents and writes summaries on the device.

`encode` reads, `generate` reads and writes. `generate` is one compiled program
from tokens to tokens, unless the model can drop from its memory what the
decoder does not read: then it reads, drops that, and writes. With `Steps` it
runs the same parts in a loop on the host, one layer of the encoder or CHUNK
tokens at a time, and reports its progress; so does `encode`.

Axes: B documents, L input length, T max_length, V vocabulary.
"""

import collections
from collections.abc import Callable
import dataclasses
import functools
from typing import Any
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax.generation import decode
from locost_jax.models import low_memory_encoder

# Tokens written between two reads of the state: few enough for a progress
# display, many enough that reading costs nothing.
CHUNK = 16
# Limit for the encoder's kernels in memory: at the paper's size they take 1.1
# GiB for inputs of 16K tokens.
KEPT_BYTES = 2 << 30


class KeptKernels:
  """A cache of the encoder's kernels, which depend on weights and length only.

  They are kept from the second input of a length on, so that a book read once
  takes no memory afterwards, or from the first where `expect` knows of more.
  Together they take at most KEPT_BYTES; the least recently used are dropped.
  """

  def __init__(self, model, params):
    self._model, self._params = model, params
    self._kept = {}  # length -> kernels or None, the most recently used last

  def expect(self, lengths):
    """lengths: of all inputs that follow; those that recur are kept at once."""
    counts = collections.Counter(lengths)
    self._kept = {n: None for n in counts if counts[n] > 1} | self._kept

  def get(self, length):
    """Returns the kernels for inputs of this length, or None."""
    kept = self._kept
    size = functools.partial(low_memory_encoder.kernel_bytes, self._model)
    if not 0 < size(length) <= KEPT_BYTES:
      return None
    is_first, kernels = length not in kept, kept.pop(length, None)
    if kernels is None and not is_first:
      kernels = low_memory_encoder.kernels(self._model, self._params, length)
    kept[length] = kernels
    while sum(size(n) for n in kept if kept[n] is not None) > KEPT_BYTES:
      kept.pop(next(iter(kept)))
    return kernels


@dataclasses.dataclass(frozen=True)
class Steps:
  """How `encode` and `generate` run in a loop on the host.

  Attributes:
    kernels: of `low_memory_encoder.kernels` for L; None: made for this call.
    progress: None, or called as progress(stage, done, total): stage 'encoding',
      in layers; then 'decoding', in tokens of max_length. Decoding ends earlier
      when every document is done.
    on_encoded: None, or called with the whole memory of `encode`.
  """

  kernels: Any = None
  progress: Callable | None = None
  on_encoded: Callable | None = None

  def report(self, stage, done, total, result=()):
    """Calls `progress`, if given, when `result` is there."""
    if self.progress:
      jax.block_until_ready(result)
      self.progress(stage, done, total)


@functools.partial(jax.jit, static_argnums=0)
def read(model, params, inputs, input_mask):
  """`encode` as one program."""
  return low_memory_encoder.encode(model, params, inputs, input_mask)


def encode(model, params, inputs, input_mask, steps=Steps()):
  """Reads documents, layer by layer for models that come in parts: a memory.

  inputs [B, L], or [B, P, L] of a model that reads pages; input_mask of their
  shape, or None: where inputs are not pad.
  """
  layers = model.config.num_layers
  if model.config.comes_in_parts:
    h, mask = low_memory_encoder.embed(model, params, inputs, input_mask)
    for index in range(layers):
      steps.report('encoding', index, layers, h)
      h = low_memory_encoder.encoder_layer(
          model, params, index, h, mask, steps.kernels
      )
    memory = low_memory_encoder.finish(model, params, h, mask, inputs)
  else:
    steps.report('encoding', 0, layers)
    memory = read(model, params, inputs, input_mask)
  steps.report('encoding', layers, layers, memory)
  return memory


@functools.partial(jax.jit, static_argnums=0)
def logits(model, params, inputs, targets_in, input_mask):
  """The whole decoder at once: targets_in [B, T] -> [B, T, V]."""
  return model.apply({'params': params}, inputs, targets_in, input_mask)


@functools.partial(jax.jit, static_argnums=(0, 3))
def begin(model, params, memory, settings, seeds=None, inputs=None):
  """The state before the first token: (shared, state), for `advance`.

  seeds: uint32 [B] of `document_seeds`; only sampling needs them. inputs: of
  `_inputs_to_ban`.
  """
  shared, per_row = model.apply(
      {'params': params}, memory, settings.max_length, method='init_cache'
  )
  batch_size = jax.tree.leaves(per_row)[0].shape[0]
  keys = None if seeds is None else jax.vmap(jax.random.key)(seeds)
  return shared, decode.begin(settings, per_row, batch_size, keys, inputs)


@functools.partial(jax.jit, static_argnums=(0, 2), donate_argnums=4)
def advance(model, params, settings, shared, state, until):
  """`decode.advance` with the model's step; until is a scalar, traced.

  The state is donated: its caches are written in place.
  """
  step = functools.partial(model.apply, {'params': params}, method='step')
  return decode.advance(settings, step, shared, state, until)


finish = functools.partial(jax.jit, static_argnums=0)(decode.finish)


def generate(
    model, params, inputs, input_mask, settings, seeds=None, steps=None
):
  """Summaries of a batch: int32 [B, T], up to and including eos, then pad.

  Also their scores [B] as in `decode`.

  Args:
    model, params, inputs, input_mask: see `encode`. A model whose config
      `is_compacted` has compact_memory(memory), which reads the values of the
      memory: then this function cannot be jitted.
    settings: a checked `decode_settings.Settings`; static.
    seeds: uint32 [B] of `document_seeds`; only sampling needs them.
    steps: None: as few programs as can be.
  """
  is_compacted = model.config.is_compacted
  if steps is None and not is_compacted:
    return read_and_write(model, params, inputs, input_mask, settings, seeds)
  if steps is None:
    memory = read(model, params, inputs, input_mask)
  else:
    memory = encode(model, params, inputs, input_mask, steps)
  if steps is not None and steps.on_encoded:
    steps.on_encoded(memory)
  if is_compacted:
    memory = model.compact_memory(memory)
  inputs = _inputs_to_ban(settings, inputs, input_mask)
  if steps is None:
    return write(model, params, memory, settings, seeds, inputs)
  shared, state = begin(model, params, memory, settings, seeds, inputs)
  del memory
  written, done = 0, False
  steps.report('decoding', 0, settings.max_length)
  while written < settings.max_length and not done:
    until = np.int32(written + CHUNK)
    state = advance(model, params, settings, shared, state, until)
    written, done = int(state['position']), np.asarray(state['done']).all()
    steps.report('decoding', written, settings.max_length)
  return finish(settings, state)


@functools.partial(jax.jit, static_argnums=(0, 4))
def read_and_write(model, params, inputs, input_mask, settings, seeds=None):
  """`generate` as one program, which decodes from the whole memory."""
  memory = read(model, params, inputs, input_mask)
  inputs = _inputs_to_ban(settings, inputs, input_mask)
  return write(model, params, memory, settings, seeds, inputs)


@functools.partial(jax.jit, static_argnums=(0, 3))
def write(model, params, memory, settings, seeds=None, inputs=None):
  """Returns the summaries of a memory; see `generate` and `begin`."""
  shared, state = begin(model, params, memory, settings, seeds, inputs)
  state = advance(model, params, settings, shared, state, settings.max_length)
  return finish(settings, state)


def _inputs_to_ban(settings, inputs, input_mask):
  """Returns the ids for encoder_no_repeat_ngram_size, or None if it is 0.

  Padding becomes an id that no vocabulary has.
  """
  if not settings.encoder_no_repeat_ngram_size:
    return None
  if input_mask is None:
    input_mask = inputs != settings.pad_id
  return jnp.where(input_mask, inputs, np.iinfo(np.int32).max)


def document_seeds(inputs, input_mask, seed):
  """A uint32 per document that depends on its tokens and the seed alone.

  So the samples of a document depend neither on its batch nor on its padding.
  inputs and input_mask are numpy [B, L].
  """
  start = zlib.crc32(str(int(seed)).encode())
  rows = (
      np.asarray(row[keep], '<i4').tobytes()
      for row, keep in zip(inputs, np.asarray(input_mask, bool))
  )
  return np.array([zlib.crc32(row, start) for row in rows], np.uint32)
