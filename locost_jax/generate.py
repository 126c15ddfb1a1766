"""A model at work: documents read, summaries written, on the device.

`generate` is one compiled program from tokens to tokens.
`generate_with_progress` is a loop on the host over the same pieces, `encode`,
`begin`, `advance`, `finish`, for those who want to see how far it is.

Axes: B documents, L input length, T max_length, V vocabulary.
"""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import decode

# Tokens written between two looks at the state: few enough for a display, many
# enough that the look costs nothing.
CHUNK = 16


@functools.partial(jax.jit, static_argnums=0)
def encode(model, params, inputs, input_mask):
  """inputs [B, L], input_mask [B, L] or None -> the model's memory."""
  return model.apply({'params': params}, inputs, input_mask, method='encode')


@functools.partial(jax.jit, static_argnums=0)
def logits(model, params, inputs, targets_in, input_mask):
  """The whole decoder at once: targets_in [B, T] -> [B, T, V]."""
  return model.apply({'params': params}, inputs, targets_in, input_mask)


@functools.partial(jax.jit, static_argnums=(0, 3))
def begin(model, params, memory, settings, seeds=None):
  """Before the first token.

  Args:
    model: the Flax module; static.
    params: its parameters.
    memory: of `encode`.
    settings: a checked `decode.Settings`; static.
    seeds: uint32 [B] of `document_seeds`; only sampling needs them.

  Returns:
    (shared, state), for `advance`.
  """
  shared, per_row = model.apply({'params': params}, memory, settings.max_length,
                                method='init_cache')
  batch_size = jax.tree.leaves(per_row)[0].shape[0]
  keys = None if seeds is None else jax.vmap(jax.random.key)(seeds)
  return shared, decode.begin(settings, per_row, batch_size, keys)


@functools.partial(jax.jit, static_argnums=(0, 2))
def advance(model, params, settings, shared, state, until):
  """`decode.advance` with the model's step; until is a scalar, traced."""
  step = functools.partial(model.apply, {'params': params}, method='step')
  return decode.advance(settings, step, shared, state, until)


finish = functools.partial(jax.jit, static_argnums=0)(decode.finish)


@functools.partial(jax.jit, static_argnums=(0, 4))
def generate(model, params, inputs, input_mask, settings, seeds=None):
  """Summaries of a batch, as one program.

  Args:
    model: the Flax module; static.
    params: its parameters.
    inputs: [B, L] token ids.
    input_mask: [B, L], or None: where inputs are not pad.
    settings: a checked `decode.Settings`; static.
    seeds: uint32 [B] of `document_seeds`; only sampling needs them.

  Returns:
    tokens int32 [B, T], up to and including eos, then pad; scores [B] as in
    `decode`.
  """
  memory = encode(model, params, inputs, input_mask)
  shared, state = begin(model, params, memory, settings, seeds)
  state = advance(model, params, settings, shared, state, settings.max_length)
  return finish(settings, state)


def generate_with_progress(model, params, inputs, input_mask, settings, seeds,
                           progress):
  """The same with a look at the state every CHUNK tokens.

  Args:
    model, params, inputs, input_mask, settings, seeds: as in `generate`.
    progress: called as progress(stage, done, total): stage 'encoding', in parts
      of the encoder; then 'decoding', in tokens written of max_length. Decoding
      ends below it when every document is done.

  Returns:
    As `generate`.
  """
  memory = _encode_with_progress(model, params, inputs, input_mask, progress)
  shared, state = begin(model, params, memory, settings, seeds)
  del memory
  written, done = 0, False
  progress('decoding', 0, settings.max_length)
  while written < settings.max_length and not done:
    state = advance(model, params, settings, shared, state,
                    jnp.int32(written + CHUNK))
    written, done = int(state['position']), bool(state['done'].all())
    progress('decoding', written, settings.max_length)
  return finish(settings, state)


def _encode_with_progress(model, params, inputs, input_mask, progress):
  progress('encoding', 0, 1)
  memory = encode(model, params, inputs, input_mask)
  jax.block_until_ready(memory)
  progress('encoding', 1, 1)
  return memory


def document_seeds(inputs, input_mask, seed):
  """A number per document that depends on its tokens and the seed alone.

  What is sampled for a document therefore depends neither on its batch nor on
  its padding.

  Args:
    inputs: numpy [B, L].
    input_mask: numpy [B, L], true at tokens.
    seed: a non-negative integer.

  Returns:
    uint32 [B].
  """
  start = zlib.crc32(str(int(seed)).encode())
  rows = (np.asarray(row[keep], '<i4').tobytes()
          for row, keep in zip(inputs, np.asarray(input_mask, bool)))
  return np.array([zlib.crc32(row, start) for row in rows], np.uint32)
