"""Chunks of documents: their tokens, and the states they exchange.

The encoder reads each chunk of a document alone; after each layer the states of
the start and end marks go to other chunks (SimCAS, section 3.2, equation 5).
Documents are independent, and chunks without tokens are ignored wherever they
are.

Axes: B documents, C chunks, L tokens of a chunk, D width.
"""

import jax
import jax.numpy as jnp


def last_tokens(mask):
  """bool [..., L] -> the last true position, int [...]; -1 without one."""
  L = mask.shape[-1]
  last = L - 1 - jnp.argmax(jnp.flip(mask, -1), axis=-1)
  return jnp.where(mask.any(-1), last, -1)


def up_to_last(mask):
  """True up to the last true position: bool [..., L] -> bool [..., L]."""
  return jnp.arange(mask.shape[-1]) <= last_tokens(mask)[..., None]


def neighbours(is_chunk):
  """The chunks before and after each one, in a ring: two int [B, C].

  Arbitrary where is_chunk, bool [B, C], is false: there chunks only pad the
  batch.
  """
  C = is_chunk.shape[1]
  places = jnp.arange(C)
  latest = jax.lax.cummax(jnp.where(is_chunk, places, -1), axis=1)
  before = jnp.roll(latest, 1, axis=1).at[:, 0].set(-1)
  before = jnp.where(before < 0, latest[:, -1:], before)
  soonest = jax.lax.cummin(jnp.where(is_chunk, places, C), axis=1, reverse=True)
  after = jnp.roll(soonest, -1, axis=1).at[:, -1].set(C)
  after = jnp.where(after == C, soonest[:, :1], after)
  return jnp.clip(before, 0, C - 1), jnp.clip(after, 0, C - 1)


def mean(states, is_chunk):
  """The mean of states [B, C, D] over the chunks, is_chunk bool [B, C]."""
  precise = jnp.promote_types(states.dtype, jnp.float32)
  kept = jnp.where(is_chunk[..., None], states, 0).astype(precise)
  count = jnp.maximum(is_chunk.sum(1), 1)[:, None]
  return (kept.sum(1) / count).astype(states.dtype)


def exchange(h, mask, align):
  """Exchanges the states of start and end marks between chunks: [B, C, L, D].

  shift: chunk i takes the start of chunk i - 1 and the end of chunk i + 1, in a
  ring (the release). mean: every chunk takes the mean over all chunks (equation
  5). none: no exchange. A document of one chunk does not change.

  Args:
    h: [B, C, L, D].
    mask: bool [B, C, L], true at tokens; the last one is a chunk's end mark.
    align: 'shift', 'mean' or 'none'.
  """
  if align == 'none':
    return h
  is_chunk, last = mask.any(-1), last_tokens(mask)
  starts = h[:, :, 0]
  ends = jnp.take_along_axis(h, jnp.maximum(last, 0)[..., None, None], axis=2)[
      :, :, 0
  ]
  if align == 'mean':
    starts = jnp.broadcast_to(mean(starts, is_chunk)[:, None], starts.shape)
    ends = jnp.broadcast_to(mean(ends, is_chunk)[:, None], ends.shape)
  else:
    before, after = neighbours(is_chunk)
    starts = jnp.take_along_axis(starts, before[..., None], axis=1)
    ends = jnp.take_along_axis(ends, after[..., None], axis=1)
  places = jnp.arange(h.shape[2])
  h = jnp.where((places == last[..., None])[..., None], ends[:, :, None], h)
  is_start = (places == 0) & is_chunk[..., None]
  return jnp.where(is_start[..., None], starts[:, :, None], h)
