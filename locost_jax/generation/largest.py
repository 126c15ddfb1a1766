"""The k largest numbers of long rows, where XLA would sort them whole.

In the program of a beam search on a CPU, XLA sorts the rows of `jax.lax.top_k`:
of 50 rows of 16,000 scores that took 150 ms for every token, and 6 ms as here.
The k largest lie in the k blocks whose maxima are largest, so only those are
sorted.
"""

import jax
import jax.numpy as jnp

BLOCK = 128  # numbers of a block: about the root of a row


def top_k(x, k):
  """Returns what jax.lax.top_k does: of equal numbers the first is taken.

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
  # In order, so that of equal numbers the first comes first.
  blocks = jnp.sort(jax.lax.top_k(x.max(-1), k)[1], axis=1)
  few = jnp.take_along_axis(x, blocks[..., None], axis=1).reshape(B, -1)
  numbers, places = jax.lax.top_k(few, k)
  blocks = jnp.take_along_axis(blocks, places // BLOCK, axis=1)
  return numbers, blocks * BLOCK + places % BLOCK
