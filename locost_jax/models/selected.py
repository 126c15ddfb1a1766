"""Drops the states of a memory that the decoder does not read.

Decoding gives the same result: a softmax over the selected states alone. The
cost of a step then depends on their number and not on the input's length.
`chunk_memory` does the same for documents in chunks.

Axes: B documents, L input length, D d_model.
"""

import jax

from locost_jax.errors import InputError
from locost_jax.models import chunk_memory


@jax.jit
def largest_count(memory):
  """The largest number of states that the decoder reads of a document."""
  return memory['mask'].sum(1).max()


def compact(memory, size=None):
  """Keeps the selected states of a memory, in reading order.

  Not under jit: reads the number of selected states.

  Args:
    memory: {'states': [B, L, D], 'mask': bool [B, L]}.
    size: states of a document in the result; None: the `chunk_memory.bucket` of
      the largest number.

  Returns:
    {'states': [B, size, D], 'mask': bool [B, size]}; the memory itself if it is
    not longer.

  Raises:
    InputError: more than `size` states were selected.
  """
  number = int(largest_count(memory))
  size = chunk_memory.bucket(number) if size is None else size
  if number > size:
    raise InputError(
        f'{number} states of a document are selected: expected at most {size}'
    )
  if size >= memory['mask'].shape[1]:
    return memory
  return chunk_memory.gather(memory, size)
