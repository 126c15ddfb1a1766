"""PPO for SimCAS's selector: rewards, advantages and losses. All pure functions.

From section 3.3 of the paper and its release. The reward of a summary is its
likelihood, R = scale exp(mean_t log p(y_t)). Each selected token gets a share in
proportion to the decoder's attention a to it; all skipped tokens get the same
(equations 9 and 10):

  r = R a / (1 - a_0)     selected; a_0 is the attention to the first state
  r = R / n_selected      skipped, if n_selected > limit, else R / n_all

The time axis is the chunk c. With the critic's values V, the mean m(.) over the
tokens of a chunk, and zeros after the last chunk,

  delta_c[j] = r_c[j] + gamma m(V_{c+1}) - V_c[j]
  A_c[j] = delta_c[j] + gamma lambda A_{c+1}[j]

(Schulman et al. 2016; the release computes it elementwise in j). The losses are
those of PPO (Schulman et al. 2017) over minibatches of tokens.

Rewards and advantages use a document's own tokens only. Axes: B documents, C
chunks, J tokens of a chunk, T target length, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

SKIP = ('release', 'paper')


def rewards(
    reward, attention, first, actions, tokens, limit=2048, skip='release'
):
  """Computes the reward of each token's action (equations 9 and 10).

  Args:
    reward: R [B].
    attention: [B, C, J], attention to the selected tokens, the mean over
      layers, heads and target positions.
    first: [B], attention to the first state, which is never skipped.
    actions: bool [B, C, J], true for selected tokens.
    tokens: bool [B, C, J], false for padding.
    limit: number of selected tokens above which skipping is rewarded more.
    skip: below the limit, R is divided by the number of tokens ('paper'), or by
      the larger of this number and the limit ('release').

  Returns:
    [B, C, J]; 0 for padding.
  """
  total = tokens.sum((1, 2)).astype(reward.dtype)
  selected = (actions & tokens).sum((1, 2)).astype(reward.dtype)
  share = total if skip == 'paper' else jnp.maximum(total, limit)
  # At exactly the limit, the paper counts as above and the release as below.
  is_many = selected >= limit if skip == 'paper' else selected > limit
  share = jnp.maximum(jnp.where(is_many, selected, share), 1)
  of_selected = (reward / (1 - first))[:, None, None] * attention
  of_skipped = (reward / share)[:, None, None]
  return jnp.where(tokens, jnp.where(actions, of_selected, of_skipped), 0)


def advantages(rewards, values, tokens, gamma=0.998, decay=0.95):
  """Generalised advantage estimation over the chunks of documents.

  Args:
    rewards: [B, C, J].
    values: [B, C, J], the critic's values during the rollout.
    tokens: bool [B, C, J]; a chunk without tokens is skipped.
    gamma: discount per chunk.

  Returns:
    (advantages, returns) [B, C, J]: returns = advantages + values, the critic's
    targets. Both 0 for padding.
  """

  def step(carry, chunk):
    after, value_after = carry
    r, v, is_token = chunk
    delta = r + gamma * value_after[:, None] - v
    own = jnp.where(is_token, delta + gamma * decay * after, 0)
    has_tokens = is_token.any(-1)
    after = jnp.where(has_tokens[:, None], own, after)
    return (after, jnp.where(has_tokens, mean(v, is_token), value_after)), own

  chunks = jax.tree.map(lambda x: x.swapaxes(0, 1), (rewards, values, tokens))
  start = jnp.zeros_like(rewards[:, 0]), jnp.zeros_like(values[:, 0, 0])
  _, found = jax.lax.scan(step, start, chunks, reverse=True)
  found = found.swapaxes(0, 1)
  return found, jnp.where(tokens, found + values, 0)


class Losses(NamedTuple):
  """PPO's losses, one number per minibatch."""

  total: Any  # the objective: policy - entropy's factor x entropy + value
  policy: Any  # loss of the clipped ratios
  value: Any  # loss of the clipped values
  entropy: Any  # of the choices
  kl: Any  # distance from the old policy, the mean of (ratio - 1) - log ratio


def losses(new, old, tokens, clip=0.2, entropy=0.1):
  """Computes PPO's losses, means over the tokens of a minibatch.

  Args:
    new: (log_probs, entropies, values) [..., n] of the current policy.
    old: (log_probs, values, advantages, returns) [..., n] of the rollout;
      advantages are normalised here.
    tokens: bool [..., n], false for padding.
    clip: largest distance of ratios from 1, and of values from the old ones.

  Returns:
    Losses of arrays [...]; 0 for a minibatch without tokens.
  """
  log_probs, entropies, values = new
  old_log_probs, old_values, gains, returns = jax.lax.stop_gradient(old)
  gains = normalised(gains, tokens)
  log_ratio = jnp.where(tokens, log_probs - old_log_probs, 0)
  ratio = jnp.exp(log_ratio)
  clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
  policy = -mean(jnp.minimum(ratio * gains, clipped * gains), tokens)
  near = old_values + jnp.clip(values - old_values, -clip, clip)
  errors = jnp.maximum((values - returns) ** 2, (near - returns) ** 2)
  value = 0.5 * mean(errors, tokens)
  spread = mean(entropies, tokens)
  kl = mean((ratio - 1) - log_ratio, tokens)
  total = policy - entropy * spread + value
  return Losses(total, policy, value, spread, kl)


def normalised(x, mask):
  """Normalises x along the last axis: (x - mean) / unbiased standard deviation.

  A single number stays as it is; x is 0 where the mask is false.
  """
  count = mask.sum(-1, keepdims=True)
  off = jnp.where(mask, x - mean(x, mask)[..., None], 0)
  variance = jnp.sum(off**2, -1, keepdims=True) / jnp.maximum(count - 1, 1)
  scaled = off / (jnp.sqrt(variance) + 1e-8)
  return jnp.where(mask, jnp.where(count > 1, scaled, x), 0)


def mean(x, mask):
  """Returns the masked mean along the last axis; 0 where the mask is empty."""
  total = jnp.sum(jnp.where(mask, x, 0), -1)
  return total / jnp.maximum(mask.sum(-1), 1)
