"""Collects the experience of SimCAS's selector: choices and their rewards.

Documents are read once, with the current parameters and with dropout (as in the
release). The reward is the likelihood of the summary, split over the selected
tokens in proportion to the decoder's attention to them. Equations:
`training.ppo`.

Axes: B documents, C chunks, J tokens of a chunk, T target length, D d_model.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.training import losses
from locost_jax.training import ppo
from locost_jax.training import step as step_lib


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
    batch: see `step.train_step`, with step.SEEDS.
    rng: key of dropout.
    model: a SimCAS, or a model with its `rollout` and `attention`.

  Returns:
    (Experience, dict of scalars: the first of `selector_turn.METRICS`).
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
  found = credit(rollout, reward, attention, settings)
  return jax.lax.stop_gradient((found, describe(rollout, reward, attention)))


def credit(rollout, reward, attention, settings):
  """Splits each summary's reward over the actions.

  Args:
    rollout: a `selector.Rollout`.
    reward: R [B].
    attention: [B, C, J + 1], from `SimCAS.attention`.

  Returns:
    Experience.
  """
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
  if settings.baseline == 'mean':
    values = returns = jnp.zeros_like(rewards)
    gains = ppo.above_mean(rewards, tokens)
  else:
    values = rollout.values
    gains, returns = ppo.advantages(
        rewards,
        values,
        tokens,
        settings.gamma,
        settings['lambda'],
        settings.trace,
    )
  return Experience(
      observations=rollout.observations,
      tokens=tokens,
      state=rollout.state,
      actions=actions,
      log_probs=rollout.log_probs,
      values=values,
      advantages=gains,
      returns=returns,
  )


def describe(rollout, reward, attention):
  """Returns means over documents, for the log; arguments as in `credit`."""
  total = rollout.tokens.sum((1, 2))
  selected = (rollout.actions & rollout.tokens).sum((1, 2))
  return {
      'reward': jnp.mean(reward),
      'selected': jnp.mean(selected),
      'selected_share': jnp.mean(selected / jnp.maximum(total, 1)),
      'selected_attention': jnp.mean(1 - attention[:, 0, 0]),
  }


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
