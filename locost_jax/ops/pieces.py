"""Loops over the pieces of an axis, all of one size.

Where the size does not divide the length the last piece begins early and has
some of the one before: `Piece.fresh` marks the elements that are new.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=['index', 'start', 'fresh'],
    meta_fields=['overlaps'],
)
@dataclasses.dataclass(frozen=True)
class Piece:
  """`size` elements of an axis, from `start` on.

  index: which piece, int [].
  start: int [].
  fresh: bool [size], false at elements that the piece before had.
  overlaps: whether any piece of the axis has some of the one before.
  """

  index: jax.Array
  start: jax.Array
  fresh: jax.Array
  overlaps: bool = False

  def take(self, x, axis):
    """The piece of x along this axis."""
    return jax.lax.dynamic_slice_in_dim(x, self.start, self.fresh.size, axis)

  def put(self, x, part, axis):
    """x with the piece replaced by part."""
    return jax.lax.dynamic_update_slice_in_dim(x, part, self.start, axis)

  def choose(self, new, old, axis):
    """`new` where the elements along this axis are fresh, `old` elsewhere."""
    if not self.overlaps:
      return new
    fresh = self.fresh.reshape(-1, *[1] * (new.ndim - axis - 1))
    return jnp.where(fresh, new, old)


def of_tokens(tokens, batch, length):
  """The size of pieces of [batch, length] that have `tokens` tokens together."""
  return min(length, max(1, tokens // batch))


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
    return update(Piece(index, start, fresh, bool(length % size)), carry)

  carry = settled(functools.partial(run, jnp.asarray(0)), carry)
  return jax.lax.fori_loop(0, -(-length // size), run, carry)


def tie(constants, to):
  """`constants`, as if they depended on the array `to`.

  What a loop inside the loop over layers makes from constants of the layers or
  from its counter alone, like masks, JAX takes out of the gradient's layers and
  keeps for all pieces at once: the memory that pieces were to save. What is
  tied to the carry stays inside.
  """
  return jax.lax.optimization_barrier((constants, to))[0]


def settled(step, carry):
  """The carry of a loop over step(carry), of the type it has after a step.

  Inside shard_map: what is the same on all devices may differ afterwards.
  """
  if not jax.sharding.get_abstract_mesh().manual_axes:
    return carry
  return jax.tree.map(
      lambda x, after: varying(x, _axes(after)),
      carry,
      jax.eval_shape(step, carry),
  )


def varying(tree, axes):
  """Arrays in shard_map as such that may differ along these mesh axes."""
  return jax.tree.map(
      lambda x: jax.lax.pcast(
          x,
          tuple(axis for axis in axes if axis not in _axes(jax.typeof(x))),
          to='varying',
      ),
      tree,
  )


def _axes(kind):
  """The mesh axes along which a value differs, of its type in shard_map."""
  if hasattr(kind, 'vma'):  # its name in other releases of JAX
    return kind.vma
  return kind.manual_axis_type.varying
