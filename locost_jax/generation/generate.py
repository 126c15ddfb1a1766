"""Encodes documents and writes summaries on the device.

`generate_in_one_program` is one compiled program from tokens to tokens.
`generate` is the same, unless the model can drop from its memory what the
decoder does not read: then it encodes, drops that, and decodes.
`generate_in_steps` runs the same parts in a loop on the host, one layer of the
encoder or CHUNK tokens at a time, and reports its progress.

Axes: B documents, L input length, T max_length, V vocabulary.
"""

import functools
import itertools
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

  Kernels are kept from the second input of a length on, so that a book read
  once takes no memory afterwards. Together they take at most KEPT_BYTES; the
  least recently used are dropped.
  """

  def __init__(self, model, params):
    self._model, self._params = model, params
    self._kept = {}  # length -> kernels or None, the most recently used last

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


@functools.partial(jax.jit, static_argnums=0)
def encode(model, params, inputs, input_mask):
  """inputs [B, L], input_mask [B, L] or None -> the model's memory."""
  return low_memory_encoder.encode(model, params, inputs, input_mask)


def encode_in_steps(
    model, params, inputs, input_mask, kernels=None, progress=None
):
  """`encode`, layer by layer for models that come in parts.

  Args:
    kernels: of `low_memory_encoder.kernels` for L; None: made for this call.
    progress: None, or called as progress('encoding', layers done, layers).
  """
  layers = model.config.num_layers
  if not model.config.comes_in_parts:
    if progress:
      progress('encoding', 0, layers)
    memory = encode(model, params, inputs, input_mask)
    if progress:
      jax.block_until_ready(memory)
      progress('encoding', layers, layers)
    return memory
  h, mask = low_memory_encoder.embed(model, params, inputs, input_mask)
  for index in range(layers):
    if progress:
      jax.block_until_ready(h)
      progress('encoding', index, layers)
    own = None if kernels is None else kernels[index]
    h = low_memory_encoder.encoder_layer(model, params, index, h, mask, own)
  memory = low_memory_encoder.finish(model, params, h, mask)
  memory = low_memory_encoder.choose(model, params, memory, inputs)
  if progress:
    jax.block_until_ready(memory)
    progress('encoding', layers, layers)
  return memory


@functools.partial(jax.jit, static_argnums=0)
def logits(model, params, inputs, targets_in, input_mask):
  """The whole decoder at once: targets_in [B, T] -> [B, T, V]."""
  return model.apply({'params': params}, inputs, targets_in, input_mask)


@functools.partial(jax.jit, static_argnums=(0, 3))
def begin(model, params, memory, settings, seeds=None, inputs=None):
  """The state before the first token.

  Args:
    settings: a checked `decode_settings.Settings`; static.
    seeds: uint32 [B] of `document_seeds`; only sampling needs them.
    inputs: of `inputs_to_ban`.

  Returns:
    (shared, state), for `advance`.
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


def generate(model, params, inputs, input_mask, settings, seeds=None):
  """Summaries of a batch.

  Args:
    model: the Flax module; static. `compact_memory(memory)`, if it has one,
      returns an equivalent memory with fewer slots. It reads the values, so
      that this function cannot be jitted then.
    inputs: [B, L] token ids.
    input_mask: [B, L], or None: where inputs are not pad.
    settings: a checked `decode_settings.Settings`; static.
    seeds: uint32 [B] of `document_seeds`; only sampling needs them.

  Returns:
    tokens int32 [B, T], up to and including eos, then pad; scores [B] as in
    `decode`.
  """
  if not model.config.is_compacted:
    return generate_in_one_program(
        model, params, inputs, input_mask, settings, seeds
    )
  memory = encode(model, params, inputs, input_mask)
  memory = model.compact_memory(memory)
  inputs = inputs_to_ban(settings, inputs, input_mask)
  return decode_memory(model, params, memory, settings, seeds, inputs)


@functools.partial(jax.jit, static_argnums=(0, 4))
def generate_in_one_program(
    model, params, inputs, input_mask, settings, seeds=None
):
  """`generate`, decoding from the whole memory."""
  memory = encode(model, params, inputs, input_mask)
  inputs = inputs_to_ban(settings, inputs, input_mask)
  return decode_memory(model, params, memory, settings, seeds, inputs)


def inputs_to_ban(settings, inputs, input_mask):
  """Returns the ids for encoder_no_repeat_ngram_size, or None if it is 0.

  Padding becomes an id that no vocabulary has.
  """
  if not settings.encoder_no_repeat_ngram_size:
    return None
  if input_mask is None:
    input_mask = inputs != settings.pad_id
  return jnp.where(input_mask, inputs, np.iinfo(np.int32).max)


@functools.partial(jax.jit, static_argnums=(0, 3))
def decode_memory(model, params, memory, settings, seeds=None, inputs=None):
  """Returns the summaries of a memory; see `generate` and `begin`."""
  shared, state = begin(model, params, memory, settings, seeds, inputs)
  state = advance(model, params, settings, shared, state, settings.max_length)
  return finish(settings, state)


def generate_in_steps(
    model,
    params,
    inputs,
    input_mask,
    settings,
    seeds=None,
    kernels=None,
    progress=None,
    on_encoded=None,
):
  """`generate`, reading the state every CHUNK tokens.

  Args:
    model, params, inputs, input_mask, settings, seeds: as in `generate`.
    kernels: as in `encode_in_steps`.
    progress: None, or called as progress(stage, done, total): stage 'encoding',
      in layers; then 'decoding', in tokens of max_length. Decoding ends earlier
      when every document is done.
    on_encoded: None, or called with the whole memory of `encode`.

  Returns:
    As `generate`.
  """
  memory = encode_in_steps(model, params, inputs, input_mask, kernels, progress)
  if on_encoded:
    on_encoded(memory)
  inputs = inputs_to_ban(settings, inputs, input_mask)
  steps = decode_in_steps(model, params, memory, settings, seeds, CHUNK, inputs)
  del memory
  state = next(steps)
  for state in itertools.chain([state], steps):
    if progress:
      progress('decoding', int(state['position']), settings.max_length)
  return finish(settings, state)


def decode_in_steps(
    model, params, memory, settings, seeds=None, chunk=CHUNK, inputs=None
):
  """Yields the state of `decode` before the first token and after each chunk.

  Each state is donated to the next step: read it before asking for the next.

  Args:
    model, params, settings, seeds: as in `generate`.
    chunk: tokens written between two states.
    inputs: of `inputs_to_ban`.
  """
  if model.config.is_compacted:
    memory = model.compact_memory(memory)
  shared, state = begin(model, params, memory, settings, seeds, inputs)
  del memory
  written, done = 0, False
  yield state
  while written < settings.max_length and not done:
    state = advance(
        model, params, settings, shared, state, jnp.int32(written + chunk)
    )
    written, done = int(state['position']), bool(state['done'].all())
    yield state


def document_seeds(inputs, input_mask, seed):
  """A number per document that depends on its tokens and the seed alone.

  So the samples of a document depend neither on its batch nor on its padding.

  Args:
    inputs: numpy [B, L].
    input_mask: numpy [B, L], true at tokens.
    seed: a non-negative integer.

  Returns:
    uint32 [B].
  """
  start = zlib.crc32(str(int(seed)).encode())
  rows = (
      np.asarray(row[keep], '<i4').tobytes()
      for row, keep in zip(inputs, np.asarray(input_mask, bool))
  )
  return np.array([zlib.crc32(row, start) for row in rows], np.uint32)
