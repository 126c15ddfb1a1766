"""The experience of SimCAS's selector: its choices and their rewards.

Documents are read once, with the parameters as they are and with dropout (the
release). The reward is the likelihood of the summary, shared among the selected
tokens by the attention that the decoder pays to them. Equations:
`training.ppo`.

Axes: B documents, C chunks, J tokens of a chunk, T target length, D d_model.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax import models
from locost_jax.training import losses
from locost_jax.training import ppo
from locost_jax.training import step as step_lib


class Experience(NamedTuple):
  """One turn's choices and rewards: [B, C, J, ...], state [B, C, D]."""

  observations: Any
  tokens: Any
  state: Any
  actions: Any
  log_probs: Any
  values: Any
  advantages: Any
  returns: Any


def collect(params, batch, rng, *, model, settings):
  """Lets the selector select, and rewards it.

  Args:
    params: the model's.
    batch: see `step.train_step`, with step.SEEDS.
    rng: key of dropout.
    model: a SimCAS, or a model with its `rollout` and `attention`.
    settings: config.selector.

  Returns:
    (Experience, dict of scalars: the first of `selector_turn.METRICS`).
  """
  apply = functools.partial(
      model.apply, {'params': params}, rngs={'dropout': rng}
  )
  inputs = batch['encoder_input_tokens']
  memory, rollout = apply(
      inputs,
      input_mask=inputs != models.pad_id(model.config),
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
  """Shares the rewards of summaries among the actions.

  Args:
    rollout: a `selector.Rollout`.
    reward: R [B].
    attention: [B, C, J + 1], of `SimCAS.attention`.
    settings: config.selector.

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
  """Means over documents, for the log; as `credit` takes them."""
  total = rollout.tokens.sum((1, 2))
  selected = (rollout.actions & rollout.tokens).sum((1, 2))
  return {
      'reward': jnp.mean(reward),
      'selected': jnp.mean(selected),
      'selected_share': jnp.mean(selected / jnp.maximum(total, 1)),
      'selected_attention': jnp.mean(1 - attention[:, 0, 0]),
  }


def targets_read(batch, model):
  """Returns the tokens that the decoder reads while its attention is measured.

  Also the last target, which predicts nothing: the release's attention is an
  average over it, too. Only where there is no position left for it, it is not.

  Returns:
    (tokens int, which of them count bool), both [B, T + 1] or [B, T].
  """
  tokens = jnp.concatenate(
      [batch['decoder_input_tokens'][:, :1], batch['decoder_target_tokens']], 1
  )
  counts = jnp.pad(
      batch['decoder_loss_weights'] > 0, ((0, 0), (1, 0)), constant_values=True
  )
  most = models.max_positions(model.config)
  return tokens[:, :most], counts[:, :most]
