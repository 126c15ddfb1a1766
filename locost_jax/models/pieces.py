"""Loops over the pieces of an axis, all of one size.

Where the size does not divide the length the last piece begins early and has
some of the one before: `fresh` tells which elements are new.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Piece(NamedTuple):
  """`size` elements of an axis, from `start` on.

  index: which piece, int [].
  start: int [].
  fresh: bool [size], false at elements that the piece before had.
  """
  index: jax.Array
  start: jax.Array
  fresh: jax.Array

  def take(self, x, axis):
    """The piece of x along this axis."""
    return jax.lax.dynamic_slice_in_dim(x, self.start, self.fresh.size, axis)

  def put(self, x, part, axis):
    """x with the piece replaced by part."""
    return jax.lax.dynamic_update_slice_in_dim(x, part, self.start, axis)


def over(length, size, update, carry):
  """carry <- update(piece, carry) for the pieces of an axis, in order.

  Args:
    length: of the axis.
    size: of a piece, at most `length`.
    update: (Piece, carry) -> carry of the same shapes.
    carry: a tree of arrays.

  Returns:
    The last carry.
  """
  def run(index, carry):
    start = jnp.minimum(index * size, length - size)
    fresh = start + jnp.arange(size) >= index * size
    return update(Piece(index, start, fresh), carry)

  return jax.lax.fori_loop(0, -(-length // size), run, carry)
