"""The selector of SimCAS (section 3.3), and the models that have one.

Chunk by chunk, an actor selects or skips each token, and the decoder reads the
selected ones. The actor sees the token and the selector's state g, the mean of
g_0 (of the chunks' start marks) and of all tokens selected before:

  g_c = (g_0 + sum of selected) / (1 + number of selected)
  actor, critic:  W_out tanh(W_hidden tanh(W_token x + W_state g_c))

with biases. If nothing in a chunk is selected, or the document has one chunk
only, the whole chunk is selected. The actor has two outputs, skip and select;
the critic, whose output is the value, is needed in training only. The selector
learns from rewards (`training.ppo`): no gradient flows from its choices to the
states.

Axes: B documents, C chunks, L tokens of a chunk, J tokens of a chunk (without
its start mark), T target length, D d_model.
"""

import functools
import math
from typing import Any, NamedTuple

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.models import layers
from locost_jax.models import stack
from locost_jax.ops import chunks
from locost_jax.ops import mesh as mesh_lib

# Bytes of the projected tokens of a batch, above which they are projected chunk
# by chunk: 85 chunks of BART-base. A million tokens would take 6 GiB.
MOST_PROJECTED = 256 << 20


class Selection(NamedTuple):
  """The selected tokens."""

  actions: Any  # bool [B, C, J], true where a token is selected
  state: Any  # [B, C, D], g_c
  logits: Any  # float32 [B, C, J, 2], the actor's: skip, select


class Rollout(NamedTuple):
  """The selector's choices for documents, from which it learns."""

  observations: Any  # [B, C, J, D], the tokens that it saw
  tokens: Any  # bool [B, C, J], true where there is a token
  state: Any  # [B, C, D], its state g at each chunk
  actions: Any  # bool [B, C, J], true where a token was selected
  log_probs: Any  # float32 [B, C, J], of the actions
  entropies: Any  # float32 [B, C, J], of the choices
  values: Any  # float32 [B, C, J], the critic's


class Judge(nn.Module):
  """An actor or a critic: tokens and the selector's state -> outputs.

  Weights start orthogonal with gain sqrt 2, the last with `gain`.
  """

  outputs: int
  gain: float
  d_model: int
  dtype: jnp.dtype

  def setup(self):
    def dense(features, gain=math.sqrt(2)):
      return nn.Dense(
          features,
          dtype=self.dtype,
          kernel_init=nn.initializers.orthogonal(gain),
          dot_general=layers.dot_general,
      )

    D = self.d_model
    self.token, self.state = dense(2 * D), dense(2 * D)
    self.hidden = dense(2 * D)
    self.output = dense(self.outputs, self.gain)

  def project(self, x):
    """Tokens x [..., D] -> [..., 2 D], the part that does not depend on g."""
    return self.token(x)

  def of_projected(self, projected, state):
    """projected [..., J, 2 D], state [..., D] -> float32 [..., J, outputs]."""
    x = nn.tanh(projected + self.state(state)[..., None, :])
    return layers.at_least_float32(self.output(nn.tanh(self.hidden(x))))

  def __call__(self, x, state):
    """x [..., J, D], state [..., D] -> float32 [..., J, outputs]."""
    return self.of_projected(self.project(x), state)


class Selector(nn.Module):
  """The actor and the critic, and how they go over a document.

  Chunks begin with a start mark, which is not selected.
  """

  d_model: int
  dtype: jnp.dtype

  def setup(self):
    self.actor = Judge(2, 0.01, self.d_model, self.dtype)
    self.critic = Judge(1, 1.0, self.d_model, self.dtype)

  def select(self, states, mask, uniform=None, actions=None):
    """Goes over the chunks: a `Selection`.

    Args:
      states: [B, C, L, D], the encoder's.
      mask: bool [B, C, L], true at tokens.
      uniform: float [B, C, J] in [0, 1): a token is selected if its number is
        below its probability. None: if its probability is above 1/2.
      actions: bool [B, C, J], replaces the actor's choice; a chunk without any
        is still selected whole. None: the actor chooses.
    """
    states, is_token = jax.lax.stop_gradient(states), mask[:, :, 1:]
    is_single = mask.any(-1).sum(1) == 1
    actor = self.actor.clone(parent=None)
    params = {'params': self.actor.variables['params']}
    projected = None
    size = 2 * states.size * states.dtype.itemsize
    # One product is faster than one per chunk, but its whole result is kept.
    if size <= MOST_PROJECTED or mesh_lib.axis_size(mesh_lib.SEQUENCE) > 1:
      projected = self.actor.project(states[:, :, 1:])
    precise = jnp.promote_types(states.dtype, jnp.float32)

    def step(carry, c):
      total, count = carry
      take = lambda array: jax.lax.dynamic_index_in_dim(array, c, 1, False)
      x = take(states)[:, 1:]
      g = (total / count[:, None]).astype(x.dtype)
      if projected is None:
        logits = actor.apply(params, x, g)
      else:
        logits = actor.apply(params, take(projected), g, method='of_projected')
      chosen = act(
          logits,
          take(is_token),
          is_single,
          *(y if y is None else take(y) for y in (uniform, actions)),
      )
      added = jnp.einsum('bj,bjd->bd', chosen.astype(precise), x)
      total = total + added.astype(precise)
      return (total, count + chosen.sum(-1)), Selection(chosen, g, logits)

    first = first_state(states, mask).astype(precise)
    start = first, jnp.ones(len(first), precise)
    _, found = jax.lax.scan(step, start, jnp.arange(states.shape[1]))
    return jax.tree.map(lambda array: array.swapaxes(0, 1), found)

  def judge(self, x, state):
    """The actor's logits [..., J, 2] and the critic's values [..., J], float32.

    x [..., J, D], tokens; state [..., D], g at their chunk.
    """
    return self.actor(x, state), self.critic(x, state)[..., 0]


