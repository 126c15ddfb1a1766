"""Parts of a layer that work token by token, over pieces of the length.

What such a part computes on its way, like the hidden units of a feed-forward,
exists for one piece at a time: the backward pass keeps the arguments only and
makes the rest again, piece by piece. Arrays of the whole length are the
arguments, the result and their gradients, each written in place.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from locost_jax.models import mesh
from locost_jax.models import pieces

# Tokens, of all documents of a device together, in one piece. CPU: hidden units
# stay near its caches. Elsewhere larger products are faster.
CPU_PIECE = 2048
PIECE = 4096


def piece_length(batch, length):
  """Tokens of a document in a piece of what a device has, [batch, length]."""
  return pieces.of_tokens(
      CPU_PIECE if mesh.platform() == 'cpu' else PIECE, batch, length)


def is_long(batch, length, along=None):
  """Whether what a device has of [batch, length] is more than a piece.

  Never under a `tensor` axis: parameters that are cut along it are left to
  XLA's partitioner, outside of `apply`.
  """
  batch, length = on_device(batch, length, along)
  return mesh.axis_size(mesh.TENSOR) == 1 and (
      piece_length(batch, length) < length)


def on_device(batch, length, along=None):
  """(rows, length) of a device's part of [batch, length]; as of `apply`."""
  return (batch // (mesh.axis_size(mesh.DATA)
                    * mesh.axis_size(mesh.FSDP)),
          length // mesh.axis_size(along))


def method(module, name, *xs, along=None, draws=False):
  """module.name(*xs), token by token, over pieces of the length.

  Args:
    module: a bound Flax module, whose parameters exist.
    name: of a method (*xs, deterministic=True) that only works on tokens one
      by one.
    *xs: as in `apply`.
    along: likewise.
    draws: whether it is called with deterministic=False.

  Returns:
    What it returns, [B, L, D].
  """
  unbound = module.clone(parent=None)

  def function(params, key, *xs):
    if key is None:
      return unbound.apply({'params': params}, *xs, method=name)
    return unbound.apply({'params': params}, *xs, False, method=name,
                         rngs={'dropout': key})

  key = module.make_rng('dropout') if draws else None
  return apply(function, module.variables['params'], xs, key, along)


def apply(function, shared, xs, key=None, along=None, size=None):
  """function over pieces of the length, forward and backward.

  Args:
    function: (shared, key, *pieces of xs) -> [B, size, D]; token by token. It
      must not hold arrays: they belong into `shared`.
    shared: tree of float arrays that all tokens share, the parameters.
    xs: tuple of arrays [B, L, ...]. Those that are not float have no gradient.
    key: a random key, or None; piece i is given fold_in(key, i). Each device
      draws its own numbers.
    along: the mesh axis that the length is cut over, or None.
    size: tokens of a piece; None: `piece_length`.

  Returns:
    [B, L, D].
  """
  def of_part(shared, xs, key):
    B, L = xs[0].shape[:2]
    own = mesh.own_key(
        key, *mesh.ROWS, *filter(None, [along]))
    return _over_pieces(function, size or piece_length(B, L), shared, xs, own)

  rows = P(mesh.ROWS, along)
  return mesh.on_mesh(of_part, (P(), rows, P()), rows, shared, xs, key)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _over_pieces(function, size, shared, xs, key):
  """`apply` on one device."""
  def run(piece):
    return function(shared, _fold(key, piece), *_take(piece, xs))

  def put(piece, out):
    new = run(piece)
    if L % size:  # with dropout it matters which piece an element is of
      new = jnp.where(_fresh(piece, new), new, piece.take(out, 1))
    return piece.put(out, new, 1)

  B, L = xs[0].shape[:2]
  first = pieces.Piece(jnp.int32(0), jnp.int32(0), jnp.ones(size, bool))
  like = jax.eval_shape(run, first)
  return pieces.over(
      L, size, put, jnp.zeros_like(
          xs[0], like.dtype, (B, L, *like.shape[2:])))


def _forward(function, size, shared, xs, key):
  return _over_pieces(function, size, shared, xs, key), (shared, xs, key)


def _backward(function, size, kept, d_out):
  shared, xs, key = kept
  smooth = [jnp.issubdtype(x.dtype, jnp.inexact) for x in xs]

  def add(piece, carry):
    d_shared, d_xs = carry
    parts = _take(piece, xs)

    def of_smooth(shared, changed):
      changed = iter(changed)
      return function(shared, _fold(key, piece), *(
          next(changed) if is_smooth else part
          for part, is_smooth in zip(parts, smooth)))

    _, pull = jax.vjp(of_smooth, shared, _select(parts, smooth))
    # What the piece before had is computed again and counts once.
    part = piece.take(d_out, 1)
    more, d_parts = pull(jnp.where(_fresh(piece, part), part, 0))
    return (jax.tree.map(jnp.add, d_shared, more),
            [piece.put(d, piece.take(d, 1) + d_part, 1)
             for d, d_part in zip(d_xs, d_parts)])

  d_shared, d_xs = pieces.over(xs[0].shape[1], size, add, jax.tree.map(
      jnp.zeros_like, (shared, _select(xs, smooth))))
  d_xs = iter(d_xs)
  return d_shared, tuple(next(d_xs) if s else None for s in smooth), None


_over_pieces.defvjp(_forward, _backward)


def _take(piece, xs):
  return tuple(piece.take(x, 1) for x in xs)


def _fresh(piece, part):
  """[size, 1, ...], to go with part [B, size, ...]."""
  return piece.fresh.reshape(-1, *[1] * (part.ndim - 2))


def _select(xs, wanted):
  return [x for x, is_wanted in zip(xs, wanted) if is_wanted]


def _fold(key, piece):
  return None if key is None else jax.random.fold_in(key, piece.index)
