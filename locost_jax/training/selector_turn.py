"""A turn of SimCAS's selector: it selects, is rewarded, and learns by PPO.

Documents are read and summaries scored once, with the current parameters and
with dropout (as in the release). The reward is the likelihood of the summary,
split over the selected tokens in proportion to the decoder's attention to them.
Actor and critic then take `selector.epochs`
passes over the chunks in random order, with one Adam update for each minibatch:
`selector.minibatch` tokens of a chunk, of all documents. With train.accumulate,
each piece of the batch has its own rollout and updates. Equations:
`training.ppo`.

Axes: B documents, C chunks, J tokens of a chunk, T target length, D d_model.
"""

import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.training import losses
from locost_jax.training import optim
from locost_jax.training import ppo
from locost_jax.training import step as step_lib

FROZEN = (r'selector/.*', 0.0)  # a row of optim.groups
_GROUPS = (FROZEN[0], 1.0), (r'.*', 0.0)  # what a turn trains
METRICS = (
    'reward',  # mean of R
    'selected',  # tokens that the decoder reads, of a document
    'selected_share',  # of its tokens
    'selected_attention',  # share of the decoder's attention that they have
    'policy_loss',
    'value_loss',
    'entropy',
    'kl',
)


class Turned(NamedTuple):
  """The parts of a step's state that a turn changes, and its metrics."""

  params: Any  # the whole tree
  opt_state: Any  # the selector's
  metrics: Any  # dict of float32 scalars
  # Whether the last step's turn, if any, gave finite numbers; if not, nothing
  # else has changed.
  is_finite: Any = True


class SelectorTurn:
  """The selector's part of a step.

  Attributes:
    first: the index of its first parameter in jax.tree.leaves(params).
  """

  def __init__(self, config, model, shapes):
    """Makes the optimiser: Adam with a constant rate, as in the release.

    Args:
      model: a SimCAS, or a model with its `rollout`, `attention` and `judge`.
      shapes: its parameters as shapes, adapters included.
    """
    self._model, self._settings = model, config.selector
    self._pieces = config.train.accumulate
    self._merge = functools.partial(lora.merge, alpha=config.train.lora.alpha)
    self._optimizer = optax.adam(np.float32(config.selector.learning_rate))
    paths = parameters.flatten(shapes)
    self.first = [bool(re.match(FROZEN[0], path)) for path in paths].index(True)

  def init(self, params):
    """The optimiser's state before the first turn."""
    return self._optimizer.init(optim.split(params, _GROUPS)[0])

  def take(self, before, batch, rng):
    """Takes a turn: a Turned -> the next one."""
    trained, frozen = optim.split(before.params, _GROUPS)
    start = trained, before.opt_state
    pieces = step_lib.split_batch(batch, self._pieces)
    keys = jax.random.split(rng, self._pieces)
    after, metrics = jax.lax.scan(
        functools.partial(self._take_piece, frozen), start, (pieces, keys)
    )
    metrics = {
        name: jnp.mean(metrics[name]).astype(jnp.float32) for name in METRICS
    }
    finite = [
        jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((after, metrics))
    ]
    is_finite = jnp.all(jnp.stack(finite))
    trained, opt_state = jax.tree.map(
        functools.partial(jnp.where, is_finite), after, start
    )
    params = optim.combine(trained, frozen)
    return Turned(params, opt_state, metrics, is_finite)

  def _take_piece(self, frozen, carry, piece):
    """Runs a rollout of a piece of the batch and its updates; a scan's step."""
    batch, rng = piece
    reading, learning = jax.random.split(rng)
    whole = lambda trained: self._merge(optim.combine(trained, frozen))

    def judge(trained, *seen):
      params = {'params': whole(trained)}
      return self._model.apply(params, *seen, method='judge')

    collected, seen = collect(
        whole(carry[0]),
        batch,
        reading,
        model=self._model,
        settings=self._settings,
    )
    *carry, learned = learn(
        *carry,
        collected,
        learning,
        judge=judge,
        update=self._optimizer.update,
        settings=self._settings,
    )
    return tuple(carry), seen | learned


class Experience(NamedTuple):
  """The choices and rewards of one turn: [B, C, J, ...], state [B, C, D]."""

  observations: Any
  tokens: Any
  state: Any
  actions: Any
  log_probs: Any
  values: Any
  advantages: Any
  returns: Any


def collect(params, batch, rng, *, model, settings):
  """Lets the selector select, and computes its rewards.

  Args:
    model: a SimCAS, or a model with its `rollout` and `attention`.

  Returns:
    (Experience, dict of scalars: the first of METRICS).
  """
  apply = functools.partial(
      model.apply, {'params': params}, rngs={'dropout': rng}
  )
  inputs = batch['encoder_input_tokens']
  memory, rollout = apply(
      inputs,
      input_mask=inputs != model.config.pad_id,
      deterministic=False,
      seeds=batch[step_lib.SEEDS],
      method='rollout',
  )
  states, source = apply(
      memory,
      batch['decoder_input_tokens'],
      deterministic=False,
      method='decoder_states',
  )
  head, copied = step_lib.heads(model, params, source)
  loss, count = losses.of_documents(
      head,
      states,
      batch['decoder_target_tokens'],
      batch['decoder_loss_weights'],
      copied,
  )
  reward = settings.reward_scale * jnp.exp(-loss / jnp.maximum(count, 1))
  attention = apply(memory, *targets_read(batch, model), method='attention')
  found = _credit(rollout, reward, attention, settings)
  total = rollout.tokens.sum((1, 2))
  selected = (rollout.actions & rollout.tokens).sum((1, 2))
  metrics = {
      'reward': jnp.mean(reward),
      'selected': jnp.mean(selected),
      'selected_share': jnp.mean(selected / jnp.maximum(total, 1)),
      'selected_attention': jnp.mean(1 - attention[:, 0, 0]),
  }
  return jax.lax.stop_gradient((found, metrics))


