"""Encoder inference in little memory.

A layer keeps two arrays of the input's length, h [B, L, D] and u [D, B, L]:

  u = inward(h)              in pieces of the length
  u <- mix(u)                in groups of channels, each over its input
  h <- outward(h, u)         in pieces of the length, each over its input

so that hidden units of the feed-forward exist for one piece and transforms for
one group at a time. Same results as `model.apply(..., method='encode')`. Other
models than those whose mixer has these parts (see `encoder`) encode the whole
input at once, with attention scores in pieces.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.models import copy_head
from locost_jax.models import encoder as encoder_lib
from locost_jax.models import parameters
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces

# Tokens in one piece, over all documents. CPU: the hidden units of a piece stay
# near its cache. Elsewhere larger products are faster.
CPU_PIECE = 2048
PIECE = 16384


def make_layer(model):
  """The encoder layer of a model that comes in parts, unbound."""
  return encoder_lib.EncoderLayer(model.config, model.dtype, model.make_mixer)


def kernel_bytes(model, length):
  """Bytes of the result of `kernels`; 0 for a model without them."""
  return model.config.num_layers * model.config.kernel_bytes(length)


@functools.partial(jax.jit, static_argnums=(0, 2))
def kernels(model, params, length):
  """The spectra of all layers' kernels for inputs of this length.

  [layers, D, ...]: as many bytes as kernels in time, and one transform fewer per
  call.
  """
  layer = make_layer(model)
  return jax.lax.map(
      lambda p: layer.apply(
          {'params': p}, method=lambda layer: layer.mixer.spectra(length)
      ),
      params['encoder']['layers'],
  )


def encoder_bytes(model, params, batch, length):
  """Estimates the peak bytes of `encode` for [B, L], without the parameters.

  h and u, then the larger of the feed-forward of one piece (inputs, hidden
  units and norms: 3 F + 4 D numbers per token) and the transforms of one group
  (four arrays of its size, and the tables of its kernels), and one layer's
  parameters. On the CPU, base size, 4K to 256K tokens: 1.03 to 1.26 times what
  XLA reports as temporary memory and result. Models with attention have whole
  states, queries, keys and values, and two pieces of scores.
  """
  config = model.config
  D, F = config.d_model, config.d_ff
  wide = batch * length * D * model.dtype.itemsize
  mixer = config.mixer_bytes(batch, length)
  hidden = 4 * batch * (3 * F + 4 * D)  # of a token
  if not model.config.comes_in_parts:
    return 8 * wide + length * hidden + mixer
  layer = 4 * parameters.count(params['encoder']['layers']) // config.num_layers
  piece = _piece_length(batch, length) * hidden
  return 2 * wide + max(piece, mixer) + layer


def encode(model, params, inputs, input_mask=None, kernels=None):
  """Reads the documents: `model.encode` without dropout, in little memory.

  kernels is of the function `kernels` for L; None: made layer by layer.
  """
  # Documents split over devices already run in pieces.
  if (
      mesh_lib.axis_size(mesh_lib.SEQUENCE) > 1
      or not model.config.comes_in_parts
  ):
    return model.apply({'params': params}, inputs, input_mask, method='encode')
  h, mask = embed(model, params, inputs, input_mask)

  def run(index, h):
    return _layer(model, params, index, h, mask, kernels)

  h = jax.lax.fori_loop(0, model.config.num_layers, run, h)
  return finish(model, params, h, mask, inputs)


@functools.partial(jax.jit, static_argnums=0)
def embed(model, params, inputs, input_mask=None):
  """The first part of `encode`: -> h [B, L, D], mask [B, L]."""
  return model.apply({'params': params}, inputs, input_mask, method='embed')


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def finish(model, params, h, mask, inputs):
  """The last part of `encode`; h's memory is taken for the states."""
  norm = model.config.make_norm(model.dtype)
  variables = {'params': params['encoder']['norm']}
  states = _over_pieces(lambda part, _: norm.apply(variables, part), h)
  memory = {'states': states, 'mask': mask}
  return copy_head.with_tokens(model.config, memory, inputs)


def _layer(model, params, index, h, mask, kernels=None):
  """A layer of `encode`; arguments as there."""
  layer = make_layer(model)
  p = jax.tree.map(
      lambda x: jax.lax.dynamic_index_in_dim(x, index, 0, keepdims=False),
      params['encoder']['layers'],
  )
  run = functools.partial(layer.apply, {'params': p})

  def spectrum(start, count):
    _, _, *bins = kernels.shape
    first = index, start, *[0] * len(bins)
    return jax.lax.dynamic_slice(kernels, first, (1, count, *bins))[0]

  def mix(layer, u):
    return layer.mixer.mix(u, None if kernels is None else spectrum)

  u = _over_pieces(
      lambda _, take: run(take(h, 1), take(mask, 1), method='inward'),
      jnp.zeros_like(h, shape=(h.shape[2], *h.shape[:2])),
      2,
  )
  y = run(u, method=mix)
  return _over_pieces(
      lambda part, take: run(part, take(y, 2), method='outward'), h
  )


# One program for all layers; h gives its memory to the result.
encoder_layer = functools.partial(jax.jit, static_argnums=0, donate_argnums=3)(
    _layer
)


def _over_pieces(update, h, axis=1):
  """h [B, L, D] with every piece replaced by update(piece, take).

  take(x, axis) is the same piece of another array, along its axis of length.
  axis: that of h; 2 for [D, B, L].
  """
  B, L = h.shape[axis - 1 : axis + 1]
  size = _piece_length(B, L)

  def run(piece, h):
    part = piece.take(h, axis)
    # Elements shared with the previous piece have already been replaced.
    new = piece.choose(update(part, piece.take), part, axis)
    return piece.put(h, new, axis)

  return pieces.over(L, size, run, h)


def _piece_length(batch, length):
  return pieces.of_tokens(
      CPU_PIECE if mesh_lib.platform() == 'cpu' else PIECE, batch, length
  )
