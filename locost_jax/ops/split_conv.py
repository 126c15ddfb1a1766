"""The long convolution of a document that is split over devices.

Device i of P holds l consecutive tokens and convolves them alone. The others'
tokens contribute through N complex numbers per channel and direction at each
end of its part (K[m] = 2 Re sum_n w_n z_n^m, t from its start):

  y_t += 2 Re sum_n w0_n S_n z_n^t           S  = sum_(s < 0) z^-s u_s
  y_t += 2 Re sum_n w1_n S'_n z_n^(l - t)    S' = sum_(s >= l) z^(s - l) u_s

With a device's own sums E = sum_t z^(l - t) u_t and E' = sum_t z^t u_t these
are exclusive scans over the devices, S_(i+1) = z^l S_i + E_i to the right and
S'_(i-1) = z^l S'_i + E'_i to the left, in log2 P + 1 exchanges. Each moves 8 B
D N bytes per direction, whatever the length.

Axes: B batch, l a device's part of the length, D channels, N state pairs, C
directions, G parameter sets.
"""

from typing import Any

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.ops import complex_pairs
from locost_jax.ops import pieces
from locost_jax.ops import ssm_kernel


def check(convolution, devices):
  """Raises an InputError if documents cannot be split over these devices.

  Args:
    convolution: config.model.convolution; None for a model without one.
    devices: along the mesh's `sequence` axis.
  """
  if devices > 1 and convolution == "release":
    raise InputError(
        "model.convolution='release' does not exist for documents "
        "split over devices: expected 'exact' with mesh.sequence="
        f"{devices}"
    )


def add_other_parts(y, u, log_z, w, axis):
  """Adds what the other devices' tokens contribute; inside shard_map.

  Args:
    y: [D, B, l], the convolution of this device's part alone.
    u: [D, B, l], its input.
    log_z: pair of [G, D, N].
    w: pair of [C, D, N]; direction 0 reads the tokens before, 1 those after.
    axis: name of the mesh axis that the document is split over.
  """
  (D, B, l), (C, _, N) = u.shape, w[0].shape
  wide = u.astype(log_z[0].dtype)
  # Sums with z^t, where each direction counts t its own way through the part.
  ways = jnp.stack([jnp.flip(wide, 2), wide][:C]).swapaxes(1, 2)
  own = ssm_kernel.weighted_sums(log_z, ways.reshape(C * B, D, l))
  own = tuple(part.reshape(C, B, D, N) for part in own)
  z = tuple(part[:, None] for part in complex_pairs.exp(log_z))
  # Powers count from 0: E lacks a factor z in direction 0, and the S' term in
  # direction 1. This supplies both.
  own = complex_pairs.multiply(own, z)
  states = _scan(own, log_z, l, axis)
  x = complex_pairs.multiply(tuple(part[:, None] for part in w), states)
  x = tuple(part.reshape(C * B, D, N) for part in x)

  def add(y, log_z, x):
    K: Any = ssm_kernel.kernel(log_z, x, l)
    K = K.reshape(C, B, -1, l)
    if C == 1:
      return y + K[0].swapaxes(0, 1)
    return y + (K[0] + jnp.flip(K[1], -1)).swapaxes(0, 1)

  def write(piece, y):
    own = jax.tree.map(lambda a: piece.take(a, 1), (log_z, x))
    part = piece.take(y, 0)
    new = jax.checkpoint(add)(part, *own).astype(y.dtype)
    return piece.put(y, piece.choose(new, part, 0), 0)

  T = ssm_kernel.tile_size(l)
  group = ssm_kernel.group_size(log_z, C * B, T, -(-l // T))
  # Its gradient is JAX's own, see `pieces.over`.
  y, dtype = y.astype(wide.dtype), y.dtype
  return pieces.over(D, min(group, D), write, y).astype(dtype)


def _scan(own, log_z, l, axis):
  """The exclusive scan over the devices, each z^l further away."""
  devices = jax.lax.axis_size(axis)

  def receive(part, distance):
    """part [C, ...] from `distance` devices away, by direction; 0 if none."""
    right = [(i, i + distance) for i in range(devices - distance)]
    ways = right, [(j, i) for i, j in right]
    return jnp.stack(
        [
            jax.lax.ppermute(direction, axis, way)
            for direction, way in zip(part, ways)
        ]
    )

  states = tuple(receive(part, 1) for part in own)
  distance = 1
  while distance < devices:
    far = complex_pairs.exp(
        tuple(distance * l * part[:, None] for part in log_z)
    )
    more = complex_pairs.multiply(
        far, tuple(receive(part, distance) for part in states)
    )
    states = tuple(a + b for a, b in zip(states, more))
    distance *= 2
  return states
