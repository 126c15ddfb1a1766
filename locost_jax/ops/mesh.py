"""The mesh in context, as the models see it: its axes, and who has what.

Without a mesh everything here stands aside, so that a model is written once.
Axes: `data` and `fsdp` cut the rows of a batch, `tensor` the inside of a layer,
`sequence` the length of a document.
"""

import functools

import jax
from jax.sharding import PartitionSpec as P

from locost_jax.ops import pieces

# The mesh axes of the whole project.
DATA, FSDP, TENSOR, SEQUENCE = 'data', 'fsdp', 'tensor', 'sequence'
AXES = (DATA, FSDP, TENSOR, SEQUENCE)
ROWS = (DATA, FSDP)


def platform():
  """'cpu', 'gpu' or 'tpu': of the mesh in context, else JAX's default.

  A program can be compiled for devices that are not here (`main --topology`).
  """
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform


def axis_size(axis):
  """Devices along an axis of the mesh in context; 1 without (None: 1)."""
  return jax.sharding.get_abstract_mesh().shape.get(axis, 1)


def on_mesh(function, in_specs, out_specs, *arguments):
  """function(*arguments), each device having its own part of them.

  Args:
    function: of local arrays; may use collectives over the mesh's axes.
    in_specs: a PartitionSpec, or a tree of them, for each argument.
    out_specs: of the result.
    *arguments: trees of arrays.

  Returns:
    What `function` gives. Without a mesh of several devices in context, or
    inside of another `on_mesh`, it is called as it is.
  """
  if not _is_whole():
    return function(*arguments)
  axes = _named(in_specs) | _named(out_specs)

  def local(*arguments):
    # Gradients are summed over devices where the arguments come in, not at the
    # (longer) spectra that are made of them.
    return function(*pieces.varying(arguments, axes))

  return jax.shard_map(
      local,
      mesh=jax.sharding.get_abstract_mesh(),
      in_specs=in_specs,
      out_specs=out_specs,
  )(*arguments)


def _is_whole():
  """Whether arrays are those of all devices of a mesh, of several."""
  mesh = jax.sharding.get_abstract_mesh()
  return not mesh.empty and mesh.size > 1 and not mesh.manual_axes


def _named(specs):
  """The mesh axes in a tree of PartitionSpecs."""
  return {
      axis
      for spec in jax.tree.leaves(specs)
      for part in spec
      if part
      for axis in ((part,) if isinstance(part, str) else part)
  }


def lay_out(x, *axes):
  """x with its dimensions cut over these mesh axes (None: not cut).

  XLA finds where the rest lies. Without this, where parameters and rows are cut
  over one axis, it gathers activations in place of parameters.
  """
  if not _is_whole():
    return x
  return jax.lax.with_sharding_constraint(x, P(*axes))


def is_on_mesh():
  """Whether this is inside of `on_mesh`, on one device of several."""
  return bool(jax.sharding.get_abstract_mesh().manual_axes)


def own_key(key, *axes):
  """A random key of this device alone, of devices along these mesh axes.

  Outside of `on_mesh`, and for None, the key itself.
  """
  if key is None or not is_on_mesh():
    return key
  return functools.reduce(
      jax.random.fold_in, map(jax.lax.axis_index, axes), key
  )
