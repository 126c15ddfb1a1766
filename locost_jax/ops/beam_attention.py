"""Attention of beams through a table of ancestors: no cache is ever copied.

Keys and values stay in the slot that computed them: slot j at position s. A
beam that continues another one copies a row of integers, not the keys:

  ancestors[k, s] = the slot with beam k's key of position s; -1: not written

A step of all K beams of a document reads the keys of all their slots:

  w[k, j, s]  = softmax over j, s of q[k] . keys[j, s] where ancestors[k, s] = j
  context[k]  = sum over j, s of w[k, j, s] values[j, s]

Each key is read once, as without beams, but multiplied with K queries. After a
step at position t, a beam k that continues beam p gets (`generation.decode`)

  ancestors'[k, :t + 1] = ancestors[p, :t + 1], ancestors'[k, t + 1] = k

Axes: B documents, K beams (j: as slots), R = B * K * P rows, P pages (rows of
a document are beam by beam, then page by page), S positions, H heads, N width
of a head.
"""

import functools

import jax
import jax.numpy as jnp


def is_seen(ancestors):
  """The mask of `attend`: int [B, K, S] -> bool [B, slots K, beams K, S]."""
  slots = jnp.arange(ancestors.shape[1])
  return ancestors[:, None] == slots[:, None, None]


def attend(queries, keys, values, seen, bias=None):
  """Attends from one query in every row: [R, H, N] in the queries' dtype.

  Args:
    queries: [R, H, N].
    keys, values: [R, H, S, N], of the slots.
    seen: bool [B, K, K, S] of `is_seen`: [b, j, k, s], whether beam k reads
      slot j at position s. If it is [1, 1, 1, S], every row reads its own slot.
    bias: broadcast to [H, 1, S], added to the scores.
  """
  precise = jnp.promote_types(queries.dtype, jnp.float32)
  product = functools.partial(jnp.einsum, preferred_element_type=precise)
  B, K = seen.shape[:2]
  by_slot = lambda x: x.reshape(B, K, -1, *x.shape[1:])
  keys, values = by_slot(keys), by_slot(values)
  # Every slot gets the queries of all beams: the caches keep their layout.
  queries = by_slot(queries).transpose(0, 2, 3, 1, 4)[:, None]
  queries = jnp.broadcast_to(queries, (B, K, *queries.shape[2:]))
  scores = product('bjphkn,bjphsn->bjphks', queries, keys)
  if bias is not None:
    scores = scores + bias
  seen = seen[:, :, None, None]
  scores = jnp.where(seen, scores, jnp.finfo(precise).min)
  weights = jax.nn.softmax(scores, axis=(1, -1)).astype(queries.dtype)
  context = product('bjphks,bjphsn->bjphkn', weights, values).sum(1)
  context = context.transpose(0, 3, 1, 2, 4).astype(queries.dtype)
  return context.reshape(-1, *context.shape[3:])
