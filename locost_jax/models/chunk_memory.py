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


def in_line(memory):
  """The memory of BART: arrays [B, C, L, ...] -> [B, C L, ...]."""
  return jax.tree.map(
      lambda x: stack.lay_read(x.reshape(x.shape[0], -1, *x.shape[3:])), memory
  )


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
def _compact(memory, capacity):
  memory = in_line(memory)
  order = jnp.argsort(~memory['mask'], axis=1, stable=True)[:, :capacity]
  states = jnp.take_along_axis(memory['states'], order[..., None], axis=1)
  mask = jnp.take_along_axis(memory['mask'], order, axis=1)
  states, mask = stack.lay_read(states), stack.lay_read(mask)
  return {'states': states[:, None], 'mask': mask[:, None]}
