"""Attention over very long inputs, without all scores at once.

A running softmax goes over pieces of the keys. With the maximum m and the sum l
of exp(score - m) so far, a further piece with maximum m' gives

  m'' = max(m, m');  l'' = l e^(m - m'') + l' e^(m' - m'')

and the weighted values likewise (Milakov and Gimelshein 2018; Dao et al. 2022
for the backward pass, which recomputes the weights from m and l).

Scores are q . k without 1/sqrt(K), float32 at least. Masked keys have the
lowest finite score, so that a document without any token has equal weights, as
in the plain form.

Under a mesh each device has its part of the batch, of the heads (`tensor`) and,
where documents are split (`sequence`), of the keys; the same formula combines
the softmaxes of the parts of a document.

Axes: B batch, T queries, S keys, H heads, K head width, D width.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces

# Queries x keys from which on attention runs in pieces. The plain form keeps
# all scores and weights for the backward pass: here 100 MB per document and
# layer at 12 heads.
LONG = 1 << 20

# Bytes of the scores of one piece, over all documents and heads.
PIECE_BYTES = 32 << 20

# Input length from which on a decoding step reads the encoder's states instead
# of keys and values, 1/24 of the memory with 12 layers. CPU time of one layer
# at base size on a busy 2-core machine, keys and values vs. states: one row 10
# vs. 6 ms at 4K tokens, 104 vs. 23 at 16K, 488 vs. 94 at 64K; four rows per
# document 11 vs. 12, 110 vs. 47, 566 vs. 196. For shorter inputs, projecting
# the queries costs more than it saves.
ABSORBED = 4096

# Bytes of the scores of one piece of a decoding step, on an accelerator: enough
# for 2.8 million tokens with 12 heads and one row.
STEP_BYTES = 128 << 20

# form -> axes of queries and keys, see `plain`.
FORMS = {'s': ('bthk', 'bshk'), 'h': ('bhtk', 'bhsk')}


def choose(backend, dtype, T, S, dropout_rate, head_width, split=1):
  """'plain', 'pieces' or 'cudnn': how T queries attend to S keys.

  cuDNN's fused attention takes half precision only and cannot use our random
  numbers; the head width must be a multiple of 8 and at most 128. It returns no
  sums to combine if the keys are split over `split` devices.
  """
  if T * S < LONG:
    return 'plain'
  if split > 1:
    return 'pieces'
  half = jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)
  fits = head_width % 8 == 0 and head_width <= 128
  if backend == 'gpu' and half and fits and not dropout_rate:
    return 'cudnn'
  return 'pieces'


def plain(queries, keys, values, mask=None, bias=None, *, drop=None, form='s'):
  """softmax(q . k + bias) v with all scores at once, float32 at least inside.

  Args:
    queries: [B, T, H, K], like the result.
    keys, values: [B, S, H, K].
    mask: bool, broadcast to [B, H, T, S]; False is never attended to.
    bias: broadcast to [B, H, T, S].
    drop: weights [B, H, T, S] -> with dropout.
    form: 's' as above; 'h': H before T and S in all arrays.
  """
  weights = jax.nn.softmax(scores(queries, keys, mask, bias, form))
  if drop is not None:
    weights = drop(weights)
  q, k = FORMS[form]
  context = jnp.einsum(
      f'bhts,{k}->{q}',
      weights.astype(values.dtype),
      values,
      preferred_element_type=weights.dtype,
  )
  return context.astype(values.dtype)


def scores(queries, keys, mask=None, bias=None, form='s'):
  """q . k + bias, the lowest number where masked: [B, H, T, S]; see `plain`."""
  precise = jnp.promote_types(queries.dtype, jnp.float32)
  q, k = FORMS[form]
  out = jnp.einsum(
      f'{q},{k}->bhts', queries, keys, preferred_element_type=precise
  )
  if bias is not None:
    out = out + bias
  return out if mask is None else jnp.where(mask, out, jnp.finfo(out.dtype).min)


def fused(queries, keys, values, mask):
  """Attention by cuDNN's kernel, as `in_pieces` without dropout.

  It takes document lengths instead of a mask (jax#28974), so every document
  must have tokens, all of them before its padding. Other batches fall back to
  `in_pieces` at run time.
  """
  S = keys.shape[1]
  lengths = mask.sum(-1, dtype=jnp.int32)
  prefixes = (mask == (jnp.arange(S) < lengths[:, None])).all()

  def kernel(queries, keys, values, mask):
    del mask
    return jax.nn.dot_product_attention(
        queries,
        keys,
        values,
        scale=1.0,
        key_value_seq_lengths=lengths,
        implementation='cudnn',
    )

  return jax.lax.cond(
      prefixes & (lengths > 0).all(),
      kernel,
      in_pieces,
      queries,
      keys,
      values,
      mask,
  )


def in_pieces(
    queries, keys, values, mask, dropout_rate=0.0, key=None, piece=None
):
  """Attention, forward and backward, with weights of one piece at a time.

  The backward pass keeps the arguments, the result, m and l.

  Args:
    queries: [B, T, H, K], like the result.
    keys, values: [B, S, H, K].
    mask: bool [B, S], true at keys that may be attended to.
    dropout_rate: of the weights; the mask of piece i comes from fold_in(key, i)
      and has the shape [B, H, T, piece].
    piece: keys at a time; None: up to PIECE_BYTES.
  """

  def of_part(queries, keys, values, mask, key):
    B, T, H, _ = queries.shape
    S = keys.shape[1]
    size = piece or max(128, PIECE_BYTES // (4 * B * H * T) // 128 * 128)
    own_key = mesh_lib.own_key(key, *mesh_lib.AXES)
    return _in_pieces(
        (min(S, size), float(dropout_rate), mesh_lib.length_axis()),
        (queries, keys, values, mask, own_key),
    )

  written = P(mesh_lib.ROWS, None, mesh_lib.TENSOR)
  read = P(mesh_lib.ROWS, mesh_lib.SEQUENCE, mesh_lib.TENSOR)
  tokens = P(mesh_lib.ROWS, mesh_lib.SEQUENCE)
  return mesh_lib.on_mesh(
      of_part,
      (written, read, read, tokens, P()),
      written,
      queries,
      keys,
      values,
      mask,
      key if dropout_rate else None,
  )


class Softmax(NamedTuple):
  """A softmax over the keys so far, and the weighted sum of their values."""

  m: jax.Array  # [B, H, T], the highest score
  l: jax.Array  # [B, H, T], sum of exp(score - m)
  total: jax.Array  # [B, H, T, K], sum of exp(score - m) value

  @classmethod
  def of_nothing(cls, B, H, T, K, dtype):
    """Returns the softmax over no key: weight 0, the lowest maximum."""
    zeros = jnp.zeros((B, H, T, K), dtype)
    lowest = jnp.full((B, H, T), jnp.finfo(dtype).min, dtype)
    return cls(lowest, zeros[..., 0], zeros)

  def add(self, scores, values, factor: jax.Array | int = 1, form='s'):
    """Adds scores [B, H, T, S] and values of S further keys.

    factor: multiplies the weights of the values, [B, H, T, S] or a number.
    form: of the values, see `plain`.
    """
    # The result does not depend on m, so no gradient has to.
    m = jax.lax.stop_gradient(jnp.maximum(self.m, scores.max(-1)))
    weights = jnp.exp(scores - m[..., None])
    old = jnp.exp(self.m - m)
    values = jnp.einsum(
        f'bhts,{FORMS[form][1]}->bhtk',
        (weights * factor).astype(values.dtype),
        values,
        preferred_element_type=m.dtype,
    )
    return Softmax(
        m, self.l * old + weights.sum(-1), self.total * old[..., None] + values
    )

  def joined(self, along):
    """The softmax over all devices along a mesh axis; None: this device's."""
    return Softmax(*join(along, *self))

  def mean(self):
    """The weighted mean of the values, [B, H, T, K]."""
    return self.total / self.l[..., None]

  def context(self, dtype):
    """The same as [B, T, H, K] in this dtype."""
    return self.mean().swapaxes(1, 2).astype(dtype)


def join(along, m, *sums):
  """The maximum m, and the sums of exp(score - m), of an axis's devices."""
  if along is None or not mesh_lib.is_on_mesh():
    return m, *sums
  top = jax.lax.pmax(m, along)
  own = jnp.exp(m - top)
  return top, *(
      jax.lax.psum(
          x * own.reshape(own.shape + (1,) * (x.ndim - own.ndim)), along
      )
      for x in sums
  )


def of_states(queries, states, mask):
  """Attention whose keys and values are the states, for decoding.

  queries [B, Q, D], states [B, S, D], mask bool [B, S] -> [B, Q, D] in the
  dtype of queries.
  """
  rows = P(mesh_lib.ROWS)
  parts = P(mesh_lib.ROWS, mesh_lib.SEQUENCE)
  return mesh_lib.on_mesh(
      _of_part_of_states, (rows, parts, parts), rows, queries, states, mask
  )


def _of_part_of_states(queries, states, mask):
  """`of_states` where each device has a part of the states."""
  (B, Q, D), S = queries.shape, states.shape[1]
  precise = jnp.promote_types(queries.dtype, jnp.float32)

  def add(piece, softmax):
    part, own = piece.take(states, 1), piece.take(mask, 1)
    # Scores as [B, S, Q]: on a CPU twice as fast as [B, Q, S].
    scores = jnp.einsum(
        'bsd,bqd->bsq', part, queries, preferred_element_type=precise
    ).swapaxes(1, 2)
    return softmax.add(
        masked(scores[:, None], own, piece.is_new), part[:, :, None]
    )

  softmax = pieces.over(
      S,
      min(S, step_piece(mesh_lib.platform(), B, Q)),
      add,
      Softmax.of_nothing(B, 1, Q, D, precise),
  )
  softmax = softmax.joined(mesh_lib.length_axis())
  return softmax.context(queries.dtype)[:, :, 0]


def step_piece(backend, B, Q):
  """Tokens whose states a decoding step reads at a time, for Q queries of B.

  On a CPU they should stay in its caches. One layer at base size on 2 cores, in
  pieces of 256, 512, 1024 and at once: one document of 256K tokens 133, 100, 94
  and 152 ms; four of 64K 112, 102, 110 and 155; eight of 5,000 18, 19, 23 and
  20. On an accelerator fewer pieces are faster.
  """
  if backend == 'cpu':
    return 1024 if B <= 4 else 512
  return max(1024, STEP_BYTES // (4 * B * Q))


def masked_scores(queries, keys, mask, is_new):
  """`masked` scores q . k of a piece, [B, H, T, S], for `Softmax.add`.

  queries [B, T, H, K], keys [B, S, H, K].
  """
  return masked(scores(queries, keys), mask, is_new)


def masked(scores, mask, is_new):
  """Masks scores [B, H, T, S] by mask [B, S], and by is_new [S] with -inf."""
  low = jnp.finfo(scores.dtype).min
  scores = jnp.where(mask[:, None, None, :], scores, low)
  return jnp.where(is_new, scores, -jnp.inf)


def dropout(dropout_rate, key, i, like):
  """The dropout factors of the weights of piece i, shaped as `like`."""
  if not dropout_rate:
    return jnp.ones((), like.dtype)
  kept = jax.random.bernoulli(
      jax.random.fold_in(key, i), 1 - dropout_rate, like.shape
  )
  return kept / jnp.asarray(1 - dropout_rate, like.dtype)


def dropping(dropout_rate, key):
  """Returns `drop` of `plain`."""
  return lambda weights: weights * dropout(dropout_rate, key, 0, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_pieces(form, arguments):
  """form: (size, dropout_rate, along), arguments: those of `in_pieces`."""
  return _forward(form, arguments)[0]


def _forward(form, arguments):
  """Returns the result and what the backward pass needs."""
  size, dropout_rate, along = form
  queries, keys, values, mask, key = arguments
  (B, T, H, _), S = queries.shape, keys.shape[1]
  precise = jnp.promote_types(queries.dtype, jnp.float32)

  def add(piece, softmax):
    k, v, own = (piece.take(x, 1) for x in (keys, values, mask))
    own, is_new = pieces.tie((own, piece.is_new), softmax.m)
    scores = masked_scores(queries, k, own, is_new)
    return softmax.add(
        scores, v, dropout(dropout_rate, key, piece.index, scores)
    )

  softmax = pieces.over(
      S, size, add, Softmax.of_nothing(B, H, T, values.shape[-1], precise)
  )
  softmax = softmax.joined(along)
  out = softmax.context(queries.dtype)
  return out, (queries, keys, values, mask, key, out, softmax.m, softmax.l)


def _backward(form, kept, d_out):
  """Gradients: d_scores = weights (d_weights - sum(d_out out))."""
  size, dropout_rate, _ = form  # m and l are those of all keys
  queries, keys, values, mask, key, out, m, l = kept
  S, dtype = keys.shape[1], queries.dtype
  precise = m.dtype
  product = functools.partial(jnp.einsum, preferred_element_type=precise)
  d_out = d_out.astype(dtype)
  mean = product('bthk,bthk->bht', d_out, out)[..., None]

  def add(piece, carry):
    d_queries, d_keys, d_values = carry
    k, v, own = (piece.take(x, 1) for x in (keys, values, mask))
    scores = masked_scores(queries, k, own, piece.is_new)
    weights = jnp.exp(scores - m[..., None]) / l[..., None]
    factor = dropout(dropout_rate, key, piece.index, weights)
    d_weights = product('bthk,bshk->bhts', d_out, v) * factor
    d_scores = weights * (d_weights - mean)
    # A masked score is a constant.
    d_scores = jnp.where(own[:, None, None, :], d_scores, 0).astype(dtype)
    weights = (weights * factor).astype(dtype)

    def put(d, part):
      return piece.put(d, piece.take(d, 1) + part.astype(d.dtype), 1)

    return (
        d_queries + product('bhts,bshk->bhtk', d_scores, k),
        put(d_keys, product('bhts,bthk->bshk', d_scores, queries)),
        put(d_values, product('bhts,bthk->bshk', weights, d_out)),
    )

  # d_queries in the scores' layout, [B, H, T, K]; any other is copied.
  d_queries, d_keys, d_values = pieces.over(
      S,
      size,
      add,
      (
          jnp.zeros_like(queries, precise).swapaxes(1, 2),
          jnp.zeros_like(keys),
          jnp.zeros_like(values),
      ),
  )
  d_queries = d_queries.swapaxes(1, 2).astype(dtype)
  return ((d_queries, d_keys, d_values, None, None),)


_in_pieces.defvjp(_forward, _backward)
