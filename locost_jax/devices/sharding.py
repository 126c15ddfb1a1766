"""Sharding: the mesh, a table of PartitionSpecs by path, global batches.

The mesh axes: `data` and `fsdp` split the batch; `fsdp` also splits the
parameters; `tensor` splits the inside of a layer (heads, hidden units, channels
of the mixer, the vocabulary); `sequence` splits a document's length or pages.
"""

import math
import re
from typing import NamedTuple

import jax
from jax.sharding import AxisType
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

from locost_jax.errors import InputError
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.ops import split_conv
from locost_jax.ops.mesh import AXES
from locost_jax.ops.mesh import check_pages
from locost_jax.ops.mesh import DATA
from locost_jax.ops.mesh import FSDP
from locost_jax.ops.mesh import ROWS
from locost_jax.ops.mesh import SEQUENCE
from locost_jax.ops.mesh import TENSOR

# Path of a parameter -> the mesh axis of each of its dimensions. The first
# regex that matches the whole path decides. Layers are stacked on dimension 0.
# No row matches everything, because that would hide a misspelt name.
RULES = (
    (r'token_embedding/embedding', P(TENSOR, FSDP)),  # V, D
    (r'logits/kernel', P(FSDP, TENSOR)),  # D, V
    (r'logits_bias', P()),
    (r'confidence/(kernel|bias)', P()),  # PageSum's
    (r'copy_head/(query|key)/kernel', P(FSDP)),  # D, copy_dim
    (r'copy_head/(gate|ngrams)/(kernel|bias)', P()),
    # SimCAS's, applied to one chunk after the other: not split over `tensor`.
    (r'selector/\w+/(token|state|hidden)/kernel', P(FSDP)),
    (r'selector/\w+/output/kernel', P()),
    (r'selector/\w+/\w+/bias', P()),
    (r'\w+/position_embedding/embedding', P(None, FSDP)),  # positions, D
    (r'\w+/(global_)?relative_bias/embedding', P()),  # buckets, H
    (r'encoder/global_embedding', P(None, FSDP)),  # G, D
    (r'encoder/layers/mixer/ssm/\w+', P()),  # small next to the kernels
    (r'encoder/layers/mixer/(key|gate)/kernel', P(None, FSDP, TENSOR)),
    (r'encoder/layers/mixer/output/kernel', P(None, TENSOR, FSDP)),
    (r'encoder/layers/mixer/(key|gate|output)/bias', P()),
    (
        r'\w+/layers/(mixer|\w+_attention)/(query|key|value)/kernel',
        P(None, FSDP, TENSOR),
    ),
    (r'\w+/layers/\w+_attention/output/kernel', P(None, TENSOR, FSDP)),
    (r'\w+/layers/feed_forward/wi(_0|_1)?/kernel', P(None, FSDP, TENSOR)),
    (r'\w+/layers/feed_forward/wo/kernel', P(None, TENSOR, FSDP)),
    (r'\w+/layers/(\w+_attention|feed_forward)/\w+/bias', P()),
    (r'\w+/(layers/)?(\w+/)?\w*norm/(scale|bias)', P()),
)
# Dimensions of any size: not split by an axis that does not divide them.
VOCABULARY = {
    ('token_embedding/embedding', 0),
    ('logits/kernel', 1),
    ('logits_bias', 0),
}