def _credit(rollout, reward, attention, settings):
  """Splits summaries' rewards [B] over actions, by attention [B, C, J + 1]."""
  tokens, actions = rollout.tokens, rollout.actions
  rewards = ppo.rewards(
      reward,
      attention[:, :, 1:],
      attention[:, 0, 0],
      actions,
      tokens,
      settings.limit,
      settings.skip,
  )
  gains, returns = ppo.advantages(
      rewards, rollout.values, tokens, settings.gamma, settings['lambda']
  )
  seen = rollout._asdict()
  del seen['entropies']  # learning computes them anew
  return Experience(**seen, advantages=gains, returns=returns)


def targets_read(batch, model):
  """Returns the decoder's inputs while its attention is measured.

  They include the last target, which predicts nothing: the release averages the
  attention over it, too. It is left out if the model has no position for it.

  Returns:
    (tokens int, mask bool), both [B, T + 1] or [B, T].
  """
  tokens = jnp.concatenate(
      [batch['decoder_input_tokens'][:, :1], batch['decoder_target_tokens']], 1
  )
  counts = jnp.pad(
      batch['decoder_loss_weights'] > 0, ((0, 0), (1, 0)), constant_values=True
  )
  most = model.config.max_positions
  return tokens[:, :most], counts[:, :most]


def learn(trained, opt_state, collected, rng, *, judge, update, settings):
  """Takes the epochs of a turn.

  Args:
    judge: (trained, observations, state, actions) -> the result of
      `SimCAS.judge`.
    update: (gradients, opt_state, trained) -> (updates, opt_state).

  Returns:
    (trained, opt_state, metrics of the last epoch that was taken).
  """
  _, C, J = collected.tokens.shape
  size = min(settings.minibatch, J)
  per_chunk = -(-J // size)
  missing = per_chunk * size - J

  def pad(x):
    return jnp.pad(x, [(0, 0), (0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 3))

  state = collected.state
  padded = jax.tree.map(pad, collected._replace(state=None))

  def minibatch(number):
    c, start = number // per_chunk, number % per_chunk * size
    chunk = lambda x: jax.lax.dynamic_index_in_dim(x, c, 1, keepdims=False)
    piece = lambda x: jax.lax.dynamic_slice_in_dim(chunk(x), start, size, 1)
    return jax.tree.map(piece, padded)._replace(state=chunk(state))

  def take_minibatch(carry, number):
    trained, opt_state = carry
    some = minibatch(number)
    (_, found), gradients = jax.value_and_grad(mean_losses, has_aux=True)(
        trained, some, judge, settings
    )
    updates, opt_state = update(gradients, opt_state, trained)
    after = jax.tree.map(jnp.add, trained, updates), opt_state
    # Without tokens, Adam would still move the parameters by its momentum.
    has_tokens = some.tokens.any()
    after = jax.tree.map(functools.partial(jnp.where, has_tokens), after, carry)
    return after, (found, has_tokens)

  def take_epoch(carry, rng):
    order = jax.random.permutation(rng, C * per_chunk)
    after, (found, taken) = jax.lax.scan(take_minibatch, carry[0], order)
    measured = jax.tree.map(lambda x: ppo.mean(x, taken), found)
    last = jnp.max(jnp.where(taken, jnp.arange(len(order)), -1))
    return after, measured, found.kl[last] <= settings.kl

  def maybe_epoch(carry, rng):
    stays = lambda carry, rng: carry
    return jax.lax.cond(carry[2], take_epoch, stays, carry, rng), None

  zero = jnp.zeros((), collected.advantages.dtype)
  zeros = ppo.Losses(*[zero] * len(ppo.Losses._fields))
  start = (trained, opt_state), zeros, jnp.bool_(True)
  epochs = jax.random.split(rng, settings.epochs)
  ((trained, opt_state), found, _), _ = jax.lax.scan(maybe_epoch, start, epochs)
  metrics = {
      'policy_loss': found.policy,
      'value_loss': found.value,
      'entropy': found.entropy,
      'kl': found.kl,
  }
  return trained, opt_state, metrics


def mean_losses(trained, some, judge, settings):
  """Returns (the total, ppo.Losses) of a minibatch: means over documents.

  `some` is an `Experience` of arrays [B, n, ...], state [B, D].
  """
  found = ppo.losses(
      judge(trained, some.observations, some.state, some.actions),
      (some.log_probs, some.values, some.advantages, some.returns),
      some.tokens,
      settings.clip,
      settings.entropy,
  )
  found = jax.tree.map(lambda x: ppo.mean(x, some.tokens.any(-1)), found)
  return found.total, found
