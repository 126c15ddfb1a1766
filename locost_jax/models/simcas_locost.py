"""LOCOST with SimCAS's selector: reads a whole book, decodes from a part.

LOCOST's encoder reads all tokens as one sequence; no chunk is read alone, and
there are no marks to exchange. The decoder attends only to the selected ones of
its states h[1], .., h[L], in reading order. The selector (`selector`) goes over
chunks of `chunk_length` tokens, with

  g_0 = mean of h over the document
  g_c = (g_0 + sum of selected) / (1 + number of selected)

Three things differ from `simcas`. Every token can be selected, the first of a
chunk too, since it is no mark. g_0 is the mean of all tokens instead of the
start marks. And the decoder does not read g_0: for a document that is kept
whole (select='none', all tokens selected, or a single chunk) the result is
LOCOST's.

Parameter paths are LOCOST's and `selector`, so a trained LOCOST is a warm start
for all but the selector. select, selection and limit are as in `simcas`.

Axes: B documents, L input length, C chunks, J tokens of a chunk, T target
length, D d_model.
"""

import dataclasses

import jax
import jax.numpy as jnp

from locost_jax.errors import check_choice
from locost_jax.models import attention_mass
from locost_jax.models import encoder_decoder
from locost_jax.models import locost
from locost_jax.models import selected
from locost_jax.models import selector as selector_lib
from locost_jax.ops import pieces


