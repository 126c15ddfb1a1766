"""Sums over target tokens: cross entropy and hits, in float32 at least.

With p = softmax(logits), Z = sum_v exp(logits_v), target t, smoothing e and
z-loss factor z, one token costs

  -(1 - e) log p_t - e / V sum_v log p_v + z log(Z)^2

Label smoothing: Szegedy et al. 2016, section 7 (the true class keeps its share
of the spread mass). z-loss: Shazeer et al. 2018, as T5 trains with (1e-4).
LOCOST uses neither. The functions return sums, so that a mean over batches,
hosts or devices is one division at the very end.

A lookup among the V logits of a token is a masked sum or minimum over them,
which also works if the vocabulary is sharded over devices.
"""

import jax
import jax.numpy as jnp

from locost_jax.ops import tokenwise

# Largest size in bytes of the float32 logits that exist at once on a device.
PIECE_BYTES = 64 << 20


def of_states(
    head, states, targets, weights, label_smoothing=0.0, z_loss=0.0, copied=None
):
  """Computes `cross_entropy` and `hits` of head(states) in pieces, to save memory.

  The targets are split into pieces whose logits fit PIECE_BYTES; the backward
  pass computes the logits again. A single piece is computed only once.

  Args:
    head: [B, t, D] -> logits [B, t, V], position by position.
    states: [B, T, D], or a tree of arrays [B, T, ...].
    targets: int [B, T], token ids.
    weights: [B, T], 1 where a target counts, 0 on padding; or [B, T, W], for W
      sums.
    copied: [B, t, D], targets [B, t] -> `models.copy_head.Copied`; None: the
      model does not copy.

  Returns:
    (loss in nats summed over tokens, hits, number of tokens), scalars or [W].
  """

  def sums(states, targets, weights):
    logits = head(states)
    found = copied and copied(states, targets)
    loss, weight = cross_entropy(
        logits, targets, weights, label_smoothing, z_loss, found
    )
    return loss, hits(logits, targets, weights, found), weight

  return _sum_pieces(sums, head, states, targets, weights)


def of_documents(head, states, targets, weights, copied=None):
  """Returns the cross entropy of each document, computed in pieces.

  Returns:
    (loss in nats summed over tokens, number of tokens), [B] each.
  """

  def sums(states, targets, weights):
    found = copied and copied(states, targets)
    loss = -log_likelihoods(head(states), targets, found)
    return jnp.sum(loss * weights, axis=1), jnp.sum(weights, axis=1)

  return _sum_pieces(sums, head, states, targets, weights)


def _sum_pieces(sums, head, states, targets, weights):
  """Adds up sums(states, targets, weights) over pieces of the targets."""
  B, T = targets.shape
  first = jax.tree.map(lambda x: x[:, :1], states)
  V = jax.eval_shape(head, first).shape[-1]
  rows = tokenwise.on_device(B, T)[0]
  size = max(1, PIECE_BYTES // (4 * rows * V))
  if size >= T:
    return sums(states, targets, weights)
  # The padding of the last piece has zero weight.
  size = -(-T // -(-T // size))

  def split(x):
    x = jnp.pad(x, ((0, 0), (0, -T % size)) + ((0, 0),) * (x.ndim - 2))
    x = x.reshape(B, x.shape[1] // size, size, *x.shape[2:])
    return x.swapaxes(0, 1)

  xs = jax.tree.map(split, (states, targets, weights))
  sums = jax.checkpoint(sums, prevent_cse=False)

  def add(total, piece):
    return jax.tree.map(jnp.add, total, sums(*piece)), None

  zeros = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype),
      jax.eval_shape(sums, *jax.tree.map(lambda x: x[0], xs)),
  )
  return jax.lax.scan(add, zeros, xs)[0]


def cross_entropy(
    logits, targets, weights, label_smoothing=0.0, z_loss=0.0, copied=None
):
  """Returns the weighted sum of token losses and the sum of the weights.

  Args:
    logits: [B, T, V], any float type; targets and weights as in `of_states`.
    label_smoothing: mass in [0, 1) spread evenly over the V tokens.
    z_loss: factor of log(Z)^2.
    copied: None, or a `models.copy_head.Copied`: p_t is then the mixture's
      probability; smoothing and z-loss use the vocabulary's part alone.
  """
  logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
  log_z = jax.nn.logsumexp(logits, axis=-1)
  at_target = _at_target(logits, targets)
  if copied is not None:
    at_target = log_z + copied.mixed(at_target - log_z)
  # sum_v q_v (log_z - logits_v) with sum_v q_v = 1: no [B, T, V] of log p.
  expected = at_target
  if label_smoothing:
    expected = (1 - label_smoothing) * at_target + label_smoothing * jnp.mean(
        logits, axis=-1
    )
  loss = log_z - expected
  if z_loss:
    loss += z_loss * log_z**2
  return _total(loss, weights), _total(jnp.ones_like(loss), weights)


def log_likelihoods(logits, targets, copied=None):
  """Logits [B, T, V], targets int [B, T] -> log p of each target [B, T]."""
  logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
  log_p = _at_target(logits, targets) - jax.nn.logsumexp(logits, axis=-1)
  return log_p if copied is None else copied.mixed(log_p)


def _at_target(logits, targets):
  is_target = jnp.arange(logits.shape[-1]) == targets[..., None]
  return jnp.sum(jnp.where(is_target, logits, 0), axis=-1)


def hits(logits, targets, weights, copied=None):
  """Returns the weighted count of targets with the largest logit, in float32.

  Arguments as in `cross_entropy`. Among equal logits the first one counts. With
  a copy head, a target counts if its probability is at least that of the
  vocabulary's best token and that of the input's best position, each without
  the other part. This counts slightly more targets than the exact argmax, which
  would need p of every token.
  """
  if copied is not None:
    log_z = jax.nn.logsumexp(logits, axis=-1)
    of_vocabulary = copied.log_gate + jnp.max(logits, axis=-1) - log_z
    best = jnp.maximum(of_vocabulary, copied.log_copy + copied.log_largest)
    is_hit = log_likelihoods(logits, targets, copied) >= best
    return _total(is_hit, weights)
  is_best = logits == jnp.max(logits, axis=-1, keepdims=True)
  V = logits.shape[-1]
  best = jnp.min(jnp.where(is_best, jnp.arange(V), V), axis=-1)
  return _total(best == targets, weights)


def _total(x, weights):
  """x [B, T], weights [B, T] or [B, T, W] -> a scalar or [W]: sums of x w."""
  precise = jnp.promote_types(x.dtype, jnp.float32)
  x = x.astype(precise).reshape(x.shape + (1,) * (weights.ndim - 2))
  return jnp.sum(x * weights.astype(precise), axis=(0, 1))
