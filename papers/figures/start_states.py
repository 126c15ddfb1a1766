"""How alike the start states of SimCAS's chunks are, layer by layer (figure 8).

The exchange between the layers makes the start states v of a document's chunks
alike. Their directions say little, since nearly all cosines are 1; so the paper
(appendix H) also looks at

  Sim(v1, v2) = (v1 . v2) / (|v1| |v2| (1 + |v1 - v2|)).

Axes: B documents, C chunks, L tokens of a chunk, D d_model.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax.errors import InputError
from locost_jax.models import simcas
from locost_jax.models import stack
from locost_jax.summarizing import reading
from papers.figures import one_document
from papers.figures import style


@functools.partial(jax.jit, static_argnums=0)
def after_layers(model, params, inputs, input_mask=None):
  """Computes the chunks' start states after each layer of the encoder.

  They are [num_layers, B, C, D], before the exchange; arbitrary for a chunk
  without tokens. The inputs and their mask are [B, C, L].
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
  states = np.asarray(states, np.float64)
  norms = np.linalg.norm(states, axis=-1, keepdims=True)
  units = states / np.maximum(norms, np.finfo(float).tiny)
  return units @ units.swapaxes(-1, -2)


def similarities(states):
  """Sim between states, see the module: [..., C, D] -> [..., C, C]."""
  states = np.asarray(states, np.float64)
  # One chunk at a time: all differences together are C times the states.
  by_chunk = np.moveaxis(states, -2, 0)[..., None, :]
  distances = [np.linalg.norm(states - one, axis=-1) for one in by_chunk]
  return cosines(states) / (1 + np.stack(distances, -2))


def of_document(summarizer, text):
  """Returns the start states of a text's chunks, [num_layers, C, D]."""
  if not isinstance(summarizer.config, simcas.SimCASConfig):
    raise InputError('this model has no chunks: expected a SimCAS')
  pages = summarizer.read(text).pages
  shape = len(pages), max(map(len, pages))
  chunks, _ = reading.pad([pages], shape, summarizer.settings.pad_id)
  return after_layers(summarizer.model, summarizer.params, chunks)[:, 0]


def draw(workdir, document):
  """Similarity of the chunks' start states, by layer (SimCAS 8)."""
  states = of_document(*one_document.load(workdir, document)[:2])
  return draw_matrices(np.stack([cosines(states), similarities(states)]))


def draw_matrices(matrices):
  """Draws cosines (upper row) and Sim (lower): [2, layers, C, C]."""
  rows, layers = matrices.shape[:2]
  columns = min(6, layers)
  figure, axes = style.make_figure(rows * -(-layers // columns), columns, 2, 2)
  least = min(0.0, float(np.min(matrices)))
  look = dict(vmin=least, vmax=1, cmap='viridis')
  for number, axis in enumerate(axes.flat):
    band, column = divmod(number, columns)
    row, layer = band % rows, band // rows * columns + column
    if layer >= layers:
      axis.remove()
      continue
    image = axis.imshow(matrices[row, layer], **look)
    axis.set_title(f'{("cosine", "Sim")[row]}, layer {layer + 1}')
    axis.spines[:].set_visible(True)
    for side in axis.xaxis, axis.yaxis:
      side.get_major_locator().set_params(integer=True)
  figure.supxlabel('chunk', fontsize=9)
  figure.supylabel('chunk', fontsize=9)
  figure.colorbar(image, ax=list(figure.axes), shrink=0.6)
  return figure
