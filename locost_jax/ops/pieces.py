"""Loops over the pieces of an axis, all of one size.

If the size does not divide the length, the last piece starts early and overlaps
the one before: `Piece.is_new` marks its new elements.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=['index', 'start', 'is_new'],
    meta_fields=['overlaps'],
)
@dataclasses.dataclass(frozen=True)
class Piece:
  """`size` elements of an axis, from `start` on."""

  index: jax.Array  # int [], the number of the piece
  start: jax.Array  # int []
  is_new: jax.Array  # bool [size], false at elements of the piece before
  overlaps: bool = False  # whether any piece of the axis overlaps another

  def take(self, x, axis):
    """The piece of x along this axis."""
    return jax.lax.dynamic_slice_in_dim(x, self.start, self.is_new.size, axis)

  def put(self, x, part, axis):
    """x with the piece replaced by part."""
    return jax.lax.dynamic_update_slice_in_dim(x, part, self.start, axis)

  def choose(self, new, old, axis):
    """`new` at the new elements along this axis, `old` elsewhere."""
    if not self.overlaps:
      return new
    is_new = self.is_new.reshape(-1, *[1] * (new.ndim - axis - 1))
    return jnp.where(is_new, new, old)


def of_tokens(tokens, batch, length):
  """The length of pieces of [batch, length] that hold about `tokens` tokens."""
  return min(length, max(1, tokens // batch))


def over(length, size, update, carry):
  """carry <- update(piece, carry) for the pieces of an axis, in order.

  Args:
    length: of the axis.
    size: of a piece, at most `length`.
    update: (Piece, carry) -> carry of the same shapes.
  """

  def run(index, carry):
    start = jnp.minimum(index * size, length - size)
    is_new = start + jnp.arange(size) >= index * size
    return update(Piece(index, start, is_new, bool(length % size)), carry)

  carry = match_type(functools.partial(run, jnp.asarray(0)), carry)
  return jax.lax.fori_loop(0, -(-length // size), run, carry)


def tie(constants, to):
  """Makes `constants` depend on the array `to`.

  In a loop inside the loop over layers, JAX hoists values that depend only on
  the counter or on constants of the layers, like masks, and keeps them for all
  pieces at once: the memory that pieces should save. Values tied to the carry
  stay inside.
  """
  return jax.lax.optimization_barrier((constants, to))[0]


def match_type(step, carry):
  """Gives a loop's initial carry the type that step(carry) returns.

  Inside shard_map, values equal on all devices may differ after a step.
  """
  if not jax.sharding.get_abstract_mesh().manual_axes:
    return carry
  return jax.tree.map(
      lambda x, after: varying(x, _axes(after)),
      carry,
      jax.eval_shape(step, carry),
  )


def varying(tree, axes):
  """Marks arrays in shard_map as varying along these mesh axes."""
  return jax.tree.map(
      lambda x: jax.lax.pcast(
          x,
          tuple(axis for axis in axes if axis not in _axes(jax.typeof(x))),
          to='varying',
      ),
      tree,
  )


def _axes(kind):
  """The mesh axes along which values of a type in shard_map vary."""
  if hasattr(kind, 'vma'):  # its name in other releases of JAX
    return kind.vma
  return kind.manual_axis_type.varying
