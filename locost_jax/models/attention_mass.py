"""Where attention falls: the weights summed over segments of the keys.

For queries q_t and keys k_s, p_ts = softmax_s(q_t . k_s), averaged over heads,
the mass of a segment is the sum of p_ts over its keys. With a few hundred
queries and very many keys the weights [B, H, T, L] are too large to exist, so
the keys are made and used piece by piece, twice: first for the log-sum-exp of
the scores and for the context, then, with final weights, for the sums.

Axes: B batch, T queries, L keys, D width, H heads, K head width, P segments.
"""

import jax
import jax.numpy as jnp

from locost_jax.models import layers

# A piece has at most this many scores (64 MiB in float32) and this many keys.
_SCORES = 2**24
_KEYS = 2048


def piece_length(rows, length):
  """Keys looked at together.

  Args:
    rows: scores of one key, B H T.
    length: L.
  """
  return min(length, _KEYS, max(128, _SCORES // rows))


def attend_and_sum(queries, states, key_kernel, value_kernel, mask, segments,
                   num_segments):
  """Attention without 1/sqrt(K), and where it falls.

  Args:
    queries: [B, T, H, K].
    states: [B, L, D], of which keys and values are made.
    key_kernel: [D, H K].
    value_kernel: [D, H K].
    mask: bool [B, L]; False is never attended to.
    segments: int [B, L], in [0, num_segments), not decreasing along L.
    num_segments: P.

  Returns:
    context [B, T, H, K], and mass [B, T, P], float32, whose rows sum to 1.
  """
  B, T, H, K = queries.shape
  L = states.shape[1]
  S = piece_length(B * H * T, L)
  precise = jnp.promote_types(queries.dtype, jnp.float32)
  least = jnp.finfo(precise).min

  def piece(i):
    """Where piece i starts, its scores [B, H, T, S] and its states."""
    # The last piece ends at L; what it shares with the one before is masked.
    start = jnp.minimum(i * S, L - S)
    part = jax.lax.dynamic_slice_in_dim(states, start, S, 1)
    own = jax.lax.dynamic_slice_in_dim(mask, start, S, 1)
    is_new = start + jnp.arange(S) >= i * S
    keys = (part @ key_kernel).reshape(B, S, H, K)
    scores = jnp.einsum('bthk,bshk->bhts', queries, keys,
                        preferred_element_type=precise)
    scores = jnp.where(own[:, None, None], scores, least)
    return start, jnp.where(is_new, scores, -jnp.inf), part

  def attend(i, carry):
    highest, total, context = carry
    _, scores, part = piece(i)
    values = (part @ value_kernel).reshape(B, S, H, K)
    new = jnp.maximum(highest, scores.max(-1))
    scale = jnp.exp(highest - new)
    weights = jnp.exp(scores - new[..., None])
    context = context * scale[..., None] + jnp.einsum(
        'bhts,bshk->bhtk', weights.astype(values.dtype), values,
        preferred_element_type=precise)
    return new, total * scale + weights.sum(-1), context

  def add_up(i, mass):
    start, scores, _ = piece(i)
    weights = jnp.exp(scores - log_total[..., None]).mean(1)
    own = jax.lax.dynamic_slice_in_dim(segments, start, S, 1)
    return mass.at[jnp.arange(B)[:, None], own].add(
        layers.at_least_float32(weights.transpose(0, 2, 1)),
        indices_are_sorted=True)

  pieces = -(-L // S)
  highest, total, context = jax.lax.fori_loop(0, pieces, attend, (
      jnp.full((B, H, T), least), jnp.zeros((B, H, T), precise),
      jnp.zeros((B, H, T, K), precise)))
  log_total = highest + jnp.log(total)
  mass = jax.lax.fori_loop(
      0, pieces, add_up, jnp.zeros((B, num_segments, T), precise))
  context = (context / total[..., None]).astype(queries.dtype)
  return context.transpose(0, 2, 1, 3), mass.transpose(0, 2, 1)
