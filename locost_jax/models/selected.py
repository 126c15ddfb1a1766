"""A memory without the states that the decoder is not to read.

Decoding it gives the same: a softmax over the selected states alone. Its cost
is that of the selected states and no longer that of the whole input.

Axes: B documents, L input length, D d_model.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError


def counts(memory):
  """How many states the decoder reads of each document: int [B]."""
  return memory['mask'].sum(1)


def capacity(number, length):
  """The states that are kept where `number` were selected of `length`.

  2^k or 1.5 * 2^k, so that documents share few compiled programs; never more
  than there are.
  """
  power = 1 << max(0, int(number) - 1).bit_length()
  least = 3 * power // 4 if number <= 3 * power // 4 else power
  return min(max(1, least), length)


def compact(memory, size=None):
  """Keeps the selected states of a memory, in reading order.

  Not under jit: looks at how many there are.

  Args:
    memory: {'states': [B, L, D], 'mask': bool [B, L]}.
    size: states of a document in the result; None: the `capacity` of the
      largest of `counts`.

  Returns:
    {'states': [B, size, D], 'mask': bool [B, size]}.

  Raises:
    InputError: more than `size` were selected.
  """
  most, length = int(counts(memory).max()), memory['mask'].shape[1]
  if size is None:
    size = capacity(most, length)
  if most > size:
    raise InputError(
        f'{most} states of a document are selected: expected at most {size}'
    )
  return memory if size >= length else gather(memory, size)


@functools.partial(jax.jit, static_argnums=1)
def gather(memory, size):
  """The first `size` selected states; as of `compact`."""
  found = jnp.cumsum(memory['mask'], axis=1)
  number = jnp.arange(1, size + 1)
  # The n-th selected one is the first place up to which there are n.
  places = jax.vmap(lambda row: jnp.searchsorted(row, number))(found)
  states = jnp.take_along_axis(
      memory['states'], places[..., None], axis=1, mode='clip'
  )
  return {'states': states, 'mask': number <= found[:, -1:]}
