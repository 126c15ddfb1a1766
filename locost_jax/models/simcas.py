"""SimCAS (Xie et al., ACL 2024): BART over chunks: chunk, align, select.

A document is cut into chunks, which are rows of BART's encoder; positions begin
at 0 in each. Between its layers the chunks exchange the states of their start
and end marks (`ops.chunks`), and of the last layer's states H the decoder reads

  [g_0, the selected ones of H[c, j], j > 0, in reading order]

where g_0 is the mean of the chunks' start states (`models.selector`). For a
document of one chunk the result is BART's. Parameter paths are BART's and
`selector`, which has parameters even if it selects nothing.

chunk: 'many', as many as the document needs; 'one': only its beginning, up to
  max_positions tokens, is read as one sequence (the ablation of table 5).
align: 'shift' (the release), 'mean' (equation 5), 'none'.
select: 'ppo', the selector's choice; 'first_k', the first `limit` tokens;
  'none', every token is kept.
selection: how the selector chooses: 'sample', with the document's own random
  numbers (the release, in inference too), or 'argmax'.
padding: what counts as a token. 'tokens': everything but padding; 'release':
  everything up to a chunk's last token, also padding before its end mark.

Inputs are [B, C, L]; [B, L] is one chunk. Documents are independent, and chunks
without tokens are ignored. Axes: B documents, C chunks, L tokens of a chunk,
J = L - 1 those that can be selected, T target length, D d_model.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import bart
from locost_jax.models import copy_head
from locost_jax.models import model_config
from locost_jax.models import selector as selector_lib
from locost_jax.models import stack
from locost_jax.ops import chunks
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import tokenwise


@model_config.with_keys('simcas')
class SimCASConfig(bart.BartConfig):
  """The config of a SimCAS; see the top of this module."""

  is_compacted = True

  @property
  def page_forms(self):
    """See `ModelConfig`."""
    return () if self.chunk == 'one' else ('chunks', 'sentence_chunks')

  def decoder_rows(self, pages, length):
    """Returns (rows, tokens of each) that the decoder reads of a document."""
    return 1, pages * length

  def further_flops(self, batch, pages, length):
    """Operations of the actor in a step that does not train it."""
    D, J = self.d_model, length - 1
    of_token = 2.0 * (D * 2 * D + 2 * D * 2 * D + 2 * D * 2)
    of_chunk = J * of_token + 2.0 * D * 2 * D
    return {'selector': (self.select == 'ppo') * batch * pages * of_chunk}


class EncoderLayer(bart.EncoderLayer):
  """The exchange and a layer of the encoder; a step of `nn.scan`."""

  def __call__(self, h, mask, deterministic, in_pieces=False):
    """One layer: h ([B, C, L, D], whether this is the first layer) -> h, None.

    Args:
      mask: bool [B, C, L].
      in_pieces: runs a few chunks at a time, of which the backward pass keeps h
        only, with other dropout masks. Not for initialisation.
    """
    h, is_first = h
    exchanged = chunks.exchange(h, mask, self.config.align)
    h = jnp.where(is_first, h, exchanged)
    read = self.in_groups if in_pieces else self.rows
    read = functools.partial(read, deterministic=deterministic)
    return (mesh_lib.by_page(read, h, mask), jnp.bool_(False)), None

  def rows(self, h, mask, deterministic=True):
    """BART's layer: h [R, L, D], mask [R, L] -> h."""
    return super().__call__(h, mask, deterministic)[0]

  def in_groups(self, h, mask, deterministic):
    """`rows`, a few at a time."""
    shape, devices = h.shape, mesh_lib.row_parts()
    R, L, _ = shape
    tokens = R // devices * L
    h, mask = (x.reshape(devices, -1, *x.shape[1:]) for x in (h, mask))
    h = tokenwise.method(
        self,
        'group',
        h,
        mask,
        draws=not deterministic and self.config.has_dropout,
        size=max(1, tokenwise.piece_length(1, tokens) // L),
    )
    return h.reshape(shape)

  def group(self, h, mask, deterministic=True):
    """`rows` of h [1, G, L, D], mask [1, G, L]."""
    rows = self.rows(
        *(x.reshape(-1, *x.shape[2:]) for x in (h, mask)), deterministic
    )
    return rows.reshape(h.shape)


class Encoder(bart.Encoder):
  """Vectors of tokens [B, C, L, D], mask [B, C, L] -> states [B, C, L, D]."""

  LAYER = EncoderLayer

  def embed(self, h):
    """Vectors of tokens -> with positions, normed."""
    return mesh_lib.by_page(super().embed, h)

  def start(self, h, mask):
    """See `bart.Encoder`: whether this is the first layer, too."""
    return (h, jnp.bool_(True)), mask


class SimCAS(selector_lib.SelectingModel, bart.Bart):
  """The model: encode, decode, cache, step, of chunks.

  The memory is {'states': [B, C, L, D], 'mask': bool [B, C, L]}: g_0 is at [0,
  0], and the mask is true there and at selected tokens.
  """

  config: SimCASConfig

  ENCODER = Encoder

  def chunk_states(
      self, inputs, input_mask=None, deterministic=True, seeds=None
  ):
    """`encode` up to the choice: states [B, C, L, D], mask, seeds [B].

    Raises:
      InputError: a chunk has more tokens than there are positions, C is not 1
        with chunk='one', or `sequence` does not divide C.
    """
    inputs, input_mask = jax.tree.map(stack.as_pages, (inputs, input_mask))
    if self.config.chunk == 'one' and inputs.shape[1] > 1:
      raise InputError(
          f"inputs have {inputs.shape[1]} chunks: model.chunk='one' reads one"
      )
    is_text = inputs != self.config.pad_id
    mask = is_text if input_mask is None else input_mask.astype(bool)
    if self.config.padding == 'release':
      mask = chunks.up_to_last(mask)
    elif input_mask is not None:
      mask &= is_text
    if seeds is None:
      seeds = selector_lib.document_seeds(inputs, mask)
    h = self.encoder.embed(self.vectors(inputs))
    return self.encoder(h, mask, deterministic), mask, seeds

  def memory(self, inputs, states, mask, actions):
    """Memory of `encode`: states [B, C, L, D], actions bool [B, C, J]."""
    is_chunk = mask.any(-1)
    first = selector_lib.first_state(states, mask)
    is_read = jnp.pad(actions, ((0, 0), (0, 0), (1, 0)))
    memory = {
        'states': states.at[:, 0, 0].set(first),
        'mask': is_read.at[:, 0, 0].set(is_chunk.any(1)),
    }
    inputs = inputs.reshape(mask.shape)
    return copy_head.with_tokens(self.config, memory, inputs)

  def sources(self, memory):
    """All chunks in reading order; g_0 has the first token's place."""
    return stack.in_line(memory)

  def source(self, memory):
    """`CopyingModel.source` without the padding that the release reads."""
    if not self.config.copy:
      return None
    is_text = memory['tokens'] != self.config.pad_id
    return super().source(memory | {'mask': memory['mask'] & is_text})
