"""LOCOST with SimCAS's selector: reads a whole book, decodes from a part.

LOCOST's encoder reads all tokens as one sequence; no chunk is read alone, and
there are no marks to exchange. The decoder attends only to the selected ones of
its states h[1], .., h[L], in reading order. The selector (`selector`) goes over
chunks of `chunk_length` tokens. Every token can be selected, the first of a
chunk too, g_0 is the mean of all tokens, and the decoder does not read it: for
a document that is kept whole the result is LOCOST's.

Parameter paths are LOCOST's and `selector`, so a trained LOCOST is a warm start
for all but the selector. select, selection and limit are as in `simcas`.

Axes: B documents, L input length, C chunks, J tokens of a chunk, D d_model.
"""

import dataclasses

import jax.numpy as jnp

from locost_jax.models import copy_head
from locost_jax.models import encoder_decoder
from locost_jax.models import locost
from locost_jax.models import selector as selector_lib


@dataclasses.dataclass(frozen=True)
class SimCASLocostConfig(selector_lib.SelectingConfig, locost.LocostConfig):
  """LOCOST's keys, and those at the top of this module."""

  chunk_length: int = 512

  def seen(self, pages, length):
    """Returns (chunks, tokens of each) that the selector sees."""
    J = min(self.chunk_length, length)
    return pages * -(-length // J), J


class SimCASLocost(selector_lib.SelectingModel, encoder_decoder.EncoderDecoder):
  """The model: encode, decode, cache, step, of documents [B, L].

  The memory is {'states': [B, L, D], 'mask': bool [B, L]}: the mask is true at
  selected tokens.
  """

  config: SimCASLocostConfig

  MARKS = 0

  def chunk_states(
      self, inputs, input_mask=None, deterministic=True, seeds=None
  ):
    """`encode` up to the choice: states [B, C, J, D], mask, seeds [B]."""
    h, mask = self.embed(inputs, input_mask)
    states = self.encoder(h, mask, deterministic)
    return self.chunked(inputs, states, mask, seeds)

  def chunked(self, inputs, states, mask, seeds=None):
    """States of all tokens [B, L, D] -> those of `chunk_states`."""
    inputs, states, mask = map(self.in_chunks, (inputs, states, mask))
    if seeds is None:
      seeds = selector_lib.document_seeds(inputs, mask)
    return states, mask, seeds

  def memory(self, inputs, states, mask, actions):
    """Memory of `encode`: states [B, C, J, D], actions bool [B, C, J]."""
    del mask
    (B, L), D = inputs.shape, states.shape[-1]
    memory = {
        'states': states.reshape(B, -1, D)[:, :L],
        'mask': actions.reshape(B, -1)[:, :L],
    }
    return copy_head.with_tokens(self.config, memory, inputs)

  def kept(self, memory, inputs):
    """The mask of `encode`; memory: states and mask of all tokens."""
    seen = self.chunked(inputs, memory['states'], memory['mask'])
    return self.choose(*seen).reshape(len(inputs), -1)[:, : inputs.shape[1]]

  def in_chunks(self, x):
    """[B, L, ...] -> [B, C, J, ...], zeros behind the end."""
    C, J = self.config.seen(1, x.shape[1])
    padding = [(0, 0), (0, C * J - x.shape[1])] + [(0, 0)] * (x.ndim - 2)
    return jnp.pad(x, padding).reshape(len(x), C, J, *x.shape[2:])

  def attention(self, memory, targets_in, written):
    """Where the decoder looks, see `SelectingModel`: float32 [B, C, 1 + J].

    In SimCAS's layout, with 0 in place of g_0 and of the start marks.
    """
    mass = self.in_chunks(super().attention(memory, targets_in, written))
    return jnp.pad(mass, ((0, 0), (0, 0), (1, 0)))