def first_state(states, mask):
  """g_0 [B, D] of states [B, C, L, D], mask bool [B, C, L]."""
  return chunks.mean(states[:, :, 0], mask.any(-1))


def act(logits, is_token, is_single, uniform=None, actions=None):
  """Which tokens of a chunk are selected: bool [B, J].

  logits [B, J, 2], is_token [B, J], is_single [B], whether this is the
  document's only chunk; uniform and actions [B, J] as in `Selector.select`.
  """
  if actions is not None:
    chosen = actions
  elif uniform is None:
    chosen = logits[..., 1] > logits[..., 0]
  else:
    chosen = uniform < jax.nn.softmax(logits)[..., 1]
  chosen &= is_token
  is_all = ~chosen.any(-1) | is_single
  return jnp.where(is_all[:, None], is_token, chosen)


def document_seeds(tokens, mask):
  """A uint32 for each document that depends on its tokens alone.

  tokens int [B, C, L], mask bool [B, C, L], true at tokens; the amount of
  padding does not matter.
  """
  chunk = jax.lax.broadcasted_iota(jnp.uint32, tokens.shape, 1)
  place = jax.lax.broadcasted_iota(jnp.uint32, tokens.shape, 2)
  number = _mixed(tokens.astype(jnp.uint32) + jnp.uint32(0x9E3779B9))
  number = _mixed(_mixed(number ^ place) + chunk)
  return jnp.sum(jnp.where(mask, number, 0), (1, 2), jnp.uint32)


