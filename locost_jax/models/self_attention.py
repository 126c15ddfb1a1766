"""T5, v1.0 and v1.1: in the encoder every token attends to every other.

  v1.0  feed_forward 'relu', tie_embeddings
  v1.1  feed_forward 'gated-gelu', a separate output layer (Shazeer 2020)

  score(t, s) = q_t . k_s + b(s - t),   b from bidirectional buckets

(Raffel et al. 2020, section 2.1.) All layers share the bias, or have one each
(UMT5, biases_per_layer; Chung et al. 2023): it is looked up once per distance,
and laid out as a matrix where it is added. Queries run in pieces, whose scores
the backward pass recomputes.

Axes: B batch, L length, D width, H heads, K head width.
"""

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.models import attention
from locost_jax.models import model_config
from locost_jax.models import stack
from locost_jax.ops import causal_attention
from locost_jax.ops import local_attention
from locost_jax.ops import long_attention


@model_config.with_keys('t5')
class T5Config(stack.T5StyleConfig):
  """The config of a T5."""

  shares_arrays = True


def piece_length(B, H, S):
  """Queries of a piece whose scores of S keys fit `PIECE_BYTES`."""
  return max(16, long_attention.PIECE_BYTES // (4 * B * H * S))


class SharedBias(nn.Module):
  """mask [B, L] -> the bias by the distance of a query behind a key.

  [H, Q + L - 1], of distances 1 - L to Q - 1; Q is L rounded up to whole
  pieces. [layers, ...] with config.biases_per_layer.
  """

  config: stack.T5StyleConfig

  def setup(self):
    self.relative_bias = attention.RelativeBias(self.config, True)

  def __call__(self, mask):
    B, L = mask.shape
    size = min(L, piece_length(B, self.config.num_heads, L))
    queries = -(-L // size) * size
    distance = L - 1 - jnp.arange(queries + L - 1)
    return self.relative_bias.of_distance(distance).swapaxes(-1, -2)


class SelfAttention(nn.Module):
  """x [B, L, D], mask [B, L], line of `SharedBias` -> [B, L, D]."""

  config: stack.T5StyleConfig
  dtype: jnp.dtype

  Common = SharedBias

  def setup(self):
    c = self.config
    self.attention = c.make_attention(self.dtype, c.num_heads)
    nn.share_scope(self, self.attention)  # mixer/query, not mixer/attention/...

  def __call__(self, x, mask, line, deterministic):
    queries = self.attention.queries(x)
    keys, values = (y.swapaxes(1, 2) for y in self.attention.keys_values(x))
    B, L, H, _ = queries.shape
    size = min(L, piece_length(B, H, L))
    rate = 0.0 if deterministic else self.config.dropout_rate
    exists = mask[:, None, None]

    def of_piece(queries, start, key):
      of_keys = jax.lax.dynamic_slice_in_dim(line, start, size + L - 1, 1)
      bias = causal_attention.diagonals(of_keys, size)
      drop = long_attention.dropping(rate, key)
      return long_attention.plain(
          queries, keys, values, exists, bias, drop=drop, form='h'
      )

    return self.attention.merge_heads(
        local_attention.over_queries(
            of_piece, queries, size, self.make_rng('dropout') if rate else None
        )
    )
