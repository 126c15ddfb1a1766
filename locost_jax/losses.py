"""Sums over target tokens: cross entropy and hits. At least in float32.

With p = softmax(logits), Z = sum_v exp(logits_v), target t, smoothing e and
z-loss factor z, one token costs

  -(1 - e) log p_t - e / V sum_v log p_v + z log(Z)^2

Label smoothing: Szegedy et al. 2016, section 7 (the true class keeps its share
of the spread mass). z-loss: Shazeer et al. 2018, as T5 trains with (1e-4).
LOCOST uses neither. Every function returns sums, so that a mean over batches,
hosts or devices is one division at the very end.
"""

import jax
import jax.numpy as jnp


def cross_entropy(logits, targets, weights, label_smoothing=0.0, z_loss=0.0):
  """Returns the weighted sum of token losses and the sum of the weights.

  Args:
    logits: [B, T, V], any float type; computed in float32 at least.
    targets: int [B, T], token ids.
    weights: [B, T], 1 where a target counts, 0 on padding.
    label_smoothing: mass in [0, 1) spread evenly over the V tokens.
    z_loss: factor of log(Z)^2.

  Returns:
    (loss in nats summed over tokens, number of tokens), scalars.
  """
  precise = jnp.promote_types(logits.dtype, jnp.float32)
  logits, weights = logits.astype(precise), weights.astype(precise)
  log_z = jax.nn.logsumexp(logits, axis=-1)
  at_target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  # sum_v q_v (log_z - logits_v) with sum_v q_v = 1: no [B, T, V] of log p.
  expected = at_target
  if label_smoothing:
    expected = (
        (1 - label_smoothing) * at_target
        + label_smoothing * jnp.mean(logits, axis=-1)
    )
  loss = log_z - expected
  if z_loss:
    loss += z_loss * log_z**2
  return jnp.sum(loss * weights), jnp.sum(weights)


def hits(logits, targets, weights):
  """Returns how many targets have the largest logit: a float32 scalar.

  Args:
    logits: [B, T, V].
    targets: int [B, T].
    weights: [B, T], as in `cross_entropy`.
  """
  best = jnp.argmax(logits, axis=-1)
  return jnp.sum((best == targets) * weights.astype(jnp.float32))
