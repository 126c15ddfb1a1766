"""The memory of SimCAS: states of chunks, of which the decoder reads some.

A memory is {'states': [B, C, L, D], 'mask': bool [B, C, L]}; the mask is true
at what the decoder reads. `compact` leaves the rest out, so that a step of the
decoder costs what was selected and not what was read.

Axes: B documents, C chunks, L tokens of a chunk, S slots of a compact memory, D
d_model.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import stack
from locost_jax.ops import mesh as mesh_lib

# The smallest bucket: below it a step costs the same however few are read.
SMALLEST = 64


def selected_counts(memory):
  """How many states the decoder reads of each document, g_0 too: int [B]."""
  return memory['mask'].sum((1, 2))


def bucket(count):
  """The smallest 2^k or 1.5 * 2^k, from SMALLEST on, that holds `count`."""
  power = 1 << (max(count, SMALLEST) - 1).bit_length()
  return power // 4 * 3 if max(count, SMALLEST) <= power // 4 * 3 else power


def compact(memory, capacity):
  """A memory without what was not selected: decoding it gives the same.

  Not under jit: how many there are is looked at. On a mesh `sequence` divides
  the capacity, or it is rounded up.

  Args:
    memory: of `SimCAS.encode`.
    capacity: states that are kept of a document, g_0 among them; at least the
      largest of `selected_counts`.

  Returns:
    {'states': [B, 1, S, D], 'mask': bool [B, 1, S]}, in reading order; S is the
    capacity, or all slots where there are fewer.

  Raises:
    InputError: more than that were selected.
  """
  most = int(_most(memory))
  if most > capacity:
    raise InputError(
        f'{most} states of a document are selected: expected at most {capacity}'
    )
  capacity += -capacity % mesh_lib.axis_size(mesh_lib.SEQUENCE)
  return _compact(memory, min(capacity, memory['mask'][0].size))


def compact_to_bucket(memory):
  """`compact` to the `bucket` of the document with most selected states.

  Of all documents of all hosts, so that all run the same program. A memory that
  has no more slots than that is returned as it is.
  """
  capacity = bucket(int(_most(memory)))
  few = capacity < memory['mask'][0].size
  return compact(memory, capacity) if few else memory


@jax.jit
def _most(memory):
  """The largest of `selected_counts`: a scalar that every host has."""
  return selected_counts(memory).max()


@functools.partial(jax.jit, static_argnums=1)
def gather(memory, size):
  """The first states of a memory that the mask has, in reading order.

  Args:
    memory: {'states': [B, L, D], 'mask': bool [B, L]}, and maybe 'tokens'.
    size: states of a document in the result; further ones are left out.

  Returns:
    The same of `size` states.
  """
  found = jnp.cumsum(memory['mask'], axis=1)
  number = jnp.arange(1, size + 1)
  # The n-th selected state is the first one up to which there are n.
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
