"""The memory of SimCAS: states of chunks, of which the decoder reads some.

A memory is {'states': [B, C, L, D], 'mask': bool [B, C, L]}; the mask is true
at what the decoder reads. `compact` drops the rest, so that the cost of a
decoding step depends on the selected states and not on the input's length.

Axes: B documents, C chunks, L tokens of a chunk, S slots of a compact memory, D
d_model.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import stack
from locost_jax.ops import mesh as mesh_lib

# The smallest bucket: below it a step costs the same.
SMALLEST = 64


def selected_counts(memory):
  """The number of states the decoder reads per document, with g_0: int [B]."""
  return memory['mask'].sum((1, 2))


def bucket(count):
  """The smallest 2^k or 1.5 * 2^k, from SMALLEST on, that holds `count`."""
  power = 1 << (max(count, SMALLEST) - 1).bit_length()
  return power // 4 * 3 if max(count, SMALLEST) <= power // 4 * 3 else power


def compact(memory, capacity):
  """Drops the states that were not selected; decoding gives the same result.

  Not under jit: reads the number of selected states. On a mesh the capacity is
  rounded up to a multiple of `sequence`.

  Args:
    memory: of `SimCAS.encode`.
    capacity: states kept per document, g_0 included; at least the largest of
      `selected_counts`.

  Returns:
    {'states': [B, 1, S, D], 'mask': bool [B, 1, S]}, in reading order; S is the
    capacity, or all slots where there are fewer.

  Raises:
    InputError: more states than `capacity` were selected.
  """
  most = int(_largest_count(memory))
  if most > capacity:
    raise InputError(
        f'{most} states of a document are selected: expected at most {capacity}'
    )
  capacity += -capacity % mesh_lib.axis_size(mesh_lib.SEQUENCE)
  return _compact(memory, min(capacity, memory['mask'][0].size))


def compact_to_bucket(memory):
  """`compact` to the `bucket` of the document with most selected states.

  The maximum is over all hosts, so that all run the same program. A memory with
  no more slots than the bucket is returned unchanged.
  """
  capacity = bucket(int(_largest_count(memory)))
  few = capacity < memory['mask'][0].size
  return compact(memory, capacity) if few else memory


@jax.jit
def _largest_count(memory):
  """The largest of `selected_counts`: a scalar that every host has."""
  return selected_counts(memory).max()


@functools.partial(jax.jit, static_argnums=1)
def gather(memory, size):
  """The first states of a memory where the mask is true, in reading order.

  Args:
    memory: {'states': [B, L, D], 'mask': bool [B, L]}, and maybe 'tokens'.
    size: states of a document in the result; further ones are left out.

  Returns:
    The same with `size` states.
  """
  found = jnp.cumsum(memory['mask'], axis=1)
  number = jnp.arange(1, size + 1)
  # The n-th selected state is the first with a count of n.
  places = jax.vmap(lambda row: jnp.searchsorted(row, number))(found)
  small = {
      key: jnp.take_along_axis(
          x, places.reshape(*places.shape, *[1] * (x.ndim - 2)), 1, mode='clip'
      )
      for key, x in memory.items()
  }
  small['mask'] = number <= found[:, -1:]
  return jax.tree.map(stack.lay_read, small)


@functools.partial(jax.jit, static_argnums=1)
def _compact(memory, capacity):
  small = gather(stack.in_line(memory), capacity)
  return jax.tree.map(lambda x: x[:, None], small)
