"""Attention of T5 and BART: float32 softmax, an explicit cache.

T5: scores are q . k without 1/sqrt(K), which is folded into the initialisation
of the queries (Raffel et al. 2020, section 2.1). Position enters only through a
bias per head and bucket of the distance between key and query. BART: the
projections have biases, queries the factor K^-1/2.

Axes: B batch, T queries, S keys (L of an input), D width, H heads, K head
width, P segments of an input.
"""

import functools
import math
from typing import Any

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import layers
from locost_jax.ops import beam_attention
from locost_jax.ops import causal_attention
from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces


def relative_buckets(distance, bidirectional, num_buckets, max_distance):
  """The bucket of key position minus query position, in [0, num_buckets).

  Half of the buckets hold one distance each, the other half grow with its
  logarithm up to max_distance; from there on all distances share the last one.
  Unidirectional: later keys fall in bucket 0. Bidirectional: each sign has half
  of the buckets.
  """
  first = 0
  if bidirectional:
    num_buckets //= 2
    first = jnp.where(distance > 0, num_buckets, 0)
    distance = abs(distance)
  else:
    distance = jnp.maximum(-distance, 0)
  exact = num_buckets // 2
  # float32 as in the published models: the floor at bucket edges depends on it.
  log = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact)
  log = log / math.log(max_distance / exact) * (num_buckets - exact)
  far = jnp.minimum(exact + log.astype(jnp.int32), num_buckets - 1)
  return first + jnp.where(distance < exact, distance, far)


class RelativeBias(nn.Module):
  """One learned bias per head and bucket, for all layers of a T5-style stack.

  With config.biases_per_layer they have one each, on the first axis of all
  results.

  Attributes:
    config: a `stack.T5StyleConfig`.
    bidirectional: whether it is the encoder's.
  """

  config: Any
  bidirectional: bool

  def setup(self):
    c = self.config
    shape = c.relative_attention_num_buckets, c.num_heads
    if c.biases_per_layer:
      count = c.num_layers if self.bidirectional else c.num_decoder_layers
      shape = count, *shape
    init = nn.initializers.normal(c.d_model**-0.5)
    self.embedding = self.param('embedding', init, shape)

  def __call__(self, query_positions, key_positions):
    """Positions [T] and [S] -> bias [H, T, S]."""
    distance = key_positions[None, :] - query_positions[:, None]
    return jnp.moveaxis(self.of_distance(distance), -1, -3)

  def of_distance(self, distance):
    """Key position - query position, integers [...] -> bias [..., H]."""
    buckets = relative_buckets(
        distance,
        self.bidirectional,
        self.config.relative_attention_num_buckets,
        self.config.relative_attention_max_distance,
    )
    return self.embedding[..., buckets, :]


