"""A memory of which the decoder reads some states.

Its mask is true at what the decoder reads. `compact` drops the rest, so that
the cost of a decoding step depends on the selected states and not on the
input's length.

Axes: B documents, C chunks, L tokens of a chunk, or of a document that is not
in chunks, S slots of a compact memory, D d_model.
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
  mask = memory['mask']
  return mask.reshape(len(mask), -1).sum(1)


def bucket(count):
  """The smallest 2^k or 1.5 * 2^k, from SMALLEST on, that holds `count`."""
  power = 1 << (max(count, SMALLEST) - 1).bit_length()
  return power // 4 * 3 if max(count, SMALLEST) <= power // 4 * 3 else power


def compact(memory, capacity=None):
  """Drops the states that were not selected; decoding gives the same result.

  Not under jit: reads the number of selected states. On a mesh the capacity is
  rounded up to a multiple of `sequence`.

  Args:
    memory: states [B, C, L, D] or [B, L, D], and their mask.
    capacity: S, states kept per document, at least the largest of
      `selected_counts`; None: the `bucket` of that. It is the maximum over all
      hosts, so that all run the same program.

  Returns:
    {'states': [B, 1, S, D], 'mask': bool [B, 1, S]} or [B, S, D] and [B, S], in
    reading order. The memory itself if it has no more slots.
  """
  most = int(_largest_count(memory))
  capacity = bucket(most) if capacity is None else capacity
  if most > capacity:
    raise InputError(
        f'{most} states of a document are selected: expected at most {capacity}'
    )
  capacity += -capacity % mesh_lib.axis_size(mesh_lib.SEQUENCE)
  few = capacity < memory['mask'][0].size
  return _compact(memory, capacity) if few else memory


@jax.jit
def _largest_count(memory):
  """The largest of `selected_counts`: a scalar that every host has."""
  return selected_counts(memory).max()


@functools.partial(jax.jit, static_argnums=1)
def _compact(memory, size):
  """The first `size` selected states of each document."""
  is_in_chunks = memory['mask'].ndim == 3
  if is_in_chunks:
    memory = stack.in_line(memory)
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
  small = jax.tree.map(stack.lay_read, small)
  return jax.tree.map(lambda x: x[:, None], small) if is_in_chunks else small
