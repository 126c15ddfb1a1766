"""The kernels of diagonal state-space models, fast and in bounded memory.

`kernel` equals `ssm.kernel` (LOCOST, equation 2) as a two-level product: with
l = a T + b,

  K[a, b] = 2 Re sum_n (w_n z_n^(aT)) z_n^b,

a real matrix product of each channel's (re, im) parts instead of N L
exponentials. Tables of the powers z^b and z^(aT) are made by doubling.
`weighted_sums` is its transpose. Both run over groups of channels, so that the
tables of only a few channels exist at once.

Axes as in `ssm`: C directions, G parameter sets, D channels, N complex state
pairs, L lags; T lags in a tile, A tiles in a block. Everything is at least
float32.
"""

import functools
import math

import jax
import jax.numpy as jnp

from locost_jax.ops import complex_pairs
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces

HIGHEST = jax.lax.Precision.HIGHEST

# Limits for the tables of a group of channels: on a CPU they stay in its cache;
# a GPU has far more memory and is faster with few large products.
CPU_TABLE_BYTES = 16 << 20
TABLE_BYTES = 512 << 20
CPU_TILES = 16  # in a block


def tile_size(length):
  """T, the lags of one tile of the two-level product.

  About sqrt(length), which makes the tables smallest, but at least 128, since
  narrower products are slow. A CPU, which makes tables channel by channel, takes
  a quarter and at least 64: at 1K, 4K, 16K and 64K tokens 0.8, 0.9, 0.95 and
  0.7 times the time of the larger tiles.
  """
  root = 1 << round(math.log2(length) / 2)
  on_cpu = mesh_lib.platform() == 'cpu'
  return min(length, max(64, root // 4) if on_cpu else max(128, root))


def kernel(log_z, w, length):
  """K[l] = 2 Re sum_n w_n z_n^l as a two-level product (equation 2).

  Blocks of tiles in which the slowest state of a channel has decayed below
  eps^1.5 are zero. The backward pass computes the tables again.

  log_z pair of [G, D, N], w pair of [C, D, N] -> [C, D, length], real.
  """
  C, T = w[0].shape[0], tile_size(length)
  A = -(-length // T)
  if mesh_lib.platform() == 'cpu':
    # Tables of one channel stay in cache. At least two blocks: with a single
    # one, XLA would recompute the tables for every product.
    few = min(CPU_TILES, 1 << max(A.bit_length() - 2, 0))
    return kernel_in_tiles(log_z, w, length, T, few, 1)
  return kernel_in_tiles(log_z, w, length, T, A, group_size(log_z, C, T, A))


def group_size(log_z, C, T, A):
  """Channels whose tables exist at once: T inner powers, C times A outer."""
  return max(table_bytes() // _channel_bytes(log_z, C, T, A), 1)


def table_bytes():
  """The limit in bytes for the tables of one group of channels."""
  return CPU_TABLE_BYTES if mesh_lib.platform() == 'cpu' else TABLE_BYTES


def keeps_tables(log_z, C, T, A):
  """Whether the backward pass of `weighted_sums` keeps all channels' tables.

  Only if they are small on any backend: each layer keeps its own copy.
  """
  D = log_z[0].shape[1]
  return D * _channel_bytes(log_z, C, T, A) <= CPU_TABLE_BYTES


def _channel_bytes(log_z, C, T, A):
  """Bytes of a channel's tables, see `group_size`."""
  G, _, N = log_z[0].shape
  return log_z[0].dtype.itemsize * 2 * N * (G * (T + A) + C * A)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def kernel_in_tiles(log_z, w, length, T, A, group):
  """`kernel` with tiles of T lags, A of them in a block, in groups of channels.

  T and A are powers of two unless they cover all lags.
  """
  C, D, _ = w[0].shape
  blocks = -(-length // (A * T))
  z, w = complex_pairs.squares(log_z, blocks * A * T), _by_set(log_z, w)

  def of_group(piece, K):
    rates = _take(piece, log_z, 1)
    inner, outer, first = _tables(_take(piece, z, 2), T, A, blocks)
    inner = _settle(tuple(part.swapaxes(2, 3) for part in _settle(inner)))
    own = _take(piece, w, 1)

    def of_block(k, K):
      start = k * A * T

      def make():
        x = complex_pairs.multiply(own, _row(first, k))  # [G, D, C/G, N]
        x = complex_pairs.multiply(
            tuple(part[..., None, :] for part in x),
            tuple(part[:, :, None] for part in outer),
        )
        re, im = (
            jnp.einsum('gdcan,gdnb->gdcab', *both, precision=HIGHEST)
            for both in zip(x, inner)
        )
        return 2 * (re - im).swapaxes(1, 2).reshape(C, -1, A * T)

      lags = _unless_decayed(rates, start, make)
      return jax.lax.dynamic_update_slice(K, lags, (0, piece.start, start))

    return _over_blocks(blocks, of_block, K)

  K = jnp.zeros((C, D, blocks * A * T), w[0].dtype)
  return pieces.over(D, min(group, D), of_group, K)[..., :length]


def _kernel_forward(log_z, w, *tiling):
  return kernel_in_tiles(log_z, w, *tiling), (log_z, w)


def _kernel_backward(length, T, A, group, kept, d_K):
  """The gradients of `kernel` as sums over the lags, in tiles as well.

    S_n = sum_l dK[l] z_n^l            dw = 2 conj(S)
    M_n = sum_l l dK[l] z_n^l          d log z = 2 conj(w M)

  where a complex x stands for the pair (Re x, Im x). Over b they are products
  of dK and b dK with the table of z^b; JAX's own gradients took 3.3 times as
  long on a CPU.
  """
  log_z, w = kept
  if mesh_lib.platform() == 'cpu' and T < length:
    T *= 2  # 0.8 times the time at 4K and 16K tokens
  (G, D, N), C = log_z[0].shape, w[0].shape[0]
  blocks = -(-length // (A * T))
  z = complex_pairs.squares(log_z, blocks * A * T)
  d_K = jnp.pad(d_K, ((0, 0), (0, 0), (0, blocks * A * T - length)))
  b, a = jnp.arange(T, dtype=d_K.dtype), jnp.arange(A, dtype=d_K.dtype)

  def of_group(piece, sums):
    rates = _take(piece, log_z, 1)
    inner, outer, first = _tables(_take(piece, z, 2), T, A, blocks)
    d_own = piece.take(d_K, 1)

    def of_block(k, sums):
      def make():
        d_tiles = jax.lax.dynamic_slice_in_dim(d_own, k * A * T, A * T, 2)
        d_tiles = d_tiles.reshape(G, C // G, -1, A, T).swapaxes(1, 2)
        d_tiles = jnp.concatenate([d_tiles, b * d_tiles], 3)
        tiles = tuple(
            jnp.einsum('gdcab,gdbn->gdcan', d_tiles, part, precision=HIGHEST)
            for part in inner
        )
        lags = (T * (k * A + a))[:, None]
        plain = tuple(part[..., :A, :] for part in tiles)
        by_lag = tuple(
            part[..., A:, :] + lags * part[..., :A, :] for part in tiles
        )
        at = tuple(part[:, :, None] for part in outer)
        return tuple(
            complex_pairs.multiply(
                _row(first, k),
                tuple(part.sum(3) for part in complex_pairs.multiply(x, at)),
            )
            for x in (plain, by_lag)
        )

      more = _unless_decayed(rates, k * A * T, make)
      return jax.tree.map(jnp.add, sums, more)

    zero = jnp.zeros((G, piece.is_new.size, C // G, N), d_K.dtype)
    own = _over_blocks(blocks, of_block, ((zero, zero), (zero, zero)))
    return jax.tree.map(lambda x, part: piece.put(x, part, 1), sums, own)

  zeros = jnp.zeros((G, D, C // G, N), d_K.dtype)
  S, M = pieces.over(
      D, min(group, D), of_group, ((zeros, zeros), (zeros, zeros))
  )
  re, im = complex_pairs.multiply(_by_set(log_z, w), M)
  d_w = tuple(2 * x.swapaxes(1, 2).reshape(C, D, N) for x in (S[0], -S[1]))
  return (2 * re.sum(2), -2 * im.sum(2)), d_w


kernel_in_tiles.defvjp(_kernel_forward, _kernel_backward)


def _by_set(log_z, w):
  """w [C, D, N] with directions grouped by parameter set: [G, D, C/G, N]."""
  G, D, N = log_z[0].shape
  return tuple(part.reshape(G, -1, D, N).swapaxes(1, 2) for part in w)


def _take(piece, pair, axis):
  return tuple(piece.take(part, axis) for part in pair)


def _tables(z, T, A, blocks):
  """Tables z^b [G, D, T, N], z^(aT) [G, D, A, N], z^(kAT); z of `squares`."""
  z = _settle(complex_pairs.beside_one(z))
  of_tiles, of_blocks = (
      tuple(part[complex_pairs.index(lags) :] for part in z)
      for lags in (T, A * T)
  )
  return (
      complex_pairs.powers(z, T),
      complex_pairs.powers(of_tiles, A),
      complex_pairs.powers(of_blocks, blocks),
  )


def _settle(tables):
  """Tables that a CPU makes once, and not again for every product."""
  if mesh_lib.platform() != 'cpu':
    return tables
  return jax.lax.optimization_barrier(tables)


def _row(table, k):
  """[G, D, 1, N], entry k."""
  return tuple(jax.lax.dynamic_slice_in_dim(part, k, 1, 2) for part in table)


def _over_blocks(blocks, run, carry):
  """carry <- run(k, carry) for k = 0 .. blocks - 1."""
  if blocks == 1:
    return run(0, carry)
  carry = mesh_lib.match_type(functools.partial(run, jnp.asarray(0)), carry)
  return jax.lax.fori_loop(0, blocks, run, carry)


def _unless_decayed(log_z, lag, make):
  """make(), or zeros where no |z^lag| is more than eps^1.5."""
  if isinstance(lag, int):  # there is a single block
    return make()
  decay = -log_z[0].max() * lag  # NaN: not decayed
  zeros = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make)
  )
  return jax.lax.cond(
      decay > -1.5 * math.log(jnp.finfo(decay.dtype).eps),
      lambda: mesh_lib.match_type(lambda _: make(), zeros),
      make,
  )


def weighted_sums(log_z, u):
  """sum_t z_n^t u_t, the transpose of `kernel`, also in two levels.

  log_z pair of [G, D, N], u [C, D, L] -> pair of [C, D, N].
  """
  C, D, L = u.shape
  T = tile_size(L)
  A = -(-L // T)
  group = min(group_size(log_z, C, T, A), D)
  u = jnp.pad(u, ((0, 0), (0, 0), (0, A * T - L)))
  sums = functools.partial(_sums_of_tiles, T=T)
  if group < D or not keeps_tables(log_z, C, T, A):
    sums = jax.checkpoint(sums)
  if group == D:
    return sums(log_z, u)

  def write(piece, totals):
    own = jax.tree.map(lambda x: piece.take(x, 1), log_z)
    found = sums(own, piece.take(u, 1))
    return jax.tree.map(lambda x, part: piece.put(x, part, 1), totals, found)

  zeros = jnp.zeros((C, D, log_z[0].shape[-1]), log_z[0].dtype)
  return pieces.over(D, group, write, (zeros, zeros))


def _sums_of_tiles(log_z, u, T):
  """`weighted_sums` of all channels at once; T divides L."""
  (G, D, N), (C, _, L) = log_z[0].shape, u.shape
  u = u.reshape(G, C // G, D, L // T, T)
  z = complex_pairs.beside_one(complex_pairs.squares(log_z, L))
  outer = complex_pairs.powers(
      tuple(part[complex_pairs.index(T) :] for part in z), L // T
  )
  inner = jnp.concatenate(complex_pairs.powers(z, T), -1)
  tiles = jnp.einsum('gcdat,gdtn->gcdan', u, inner, precision=HIGHEST)
  sums = complex_pairs.multiply(
      jnp.split(tiles, 2, -1), tuple(part[:, None] for part in outer)
  )
  return tuple(part.sum(3).reshape(C, D, N) for part in sums)