class Attention(nn.Module):
  """Multi-head attention of H num_heads, K d_kv, D d_model.

  Attributes:
    dropout_rate: of the weights.
    use_bias: whether the four projections have biases.
    scale: factor of the queries, after their bias. Their initial weights are
      divided by it, so that initial scores do not depend on it.
  """

  num_heads: int
  d_kv: int
  d_model: int
  dropout_rate: float
  dtype: jnp.dtype
  use_bias: bool = False
  scale: float = 1.0

  def setup(self):
    D, H, K = self.d_model, self.num_heads, self.d_kv
    dense = functools.partial(
        layers.dense, dtype=self.dtype, use_bias=self.use_bias
    )
    self.query = dense(H * K, (D * K) ** -0.5 / self.scale, name='query')
    self.key = dense(H * K, D**-0.5, name='key')
    self.value = dense(H * K, D**-0.5, name='value')
    self.output = dense(D, (H * K) ** -0.5, name='output')
    self.dropout = nn.Dropout(self.dropout_rate)

  def split_heads(self, x):
    """x [..., H * K] -> [..., H, K]."""
    return x.reshape(*x.shape[:-1], self.num_heads, self.d_kv)

  def merge_heads(self, context):
    """Each query's [H, K] -> [B, T, D] through the output projection."""
    return self.output(context.reshape(*context.shape[:2], -1))

  def queries(self, x):
    """x [B, T, D] -> [B, T, H, K]."""
    return self.split_heads(self.query(x)) * self.scale

  def keys_values(self, x):
    """x [B, S, D] -> keys and values [B, S, H, K]."""
    return self.split_heads(self.key(x)), self.split_heads(self.value(x))

  def __call__(self, x, keys, values, mask=None, bias=None, deterministic=True):
    """Attends from x [B, T, D] to keys and values [B, S, H, K]: [B, T, D].

    Args:
      mask: bool, broadcast to [B, H, T, S]; False is never attended to.
      bias: broadcast to [B, H, T, S], added to the scores.
    """
    drop = lambda w: self.dropout(w.astype(self.dtype), deterministic)
    return self.merge_heads(
        long_attention.plain(
            self.queries(x), keys, values, mask, bias, drop=drop
        )
    )

  def step(self, x, keys, values, seen, bias=None):
    """`__call__` with one query per row; see `ops.beam_attention`: [R, 1, D].

    x [R, 1, D], keys and values [R, H, S, K], seen bool [B, beams, beams, S],
    or [1, 1, 1, S] without beams, bias broadcast to [H, 1, S].
    """
    queries = self.queries(x)[:, 0]
    context = beam_attention.attend(queries, keys, values, seen, bias)
    return self.merge_heads(context[:, None])

  def causal(self, x, keys, values, bias, deterministic=True):
    """`__call__` of a long text on itself, causally and in pieces.

    Its dropout masks differ from those of `__call__`. x [B, T, D], keys and
    values [B, T, H, K], bias [H, T] by the distance back to the key.
    """
    rate = 0.0 if deterministic else self.dropout_rate
    key = self.make_rng('dropout') if rate else None
    queries = self.queries(x)
    return self.merge_heads(
        causal_attention.in_pieces(queries, keys, values, bias, rate, key)
    )

  def cross(self, x, keys, values, mask, deterministic=True):
    """`__call__` for inputs of any length: x [B, T, D], mask bool [B, S].

    From `long_attention.LONG` on in pieces, with other dropout masks.
    """
    rate = 0.0 if deterministic else self.dropout_rate
    T, S = x.shape[1], keys.shape[1]
    form = long_attention.choose(
        mesh_lib.platform(),
        self.dtype,
        T,
        S,
        rate,
        self.d_kv,
        mesh_lib.axis_size(mesh_lib.SEQUENCE),
    )
    if form == 'plain':
      mask = mask[:, None, None, :]
      return self(x, keys, values, mask, None, deterministic)
    queries = self.queries(x)
    if form == 'cudnn':
      return self.merge_heads(long_attention.fused(queries, keys, values, mask))
    key = self.make_rng('dropout') if rate else None
    context = long_attention.in_pieces(queries, keys, values, mask, rate, key)
    return self.merge_heads(context)

  def cached(self, x, keys, values, mask):
    """`__call__` of x with keys and values [B, H, S, K], mask bool [B, S]."""
    # On a CPU, transposing them makes a step up to ten times slower.
    queries, mask = self.queries(x).swapaxes(1, 2), mask[:, None, None]
    context = long_attention.plain(queries, keys, values, mask, form='h')
    return self.merge_heads(context.swapaxes(1, 2))

  def absorbed(self, x, states, mask):
    """`__call__` on states [B, S, D], without making their keys and values.

    score = (q W_key) . state and context = (weights . states) W_value +
    b_value, since there is no position bias. q . b_key is the same for all keys
    of a query and changes no weight. mask bool [B, S]; result as x [B, T, D].
    """
    (B, T, D), H, K = x.shape, self.num_heads, self.d_kv
    precise = jnp.promote_types(self.dtype, jnp.float32)
    product = functools.partial(jnp.einsum, preferred_element_type=precise)
    W_key, W_value = (W.reshape(D, H, K) for W in self._key_value_kernels())
    queries = product('bthk,dhk->bthd', self.queries(x), W_key)
    queries = queries.astype(self.dtype).reshape(B, T * H, D)
    mixed = long_attention.of_states(queries, states, mask)
    context = product('bthd,dhk->bthk', mixed.reshape(B, T, H, D), W_value)
    context = self._add_value_bias(context)
    return self.merge_heads(context.astype(self.dtype))

  def traced(self, x, states, mask, segments, num_segments):
    """`attend_and_sum` of x [B, T, D]: [B, T, D], and mass [B, T, P]."""
    context, mass = attend_and_sum(
        self.queries(x),
        states,
        *self._key_value_kernels(),
        mask,
        segments,
        num_segments
    )
    return self.merge_heads(self._add_value_bias(context)), mass

  def _key_value_kernels(self):
    """The kernels of keys and values, [D, H K] each."""
    return tuple(
        part.variables['params']['kernel'].astype(self.dtype)
        for part in (self.key, self.value)
    )

  def _add_value_bias(self, context):
    """Adds the bias to a context [B, T, H, K] without it: weights sum to 1."""
    if not self.use_bias:
      return context
    bias = self.value.variables['params']['bias'].astype(self.dtype)
    return context + self.split_heads(bias)


# --- Where attention falls ----------------------------------------------------
#
# For queries q_t and keys k_s, p_ts = softmax_s(q_t . k_s), averaged over heads,
# the mass of a segment is the sum of p_ts over its keys. With a few hundred
# queries and very many keys the weights [B, H, T, L] are too large to exist, so
# the keys are made and used piece by piece, twice: first for the log-sum-exp of
# the scores and for the context, then, with final weights, for the sums.

# A piece has at most this many scores (64 MiB in float32) and this many keys.
_MASS_SCORES = 2**24
_MASS_KEYS = 2048


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
  S = min(L, _MASS_KEYS, max(128, _MASS_SCORES // (B * H * T)))
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
