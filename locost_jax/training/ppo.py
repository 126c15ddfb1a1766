"""PURE: what the selector of SimCAS learns from (section 3.3 and its release).

The summary's likelihood is a reward R = scale exp(mean_t log p(y_t)). A selected
token has its share of it, by the attention a that the decoder pays to it; what
is skipped has the same for every token (equations 9 and 10):

  r = R a / (1 - a_0)     selected; a_0 is of the selector's first state
  r = R / n_selected      skipped, where n_selected > limit, else R / n_all

Time is the chunk c, and with V the critic's values, m(.) the mean over the
tokens of a chunk and zeros behind the last chunk

  delta_c[j] = r_c[j] + gamma m(V_{c+1}) - V_c[j]
  A_c[j] = delta_c[j] + gamma lambda A_{c+1}[j]

(Schulman et al. 2016; elementwise in j is the release's). The losses are those
of PPO (Schulman et al. 2017) over minibatches of tokens.

Everything is per document, of its own tokens. Axes: B documents, C chunks, J
tokens of a chunk, T target length, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.errors import check_choice
from locost_jax.training import losses as losses_lib
from locost_jax.values import ranges

SKIP = ('release', 'paper')
TRACES = ('position', 'mean', 'none')
BASELINES = ('critic', 'mean')


def likelihood(logits, targets, written, scale=1e4):
  """scale times the geometric mean of the probabilities of the targets.

  Args:
    logits: [B, T, V], of targets.
    targets: int [B, T].
    written: bool [B, T], those that count: with the end mark.
    scale: xi.

  Returns:
    R [B], float32 at least; of no targets `scale`.
  """
  log_p = losses_lib.log_likelihoods(logits, targets)
  return scale * jnp.exp(mean(log_p, written))


def rewards(
    reward, attention, first, actions, tokens, limit=2048, skip='release'
):
  """The reward of each token's action.

  Args:
    reward: R [B].
    attention: [B, C, J], on average over layers, heads and target positions;
      of selected tokens.
    first: [B], that of the first state, which is never skipped.
    actions: bool [B, C, J], true where a token is selected.
    tokens: bool [B, C, J], true where there is one.
    limit: of selected tokens: from there on skipping is worth more.
    skip: below the limit the reward is divided by the number of tokens
      ('paper'), by at least the limit ('release').

  Returns:
    [B, C, J]; 0 where there is no token.
  """
  total = tokens.sum((1, 2)).astype(reward.dtype)
  selected = (actions & tokens).sum((1, 2)).astype(reward.dtype)
  share = total if skip == 'paper' else jnp.maximum(total, limit)
  # At the limit itself the paper says 'otherwise', the release 'below'.
  is_many = selected >= limit if skip == 'paper' else selected > limit
  share = jnp.maximum(jnp.where(is_many, selected, share), 1)
  of_selected = (reward / (1 - first))[:, None, None] * attention
  of_skipped = (reward / share)[:, None, None]
  return jnp.where(tokens, jnp.where(actions, of_selected, of_skipped), 0)


def advantages(
    rewards, values, tokens, gamma=0.998, decay=0.95, trace='position'
):
  """Generalised advantage estimation over the chunks of documents.

  Args:
    rewards: [B, C, J].
    values: [B, C, J], the critic's while it selected.
    tokens: bool [B, C, J]; a chunk without any is passed over.
    gamma: discount of a chunk.
    decay: lambda.
    trace: what of the next chunk's advantages goes on: that at the same
      'position', their 'mean', or 'none'.

  Returns:
    (advantages, returns) [B, C, J]: returns = advantages + values, the critic's
    targets. Both 0 where there is no token.
  """

  def step(carry, chunk):
    after, value_after = carry
    r, v, is_token = chunk
    delta = r + gamma * value_after[:, None] - v
    own = jnp.where(is_token, delta + gamma * decay * after, 0)
    passed = own
    if trace == 'mean':
      passed = jnp.broadcast_to(mean(own, is_token)[:, None], own.shape)
    elif trace == 'none':
      passed = jnp.zeros_like(own)
    has_tokens = is_token.any(-1)
    after = jnp.where(has_tokens[:, None], passed, after)
    return (after, jnp.where(has_tokens, mean(v, is_token), value_after)), own

  chunks = jax.tree.map(lambda x: x.swapaxes(0, 1), (rewards, values, tokens))
  start = jnp.zeros_like(rewards[:, 0]), jnp.zeros_like(values[:, 0, 0])
  _, found = jax.lax.scan(step, start, chunks, reverse=True)
  found = found.swapaxes(0, 1)
  return found, jnp.where(tokens, found + values, 0)


def above_mean(rewards, tokens):
  """Advantages without a critic: rewards above the mean of their chunk.

  Args:
    rewards: [B, C, J].
    tokens: bool [B, C, J].

  Returns:
    [B, C, J]; 0 where there is no token.
  """
  return jnp.where(tokens, rewards - mean(rewards, tokens)[..., None], 0)


class Losses(NamedTuple):
  """Of minibatches, one number each.

  Attributes:
    total: policy - entropy's factor x entropy + value, what is minimised.
    policy: of the clipped ratios.
    value: of the clipped values.
    entropy: of the choices.
    kl: how far the policy has moved, mean of (ratio - 1) - log ratio.
  """

  total: Any
  policy: Any
  value: Any
  entropy: Any
  kl: Any


def losses(new, old, tokens, clip=0.2, entropy=0.1):
  """PPO's losses, means over the tokens of a minibatch.

  Args:
    new: (log_probs, entropies, values) [..., n], of the policy that learns.
    old: (log_probs, values, advantages, returns) [..., n], of the rollout;
      advantages are normalised here.
    tokens: bool [..., n], true at those of the minibatch.
    clip: of ratios around 1, and of values around the old ones.
    entropy: its factor.

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
  """x less its mean, over its unbiased standard deviation, along the last axis.

  A single number stays as it is.

  Args:
    x: [..., n].
    mask: bool [..., n], what counts.

  Returns:
    [..., n]; 0 where nothing counts.
  """
  count = mask.sum(-1, keepdims=True)
  off = jnp.where(mask, x - mean(x, mask)[..., None], 0)
  variance = jnp.sum(off**2, -1, keepdims=True) / jnp.maximum(count - 1, 1)
  scaled = off / (jnp.sqrt(variance) + 1e-8)
  return jnp.where(mask, jnp.where(count > 1, scaled, x), 0)


def mean(x, mask):
  """The mean along the last axis of what counts; 0 where nothing does."""
  total = jnp.sum(jnp.where(mask, x, 0), -1)
  return total / jnp.maximum(mask.sum(-1), 1)


def minibatches(x, size):
  """[..., J] -> [..., ceil(J / size), size], filled with 0 or False."""
  missing = -x.shape[-1] % size
  x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
  return x.reshape(*x.shape[:-1], -1, size)


def check(config):
  """Raises an InputError for values of config.selector that cannot be."""
  ranges.check_section('selector', config)
  check_choice('selector.skip', config.skip, SKIP)
  check_choice('selector.trace', config.trace, TRACES)
  check_choice('selector.baseline', config.baseline, BASELINES)
