"""Loops over the pieces of an axis, all of one size.

If the size does not divide the length, the last piece starts early and overlaps
the one before: `Piece.is_new` marks its new elements.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from locost_jax.ops import mesh as mesh_lib


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
    size = self.is_new.size
    bits = jax.lax.dynamic_slice_in_dim(_as_bits(x), self.start, size, axis)
    return _of_bits(bits, x)

  def put(self, x, part, axis):
    """x with the piece replaced by part."""
    both = _as_bits(x), _as_bits(part)
    new = jax.lax.dynamic_update_slice_in_dim(*both, self.start, axis)
    return _of_bits(new, x)

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

  On a CPU, before jax 0.11, it has no gradient if the carry holds bfloat16.
  """

  def run(index, carry):
    start = jnp.minimum(index * size, length - size)
    is_new = start + jnp.arange(size) >= index * size
    return update(Piece(index, start, is_new, bool(length % size)), carry)

  def run_bits(index, bits):
    after = run(index, jax.tree.map(_of_bits, bits, carry))
    return jax.tree.map(_as_bits, after)

  carry = mesh_lib.match_type(functools.partial(run, jnp.asarray(0)), carry)
  bits = jax.tree.map(_as_bits, carry)
  bits = jax.lax.fori_loop(0, -(-length // size), run_bits, bits)
  return jax.tree.map(_of_bits, bits, carry)


def _as_bits(x):
  """On a CPU, before jax 0.11, bfloat16 x as uint16, without gradients.

  Its pieces are read and written in place. XLA would convert the whole array to
  float32 and back for every piece; since jax 0.11 it does not.
  """
  converts = mesh_lib.platform() == 'cpu' and jax.__version_info__ < (0, 11)
  return _bits(x) if converts and x.dtype == jnp.bfloat16 else x


@jax.custom_jvp
def _bits(x):
  """The bits of bfloat16 x as uint16."""
  return jax.lax.bitcast_convert_type(x, jnp.uint16)


@_bits.defjvp
def _bits_jvp(primals, tangents):
  raise NotImplementedError('bits have no gradient: expected a custom one')


def _of_bits(x, like):
  """The array that `_as_bits` got; `like` has its dtype."""
  is_bits = (x.dtype, like.dtype) == (jnp.uint16, jnp.bfloat16)
  return jax.lax.bitcast_convert_type(x, like.dtype) if is_bits else x


def tie(constants, to):
  """Makes `constants` depend on the array `to`.

  In a loop inside the loop over layers, JAX hoists values that depend only on
  the counter or on constants of the layers, like masks, and keeps them for all
  pieces at once: the memory that pieces should save. Values tied to the carry
  stay inside.
  """
  return jax.lax.optimization_barrier((constants, to))[0]