def make_mesh(config, devices=None):
  """Returns the mesh of axes data, fsdp, tensor, sequence.

  Args:
    config: config.mesh; data=-1 takes all remaining devices. A run of one
      process may use only some of its devices.

  Raises:
    InputError: the sizes of the axes do not fit the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  others = config[FSDP] * config[TENSOR] * config[SEQUENCE]
  data = config[DATA]
  if data == -1 and len(devices) % others == 0:
    data = len(devices) // others
  fewest = 1 if jax.process_count() == 1 else len(devices)
  if not fewest <= data * others <= len(devices):
    axes = ' x '.join(f'mesh.{axis}={config[axis]}' for axis in AXES)
    wanted = 'all of' if fewest > 1 else 'at most'
    raise InputError(
        f'{axes}: expected {wanted} the {len(devices)} devices of '
        'this run; mesh.data=-1 uses all remaining devices'
    )
  shape = data, config[FSDP], config[TENSOR], config[SEQUENCE]
  # Auto, because nn.Embed fails to trace with Explicit, JAX's default.
  return jax.make_mesh(
      shape,
      AXES,
      axis_types=(AxisType.Auto,) * len(AXES),
      devices=devices[: math.prod(shape)],
  )


def spec_of(path):
  """Returns the PartitionSpec of a parameter by its path.

  LoRA adapters are split as their kernel is, but never over their rank.

  Raises:
    ValueError: no row of RULES matches; add one for the new parameter.
  """
  *modules, name = path.split('/')
  if name in (lora.A, lora.B):
    *layers, rows, columns = spec_of('/'.join([*modules, lora.KERNEL]))
    return (
        P(*layers, rows, None)
        if name == lora.A
        else (P(*layers, None, columns))
    )
  for pattern, spec in RULES:
    if re.fullmatch(pattern, path):
      return spec
  raise ValueError(f'no row of sharding.RULES matches the parameter {path!r}')


def param_shardings(mesh, params):
  """Returns the NamedSharding of every parameter."""
  return parameters.map_with_path(
      lambda path, leaf: NamedSharding(mesh, _spec_on(mesh, path, leaf.shape)),
      params,
  )


def _spec_on(mesh, path, shape):
  """Returns `spec_of` for a shape."""
  spec = list(spec_of(path))
  for i, axis in enumerate(spec):
    if axis is None or shape[i] % mesh.shape[axis] == 0:
      continue
    if (path, i) not in VOCABULARY:
      raise InputError(
          f'mesh.{axis}={mesh.shape[axis]}: does not divide the {shape[i]} of '
          f'{path} {list(shape)}'
      )
    spec[i] = None
  return P(*spec)


def check_model(config, mesh, pages=0):
  """Raises an InputError if a mesh cannot split a model or its documents.

  Args:
    pages: pages per document (data.num_pages); None: chunks, whose number the
      data pipeline makes divisible; 0: the model reads neither.
  """
  parts = mesh.shape[TENSOR]
  for key in 'num_heads', 'num_decoder_heads', 'd_model', 'd_ff':
    if config.get(key, 0) % parts:
      raise InputError(
          f'mesh.tensor={parts}: does not divide model.{key}={config[key]}'
      )
  if config.d_model % mesh.shape[FSDP]:
    raise InputError(
        f'mesh.fsdp={mesh.shape[FSDP]}: does not divide '
        f'model.d_model={config.d_model}'
    )
  if pages:
    check_pages(pages, mesh.shape[SEQUENCE], f'data.num_pages={pages}')
  elif pages == 0 and config.name != 'locost' and mesh.shape[SEQUENCE] > 1:
    raise InputError(
        f'mesh.sequence={mesh.shape[SEQUENCE]}: only LOCOST and models that '
        'read pages or chunks can split a document over devices, not '
        f'{config.name}'
    )
  split_conv.check(config.get('convolution'), mesh.shape[SEQUENCE])


def state_shardings(mesh, abstract_state):
  """Returns the NamedSharding of every array of a training state.

  An optimiser's array for a parameter is sharded as the parameter is; it has
  the parameter's shape, and its path ends with the parameter's path. Factored
  statistics, counters and keys are copied to every device.
  """
  specs = {}
  for path, leaf in parameters.flatten(abstract_state.params).items():
    specs[path] = (leaf.shape, _spec_on(mesh, path, leaf.shape))

  def sharding(path, leaf):
    keys = path.split('/')
    for start in range(len(keys)):
      shape, spec = specs.get('/'.join(keys[start:]), (None, None))
      if shape == leaf.shape:
        return NamedSharding(mesh, spec)
    return NamedSharding(mesh, P())

  return parameters.map_with_path(sharding, abstract_state)


def abstract_arrays(shapes, shardings):
  """Returns the shapes as jax.ShapeDtypeStructs with shardings, to restore."""
  return jax.tree.map(
      lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
      shapes,
      shardings,
  )


def replicated(mesh):
  """Returns the sharding that copies an array to every device."""
  return NamedSharding(mesh, P())


def batch_sharding(mesh, key=''):
  """Returns the sharding of an array of a batch: [B, ...].

  Args:
    key: its name. Rows are split over `data` and `fsdp`; for encoder inputs
      `sequence` also splits the length of [B, L] or the pages of [B, P, L].
  """
  if key.startswith('encoder_'):
    return NamedSharding(mesh, P(ROWS, SEQUENCE))
  return NamedSharding(mesh, P(ROWS))


def batch_parts(mesh):
  """Returns the number of parts into which the mesh splits a batch's rows."""
  return mesh.shape[DATA] * mesh.shape[FSDP]


