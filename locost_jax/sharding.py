"""Which device holds what: the mesh, one table by path, global batches.

The axes: `data` and `fsdp` split the batch, `fsdp` also the parameters,
`tensor` the inside of a layer, `sequence` a document. So far only `data` may
have more than one device; the table says where the others will cut.
"""

import re

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import numpy as np

from locost_jax.errors import InputError
from locost_jax.models.long_conv import AXES, DATA, FSDP, SEQUENCE, TENSOR

# Path of a parameter -> the mesh axis of each of its dimensions. The first
# regex that matches the whole path decides. Layers are stacked on dimension 0.
# There is no row for 'anything else': it would hide a misspelt name.
RULES = (
    (r'token_embedding/embedding', P(TENSOR, FSDP)),  # V, D
    (r'logits/kernel', P(FSDP, TENSOR)),  # D, V
    (r'decoder/relative_bias/embedding', P()),  # buckets, H
    (r'encoder/layers/mixer/ssm/\w+', P()),  # small next to the kernels
    (r'encoder/layers/mixer/(key|gate)/kernel', P(None, FSDP, TENSOR)),
    (r'encoder/layers/mixer/output/kernel', P(None, TENSOR, FSDP)),
    (r'encoder/layers/mixer/(key|gate|output)/bias', P()),
    (r'\w+/layers/\w+_attention/(query|key|value)/kernel',
     P(None, FSDP, TENSOR)),
    (r'\w+/layers/\w+_attention/output/kernel', P(None, TENSOR, FSDP)),
    (r'\w+/layers/feed_forward/wi(_0|_1)?/kernel', P(None, FSDP, TENSOR)),
    (r'\w+/layers/feed_forward/wo/kernel', P(None, TENSOR, FSDP)),
    (r'\w+/(layers/)?(\w+/)?\w*norm/scale', P()),
)


def make_mesh(config):
  """Returns the mesh of axes data, fsdp, tensor, sequence.

  Args:
    config: config.mesh; data=-1 takes all devices that are left. With one
      process, fewer devices than there are may be asked for.

  Raises:
    InputError: an axis that is not there yet, or more devices than there are.
  """
  for axis in (FSDP, TENSOR, SEQUENCE):
    if config[axis] != 1:
      raise InputError(f'mesh.{axis}={config[axis]}: only the data axis so far')
  devices = jax.devices()
  data = len(devices) if config.data == -1 else config.data
  fewest = 1 if jax.process_count() == 1 else len(devices)
  if not fewest <= data <= len(devices):
    raise InputError(
        f'mesh.data={config.data}: expected -1 or a number from {fewest} to '
        f'the {len(devices)} devices of this run'
    )
  # Auto: with Explicit, JAX's default, nn.Embed refuses to trace.
  return jax.make_mesh(
      (data, 1, 1, 1),
      AXES,
      axis_types=(AxisType.Auto,) * len(AXES),
      devices=devices[:data],
  )


def spec_of(path):
  """Returns the PartitionSpec of a parameter by its path.

  Raises:
    ValueError: no row of RULES matches; add one for the new parameter.
  """
  for pattern, spec in RULES:
    if re.fullmatch(pattern, path):
      return spec
  raise ValueError(f'no row of sharding.RULES matches the parameter {path!r}')


def param_shardings(mesh, params):
  """Returns the NamedSharding of every parameter.

  Args:
    mesh: of `make_mesh`.
    params: a tree of parameters or shapes.
  """
  return jax.tree_util.tree_map_with_path(
      lambda path, _: NamedSharding(mesh, spec_of(_name(path))), params
  )


def state_shardings(mesh, abstract_state):
  """Returns the NamedSharding of every array of a training state.

  What the optimiser keeps per parameter lies as the parameter does: it is
  recognised by a path that ends in the parameter's, and by the same shape.
  Factored statistics, counters and keys are copied to every device.

  Args:
    mesh: of `make_mesh`.
    abstract_state: a NamedTuple with a field `params`, of shapes.
  """
  specs = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(abstract_state.params):
    specs[_name(path)] = (leaf.shape, spec_of(_name(path)))

  def sharding(path, leaf):
    keys = _name(path).split('/')
    for start in range(len(keys)):
      shape, spec = specs.get('/'.join(keys[start:]), (None, None))
      if shape == leaf.shape:
        return NamedSharding(mesh, spec)
    return NamedSharding(mesh, P())

  return jax.tree_util.tree_map_with_path(sharding, abstract_state)


def abstract(shapes, shardings):
  """Returns the shapes with where they are to be: what a restore needs."""
  return jax.tree.map(
      lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
      shapes,
      shardings,
  )


def replicated(mesh):
  """Returns the sharding that copies an array to every device."""
  return NamedSharding(mesh, P())


def batch_sharding(mesh):
  """Returns the sharding of a batch: rows over `data` and `fsdp`."""
  return NamedSharding(mesh, P((DATA, FSDP)))


def batch_parts(mesh):
  """The number of devices that a batch is split over."""
  return mesh.shape[DATA] * mesh.shape[FSDP]


def check_batch_size(batch_size, mesh, key):
  """Raises an InputError unless the mesh's devices divide the batch.

  Args:
    batch_size: documents over all devices.
    mesh: of `make_mesh`.
    key: the config key it comes from, to name it: 'train.batch_size'.
  """
  parts = batch_parts(mesh)
  if batch_size < 1 or batch_size % parts:
    raise InputError(
        f'{key}={batch_size}: expected a multiple of {parts}, the number of '
        'devices a batch is split over (mesh.data x mesh.fsdp)'
    )


def global_batch(batch, mesh):
  """Puts the rows this host has on its devices.

  Args:
    batch: dict of numpy arrays [B / hosts, ...].
    mesh: of `make_mesh`.

  Returns:
    dict of jax arrays [B, ...], rows split over the mesh; each host's rows
    are contiguous.
  """
  sharding = batch_sharding(mesh)
  return {
      key: jax.make_array_from_process_local_data(sharding, np.asarray(value))
      for key, value in batch.items()
  }


def _name(path):
  return jax.tree_util.keystr(path, simple=True, separator='/')
