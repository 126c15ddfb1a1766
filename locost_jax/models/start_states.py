"""How alike the start states of SimCAS's chunks are, layer by layer (figure 8).

The exchange between the layers makes the start states v of a document's chunks
alike. Their directions say little, since nearly all cosines are 1; so the paper
(appendix H) also looks at

  Sim(v1, v2) = (v1 . v2) / (|v1| |v2| (1 + |v1 - v2|))

of the start states after each layer of the encoder.

Axes: B documents, C chunks, L tokens of a chunk, D d_model.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.models import layers
from locost_jax.models import simcas
from locost_jax.models import stack


@functools.partial(jax.jit, static_argnums=0)
def after_layers(model, params, inputs, input_mask=None):
  """Computes the chunks' start states after each layer of the encoder.

  Args:
    model: `simcas.SimCAS`; static.
    params: its parameters.
    inputs: [B, C, L] token ids.
    input_mask: of the same shape, true at tokens; None: where inputs are not
      pad_id.

  Returns:
    [num_layers, B, C, D], before the exchange; arbitrary for a chunk without
    tokens.
  """
  apply = functools.partial(model.apply, {'params': params})
  _, mask, _ = apply(inputs, input_mask, method='chunk_states')
  h = apply(inputs, method=lambda self, x: self.encoder.embed(self.vectors(x)))
  B, C, L = mask.shape
  in_pieces = stack.reads_in_pieces(model.config, model.remat, B * C, L)
  layer = simcas.EncoderLayer(model.config, model.dtype)

  def step(h, weights):
    h, _ = layer.apply({'params': weights}, h, mask, True, in_pieces)
    return h, h[0][:, :, 0]

  start = h, jnp.bool_(True)
  return jax.lax.scan(step, start, params['encoder']['layers'])[1]


def cosines(states):
  """The cosines between states: [..., C, D] -> [..., C, C]; 0 at zeros."""
  states = layers.at_least_float32(states)
  norms = jnp.linalg.norm(states, axis=-1, keepdims=True)
  units = states / jnp.maximum(norms, jnp.finfo(states.dtype).tiny)
  return jnp.einsum('...cd,...ed->...ce', units, units, precision='highest')


@jax.jit
def similarities(states):
  """Sim between states, see the module: [..., C, D] -> float32 [..., C, C]."""
  states = layers.at_least_float32(states)
  by_chunk = jnp.moveaxis(states, -2, 0)
  # One chunk at a time: all differences together are C times the states.
  distances = jax.lax.map(
      lambda one: jnp.linalg.norm(states - one[..., None, :], axis=-1), by_chunk
  )
  return cosines(states) / (1 + jnp.moveaxis(distances, 0, -2))