def smallest_batch(reads_pages=False):
  """Returns the shape of the smallest inputs that the mesh in use can split."""
  shape = jax.sharding.get_abstract_mesh().shape
  rows, parts = shape.get(DATA, 1) * shape.get(FSDP, 1), shape.get(SEQUENCE, 1)
  return (rows, parts, 8) if reads_pages else (rows, 8 * parts)


def check_batch_size(batch_size, mesh, key):
  """Raises an InputError unless the mesh can split a batch evenly."""
  parts = batch_parts(mesh)
  if batch_size < 1 or batch_size % parts:
    raise InputError(
        f'{key}={batch_size}: expected a multiple of {parts}, the number of '
        'devices a batch is split over (mesh.data x mesh.fsdp)'
    )


def global_batch(batch, mesh, pad_id):
  """Makes global arrays from the rows of this host.

  Args:
    batch: dict of numpy arrays [B / parts, ...], the part of `host_part`.

  Returns:
    dict of jax arrays [B, ...], sharded as in `batch_sharding`. Encoder inputs
    [B, L] are padded to a length that `sequence` divides.

  Raises:
    InputError: `sequence` does not divide the pages of documents [B, P, L].
      Pages are never added: an empty one may have a weight (model.padding).
  """
  part = host_part(mesh)
  placed = {}
  for key, value in batch.items():
    sharding, value = batch_sharding(mesh, key), np.asarray(value)
    if len(sharding.spec) > 1 and value.ndim > 2:
      check_pages(value.shape[1], mesh.shape[SEQUENCE])
    elif len(sharding.spec) > 1:
      missing = -value.shape[1] % mesh.shape[SEQUENCE]
      value = np.pad(
          value,
          ((0, 0), (0, missing)),
          constant_values=pad_id if key == 'encoder_input_tokens' else 0,
      )
    shape = len(value) * part.count, *value.shape[1:]
    placed[key] = jax.make_array_from_process_local_data(sharding, value, shape)
  return placed


class HostPart(NamedTuple):
  """The part of each batch's rows that a host reads.

  index, count: the index-th of count equal parts, in order.
  leads: whether this is the first host that reads this part. Several hosts read
    the same part if `tensor` or `sequence` spans hosts.
  """

  index: int
  count: int
  leads: bool


def host_part(mesh):
  """Returns the HostPart of this process."""
  rows = mesh.devices.reshape(batch_parts(mesh), -1)
  hosts = [{device.process_index for device in row} for row in rows]
  me = jax.process_index()
  mine = [i for i, found in enumerate(hosts) if me in found]
  n = len(mine)
  # Whole blocks of n rows, each of the same hosts.
  if (
      not n
      or len(hosts) % n
      or mine != list(range(mine[0], mine[0] + n))
      or (mine[0] % n)
      or any(hosts[i] != hosts[i // n * n] for i in range(len(hosts)))
  ):
    raise InputError(
        f'mesh {dict(mesh.shape)}: does not split a batch into whole parts for '
        f'the {jax.process_count()} hosts of this run'
    )
  return HostPart(mine[0] // n, len(hosts) // n, me == min(hosts[mine[0]]))
