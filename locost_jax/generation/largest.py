"""The k largest numbers of long rows, without sorting whole rows.

In a beam search on a CPU, XLA sorts whole rows for `jax.lax.top_k`: 150 ms per
token for 50 rows of 16,000 scores, against 6 ms here. The k largest lie in the
k blocks with the largest maxima, so only those are sorted.
"""

import jax
import jax.numpy as jnp

BLOCK = 128  # numbers in a block, about the square root of a row


def top_k(x, k):
  """Like jax.lax.top_k: of equal numbers the first is taken.

  Args:
    x: [B, N], floating.
    k: at most N.

  Returns:
    The k largest, largest first, and their places, [B, k] each.
  """
  B, N = x.shape
  count = -(-N // BLOCK)
  if k >= count:
    return jax.lax.top_k(x, k)
  x = jnp.pad(x, ((0, 0), (0, count * BLOCK - N)), constant_values=-jnp.inf)
  x = x.reshape(B, count, BLOCK)
  # Sorted, so that of equal numbers the first comes first.
  blocks = jnp.sort(jax.lax.top_k(x.max(-1), k)[1], axis=1)
  few = jnp.take_along_axis(x, blocks[..., None], axis=1).reshape(B, -1)
  numbers, places = jax.lax.top_k(few, k)
  blocks = jnp.take_along_axis(blocks, places // BLOCK, axis=1)
  return numbers, blocks * BLOCK + places % BLOCK
