"""Parts of a layer that work token by token, over pieces of the length.

Intermediate values, like the hidden units of a feed-forward, exist for one
piece at a time: the backward pass keeps the arguments only and recomputes the
rest piece by piece. Only the arguments, the result and their gradients have the
whole length, each written in place.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces

# Tokens in one piece, over all documents of a device. CPU: hidden units stay
# near its caches. Elsewhere larger products are faster.
CPU_PIECE = 2048
PIECE = 4096


def piece_length(batch, length):
  """Tokens per document in a piece of a device's part [batch, length]."""
  return pieces.of_tokens(
      CPU_PIECE if mesh_lib.platform() == 'cpu' else PIECE, batch, length
  )


def is_long(batch, length, along=None):
  """Whether a device's part of [batch, length] is more than one piece.

  Always False under a `tensor` axis: parameters split along it are left to
  XLA's partitioner, outside `apply`.
  """
  batch, length = on_device(batch, length, along)
  return mesh_lib.axis_size(mesh_lib.TENSOR) == 1 and (
      piece_length(batch, length) < length
  )


def on_device(batch, length, along=None):
  """(rows, length) of a device's part of [batch, length]; see `apply`."""
  return batch // mesh_lib.row_parts(), length // mesh_lib.axis_size(along)


def method(module, name, *xs, axes=None, along=None, draws=False, size=None):
  """Calls module.name(*xs) over pieces of the length; the rest as in `apply`.

  Args:
    module: a bound Flax module, whose parameters exist.
    name: of a method (*xs, deterministic=True) that works token by token.
    draws: whether it is called with deterministic=False.
  """
  unbound = module.clone(parent=None)

  def function(params, key, *xs):
    if key is None:
      return unbound.apply({'params': params}, *xs, method=name)
    return unbound.apply(
        {'params': params}, *xs, False, method=name, rngs={'dropout': key}
    )

  key = module.make_rng('dropout') if draws else None
  return apply(function, module.variables['params'], xs, key, axes, along, size)


def apply(function, shared, xs, key=None, axes=None, along=None, size=None):
  """Runs a function over pieces of the length, forward and backward.

  Args:
    function: (shared, key, *pieces of xs) -> a piece of the result; token by
      token. It must not close over arrays: pass them in `shared`.
    shared: tree of float arrays that all tokens share, the parameters.
    xs: tuple of arrays [..., B, L, ...]. Arrays that are not float have no
      gradient.
    key: a random key, or None; piece i gets fold_in(key, i). Each device draws
      its own numbers.
    axes: the index of axis L in each of xs and in the result; None: 1.
    along: the mesh axis that the length is split over, or None.
    size: tokens of a piece; None: `piece_length`.
  """
  axes = axes or (1,) * (len(xs) + 1)
  function = mesh_lib.bind_rows(function)

  def of_part(shared, xs, key):
    B, L = _sizes(xs, axes)
    own = mesh_lib.own_key(key, *mesh_lib.ROWS, *filter(None, [along]))
    return _over_pieces(
        function, size or piece_length(B, L), axes, shared, xs, own
    )

  *rows, row = [P(*(None,) * (axis - 1), mesh_lib.ROWS, along) for axis in axes]
  return mesh_lib.on_mesh(
      of_part, (P(), tuple(rows), P()), row, shared, xs, key
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _over_pieces(function, size, axes, shared, xs, key):
  """`apply` on one device."""

  def run(piece):
    return function(shared, _fold(key, piece), *_take(piece, xs, axes))

  def put(piece, out):
    # With dropout the value of an element depends on its piece.
    new = piece.choose(run(piece), piece.take(out, axis), axis)
    return piece.put(out, new, axis)

  L, axis = _sizes(xs, axes)[1], axes[-1]
  first = pieces.Piece(jnp.asarray(0), jnp.asarray(0), jnp.ones(size, bool))
  like = jax.eval_shape(run, first)
  return pieces.over(
      L,
      size,
      put,
      jnp.zeros_like(
          xs[0], like.dtype, (*like.shape[:axis], L, *like.shape[axis + 1 :])
      ),
  )


def _forward(function, size, axes, shared, xs, key):
  out = _over_pieces(function, size, axes, shared, xs, key)
  return out, (shared, xs, key)


def _backward(function, size, axes, kept, d_out):
  shared, xs, key = kept
  smooth = [jnp.issubdtype(x.dtype, jnp.inexact) for x in xs]
  L = _sizes(xs, axes)[1]

  def add(piece, carry):
    d_shared, d_xs = carry
    parts = _take(piece, xs, axes)

    def of_smooth(shared, changed):
      changed = iter(changed)
      return function(
          shared,
          _fold(key, piece),
          *(
              next(changed) if is_smooth else part
              for part, is_smooth in zip(parts, smooth)
          )
      )

    _, pull = jax.vjp(of_smooth, shared, _select(parts, smooth))
    # Elements shared with the previous piece are recomputed but count once.
    part = piece.take(d_out, axes[-1])
    more, d_parts = pull(piece.choose(part, 0, axes[-1]))
    return (
        jax.tree.map(jnp.add, d_shared, more),
        [
            piece.put(d, piece.take(d, axis) + d_part, axis)
            for d, d_part, axis in zip(d_xs, d_parts, _select(axes, smooth))
        ],
    )

  d_shared, d_xs = pieces.over(
      L, size, add, jax.tree.map(jnp.zeros_like, (shared, _select(xs, smooth)))
  )
  d_xs = iter(d_xs)
  return d_shared, tuple(next(d_xs) if s else None for s in smooth), None


_over_pieces.defvjp(_forward, _backward)


def _sizes(xs, axes):
  """B, L."""
  return xs[0].shape[axes[0] - 1 : axes[0] + 1]


def _take(piece, xs, axes):
  return tuple(piece.take(x, axis) for x, axis in zip(xs, axes))


def _select(xs, wanted):
  return [x for x, is_wanted in zip(xs, wanted) if is_wanted]


def _fold(key, piece):
  return None if key is None else jax.random.fold_in(key, piece.index)