def _mixed(x):
  """A bijection of uint32 whose bits all depend on all (MurmurHash3)."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
  x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
  return x ^ (x >> 16)


def uniform(seeds, num_chunks, length):
  """Draws uniform numbers that depend on the document and the token's place.

  float32 [B, C = num_chunks, J = length] in [0, 1) from seeds uint32 [B]; they
  do not depend on C and J.
  """

  def draw(seed, chunk, place):
    key = jax.random.fold_in(jax.random.key(seed), chunk)
    return jax.random.uniform(jax.random.fold_in(key, place), (), jnp.float32)

  over_places = jax.vmap(draw, (None, None, 0))
  over_chunks = jax.vmap(over_places, (None, 0, None))
  return jax.vmap(over_chunks, (0, None, None))(
      seeds, jnp.arange(num_chunks), jnp.arange(length)
  )


# --- The memory of which the decoder reads some states ------------------------
#
# Its mask is true at what the decoder reads. `compact` drops the rest, so that
# the cost of a decoding step depends on the selected states and not on the
# input's length. S: slots of a compact memory.

# The smallest bucket: below it a step costs the same.
SMALLEST = 64


def selected_counts(memory):
  """The number of states the decoder reads per document, with g_0: int [B]."""
  mask = memory['mask']
  return mask.reshape(len(mask), -1).sum(1)


def bucket(count):
  """The smallest 2^k or 1.5 * 2^k, from SMALLEST on, that holds `count`."""
  power = 1 << (max(count, SMALLEST) - 1).bit_length()
  return power // 4 * 3 if max(count, SMALLEST) <= power // 4 * 3 else power


def compact(memory):
  """Drops the states that were not selected; decoding gives the same result.

  Not under jit: reads the largest number of selected states, over all hosts,
  whose `bucket` is S, so that all run the same program. On a mesh S is rounded
  up to a multiple of `sequence`.

  memory: states [B, C, L, D] and their mask -> {'states': [B, 1, S, D], 'mask':
  bool [B, 1, S]}, in reading order. The memory itself if it has no more slots.
  """
  size = bucket(int(_largest_count(memory)))
  size += -size % mesh_lib.axis_size(mesh_lib.SEQUENCE)
  few = size < memory['mask'][0].size
  return _compact(memory, size) if few else memory


@jax.jit
def _largest_count(memory):
  """The largest of `selected_counts`: a scalar that every host has."""
  return selected_counts(memory).max()


@functools.partial(jax.jit, static_argnums=1)
def _compact(memory, size):
  """The first `size` selected states of each document."""
  memory = stack.in_line(memory)
  found = jnp.cumsum(memory['mask'], axis=1)
  number = jnp.arange(1, size + 1)
  # The n-th selected state is the first with a count of n.
  places = jax.vmap(lambda row: jnp.searchsorted(row, number))(found)
  small = {
      key: jnp.take_along_axis(
          x, places.reshape(*places.shape, *[1] * (x.ndim - 2)), 1, mode='clip'
      )
      for key, x in memory.items()
  }
  small['mask'] = number <= found[:, -1:]
  small = jax.tree.map(stack.lay_read, small)
  return jax.tree.map(lambda x: x[:, None], small)


class SelectingModel(nn.Module):
  """A model whose decoder reads a part of the encoder's states.

  In front of an encoder-decoder among the bases. A model defines `chunk_states`
  and `memory`.
  """

  # See `generation.generate`.
  compact_memory = staticmethod(compact)

  def setup(self):
    super().setup()
    self.selector = Selector(self.config.d_model, self.dtype)

  def encode(self, inputs, input_mask=None, deterministic=True, seeds=None):
    """Reads documents and selects what the decoder reads: the model's memory.

    Args:
      inputs: token ids, as the model reads them.
      input_mask: of the same shape, true at tokens; None: where inputs are not
        pad_id.
      seeds: uint32 [B], of sampling; None: computed from each document's
        tokens.
    """
    states, mask, seeds = self.chunk_states(
        inputs, input_mask, deterministic, seeds
    )
    if self.is_initializing():
      self.selector.judge(states[:, :, 1:], states[:, :, 0])
    actions = self.choose(states, mask, seeds)
    return self.memory(inputs, states, mask, actions)

  def choose(self, states, mask, seeds):
    """Which tokens the decoder reads: bool [B, C, J]."""
    is_token = mask[:, :, 1:]
    if self.config.select == 'none':
      return is_token
    if self.config.select == 'first_k':
      number = jnp.cumsum(is_token.reshape(len(mask), -1), axis=1)
      return is_token & (number <= self.config.limit).reshape(is_token.shape)
    uniform = self.drawn(seeds, mask)
    return self.selector.select(states, mask, uniform).actions

  def drawn(self, seeds, mask):
    """The selector's random numbers [B, C, J]; None: it needs none."""
    if self.config.selection == 'argmax':
      return None
    return uniform(seeds, mask.shape[1], mask.shape[2] - 1)

  def rollout(
      self,
      inputs,
      input_mask=None,
      deterministic=True,
      seeds=None,
      actions=None,
  ):
    """`encode`, always with the selector, and its choices: (memory, `Rollout`).

    actions: see `Selector.select`.
    """
    states, mask, seeds = self.chunk_states(
        inputs, input_mask, deterministic, seeds
    )
    found = self.selector.select(states, mask, self.drawn(seeds, mask), actions)
    x = jax.lax.stop_gradient(states[:, :, 1:])
    return self.memory(inputs, states, mask, found.actions), Rollout(
        x,
        mask[:, :, 1:],
        found.state,
        found.actions,
        *self.judge(x, found.state, found.actions),
    )

  def judge(self, observations, state, actions):
    """Evaluates given choices: log_probs, entropies and values, like `actions`.

    observations, state, actions: of a Rollout, or parts of it.
    """
    logits, values = self.selector.judge(observations, state)
    log_p = jax.nn.log_softmax(logits)
    log_probs = jnp.where(actions, log_p[..., 1], log_p[..., 0])
    return log_probs, -jnp.sum(jnp.exp(log_p) * log_p, -1), values

  def attention(self, memory, targets_in, written):
    """Where the decoder looks, averaged over layers, heads and targets.

    written [B, T] is true at the targets that count. float32 [B, C, L], like
    the memory's mask; the sum per document is 1, or 0 without such a target.
    """
    shape = memory['mask'].shape
    slots = jnp.arange(math.prod(shape[1:]))
    segments = jnp.broadcast_to(slots, (shape[0], slots.size))
    mass = self.cross_mass(memory, targets_in, segments, slots.size)
    total = jnp.where(written[..., None], mass, 0).sum(1)
    mean = total / jnp.maximum(written.sum(1), 1)[:, None]
    return mean.reshape(shape)
