"""Where attention falls: the weights summed over segments of the keys.

For queries q_t and keys k_s, p_ts = softmax_s(q_t . k_s), averaged over heads,
the mass of a segment is the sum of p_ts over its keys. With a few hundred
queries and very many keys the weights [B, H, T, L] are too large to exist, so
the keys are made and used piece by piece, twice: first for the log-sum-exp of
the scores and for the context, then, with final weights, for the sums.

Axes: B batch, T queries, L keys, D width, H heads, K head width, P segments.
"""

import jax.numpy as jnp

from locost_jax.models import layers
from locost_jax.ops import long_attention
from locost_jax.ops import pieces

# A piece has at most this many scores (64 MiB in float32) and this many keys.
_SCORES = 2**24
_KEYS = 2048


def piece_length(rows, length):
  """The number of keys in a piece; `rows` = B H T scores of each."""
  return min(length, _KEYS, max(128, _SCORES // rows))


def attend_and_sum(
    queries, states, key_kernel, value_kernel, mask, segments, num_segments
):
  """Attention without 1/sqrt(K), and where it falls.

  Args:
    queries: [B, T, H, K].
    states: [B, L, D], of which keys and values are made.
    key_kernel, value_kernel: [D, H K].
    mask: bool [B, L]; False is never attended to.
    segments: int [B, L], in [0, P = num_segments), not decreasing along L.

  Returns:
    context [B, T, H, K], and mass [B, T, P], float32, whose rows sum to 1.
  """
  B, T, H, K = queries.shape
  L = states.shape[1]
  S = piece_length(B * H * T, L)
  precise = jnp.promote_types(queries.dtype, jnp.float32)

  def project(piece, kernel):
    return (piece.take(states, 1) @ kernel).reshape(B, S, H, K)

  def scores(piece):
    return long_attention.masked_scores(
        queries, project(piece, key_kernel), piece.take(mask, 1), piece.is_new
    )

  def attend(piece, softmax):
    return softmax.add(scores(piece), project(piece, value_kernel))

  def add_up(piece, mass):
    weights = jnp.exp(scores(piece) - log_total[..., None]).mean(1)
    return mass.at[jnp.arange(B)[:, None], piece.take(segments, 1)].add(
        layers.at_least_float32(weights.transpose(0, 2, 1)),
        indices_are_sorted=True,
    )

  softmax = pieces.over(
      L, S, attend, long_attention.Softmax.of_nothing(B, H, T, K, precise)
  )
  log_total = softmax.m + jnp.log(softmax.l)
  mass = pieces.over(L, S, add_up, jnp.zeros((B, num_segments, T), precise))
  return softmax.context(queries.dtype), mass.transpose(0, 2, 1)


def mean_over_targets(mass, written):
  """The mean of mass [B, T, P] over the targets that count, written [B, T].

  [B, P]; 0 for a document without any.
  """
  total = jnp.where(written[..., None], mass, 0).sum(1)
  return total / jnp.maximum(written.sum(1), 1)[:, None]