@dataclasses.dataclass(frozen=True)
class SimCASLocostConfig(locost.LocostConfig):
  """LOCOST's keys, and those at the top of this module."""

  select: str = 'ppo'
  selection: str = 'sample'
  limit: int = 2048
  chunk_length: int = 512

  is_compacted = True

  def __post_init__(self):
    super().__post_init__()
    check_choice('model.select', self.select, ('ppo', 'first_k', 'none'))
    check_choice('model.selection', self.selection, ('sample', 'argmax'))

  def chunks(self, length):
    """(C, J): how many chunks of how many tokens inputs of this length have."""
    J = min(self.chunk_length, length)
    return -(-length // J), J

  def further_flops(self, batch, pages, length):
    """Operations of the actor in a step that does not train it.

    Args:
      batch: B, documents.
      pages: 1.
      length: L, input tokens of each.
    """
    if self.select != 'ppo':
      return {'selector': 0.0}
    D, (C, J) = self.d_model, self.chunks(length)
    of_token = 2.0 * (D * 2 * D + 2 * D * 2 * D + 2 * D * 2)
    of_chunk = J * of_token + 2.0 * D * 2 * D
    return {'selector': batch * pages * C * of_chunk}


class SimCASLocost(encoder_decoder.EncoderDecoder):
  """The model: encode, decode, cache, step, of documents [B, L].

  The memory is {'states': [B, L, D], 'mask': bool [B, L]}: the mask is true at
  selected tokens. `selected.compact` drops the rest.
  """

  config: SimCASLocostConfig

  # See `generation.generate`.
  compact_memory = staticmethod(selected.compact)

  def setup(self):
    super().setup()
    self.selector = selector_lib.Selector(self.config.d_model, self.dtype)

  def encode(self, inputs, input_mask=None, deterministic=True, seeds=None):
    """Reads documents and selects what the decoder reads.

    Args:
      inputs: [B, L] token ids.
      input_mask: [B, L], true at tokens; None: where inputs are not pad.
      seeds: uint32 [B], of sampling; None: computed from each document's
        tokens.

    Returns:
      {'states': [B, L, D], 'mask': bool [B, L]}.
    """
    memory = super().encode(inputs, input_mask, deterministic)
    if self.is_initializing():
      self.selector.judge(memory['states'], memory['states'][:, 0])
    return memory | {'mask': self.kept(memory, inputs, seeds)}

  def kept(self, memory, inputs, seeds=None):
    """Which tokens the decoder reads: bool [B, L].

    Args:
      memory: states and mask of all tokens.
    """
    mask = memory['mask']
    if self.config.select == 'none':
      return mask
    if self.config.select == 'first_k':
      return mask & (jnp.cumsum(mask, axis=1) <= self.config.limit)
    return self.select(memory, self.drawn(inputs, mask, seeds))[0]

  def drawn(self, inputs, mask, seeds):
    """The selector's random numbers [B, L]; None: it needs none."""
    if self.config.selection == 'argmax':
      return None
    if seeds is None:
      seeds = selector_lib.document_seeds(
          *(self.in_chunks(x) for x in (inputs, mask))
      )
    (B, L), (C, J) = inputs.shape, self.config.chunks(inputs.shape[1])
    return selector_lib.uniform(seeds, C, J).reshape(B, -1)[:, :L]

  def select(self, memory, uniform=None, actions=None):
    """The selector over the chunks, a chunk of the states at a time.

    Args:
      memory: states and mask of all tokens.
      uniform: [B, L], actions: bool [B, L], or None, see `Selector.select`.

    Returns:
      (bool [B, L], true where a token is selected; [B, C, D], the selector's
      state g_c at each chunk).
    """
    states, mask = jax.lax.stop_gradient(memory['states']), memory['mask']
    (B, L, D), (C, J) = states.shape, self.config.chunks(states.shape[1])
    precise = jnp.promote_types(states.dtype, jnp.float32)
    is_single = self.in_chunks(mask).any(-1).sum(1) == 1
    actor = self.selector.actor.clone(parent=None)
    params = {'params': self.selector.actor.variables['params']}

    def sum_of(x, chosen):
      return jnp.einsum(
          'bld,bl->bd',
          x,
          chosen.astype(x.dtype),
          preferred_element_type=precise,
      )

    def step(piece, carry):
      total, count, chosen, seen = carry
      take = lambda x: x if x is None else piece.take(x, 1)
      x, is_token = take(states), take(mask) & piece.is_new
      g = (total / count[:, None]).astype(x.dtype)
      new = selector_lib.act(
          actor.apply(params, x, g),
          is_token,
          is_single,
          take(uniform),
          take(actions),
      )
      chosen = piece.put(chosen, take(chosen) | new, 1)
      seen = jax.lax.dynamic_update_index_in_dim(seen, g, piece.index, 1)
      return total + sum_of(x, new), count + new.sum(1), chosen, seen

    first = sum_of(states, mask) / jnp.maximum(mask.sum(1), 1)[:, None]
    start = (
        first.astype(precise),
        jnp.ones(B, precise),
        jnp.zeros_like(mask),
        jnp.zeros((B, C, D), states.dtype),
    )
    return pieces.over(L, J, step, start)[2:]

  def in_chunks(self, x):
    """[B, L, ...] -> [B, C, J, ...], zeros behind the end."""
    C, J = self.config.chunks(x.shape[1])
    padding = [(0, 0), (0, C * J - x.shape[1])] + [(0, 0)] * (x.ndim - 2)
    return jnp.pad(x, padding).reshape(len(x), C, J, *x.shape[2:])

  def rollout(
      self,
      inputs,
      input_mask=None,
      deterministic=True,
      seeds=None,
      actions=None,
  ):
    """`encode`, always with the selector, and its choices.

    Args:
      actions: bool [B, C, J], see `Selector.select`.

    Returns:
      (memory, `selector.Rollout`).
    """
    memory = super().encode(inputs, input_mask, deterministic)
    states, mask = memory['states'], memory['mask']
    if actions is not None:
      actions = actions.reshape(len(mask), -1)[:, : mask.shape[1]]
    uniform = self.drawn(inputs, mask, seeds)
    chosen, seen = self.select(memory, uniform, actions)
    x = jax.lax.stop_gradient(self.in_chunks(states))
    found = self.in_chunks(chosen)
    return memory | {'mask': chosen}, selector_lib.Rollout(
        x,
        self.in_chunks(mask),
        seen,
        found,
        *self.judge(x, seen, found),
    )

  def judge(self, observations, state, actions):
    """Evaluates given choices with the selector: `simcas.SimCAS.judge`."""
    logits, values = self.selector.judge(observations, state)
    return *selector_lib.of_actions(logits, actions), values

  def states(
      self,
      inputs,
      targets_in,
      input_mask=None,
      deterministic=True,
      seeds=None,
  ):
    """The arguments of `predict`: states [B, T, D] and the source."""
    memory = self.encode(inputs, input_mask, deterministic, seeds)
    return self.decoder_states(memory, targets_in, deterministic)

  def attention(self, memory, targets_in, written):
    """Where the decoder looks, averaged over layers, heads and targets.

    Args:
      targets_in: [B, T].
      written: bool [B, T], the targets that count.

    Returns:
      float32 [B, C, 1 + J] in SimCAS's layout, with 0 in place of g_0 and of
      the start marks; the sum per document is 1.
    """
    B, L = memory['mask'].shape
    segments = jnp.broadcast_to(jnp.arange(L), (B, L))
    mass = self.cross_mass(memory, targets_in, segments, L)
    mass = attention_mass.mean_over_targets(mass, written)
    return jnp.pad(self.in_chunks(mass), ((0, 0), (0, 0), (1, 0)))
