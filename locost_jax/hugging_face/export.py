"""Parameters -> released weights: safetensors files, written tensor by tensor.

The layout of the files is computed first, so that only one tensor besides the
parameters is in memory.
"""

import itertools
import json
import math

import numpy as np

from locost_jax.errors import InputError
from locost_jax.hugging_face import names as names_lib
from locost_jax.hugging_face.tensors import DTYPES
from locost_jax.hugging_face.tensors import INDEX
from locost_jax.hugging_face.tensors import SAFETENSORS


class Exported:
  """A model's parameters under the names of a released state dict.

  Attributes:
    tensors: {name: (path, layer, function from our array to the released
      one)}; layer is () or (i,).
    shapes: {name: tuple}.
  """

  def __init__(self, config, abstract, dtype):
    """Lays the tensors out; an InputError if no released state dict has them.

    abstract is {path: leaf with a shape}, dtype 'float32' or 'bfloat16'.
    """
    if config.get('copy'):
      raise InputError(
          'config.model.copy=True cannot be exported: no model of transformers '
          'has a copy head; expected False'
      )
    self._kind, self._dtype = next(
        (kind, known) for kind, known in DTYPES.items() if known.name == dtype
    )
    self.tensors, self.shapes = {}, {}
    table = names_lib.table(config)
    copies = table.copies if table.writes_copies else {}
    for path, source in names_lib.sources(table, abstract).items():
      shape = source.released_shape(abstract[path].shape)
      for i, own in enumerate(source.names):
        layer = (i,) if source.is_stacked else ()
        for name in own, *copies.get(own, ()):
          self.tensors[name] = path, layer, source.form[1]
          self.shapes[name] = shape

  def write(self, directory, params, max_shard_size, report=lambda done: None):
    """Writes model.safetensors, or its shards and index; returns their names.

    Args:
      directory: a Path that exists.
      params: {path: array}.
      max_shard_size: most bytes of tensors in a file; a larger tensor has a
        file of its own.
      report: called after each tensor with the number written so far.
    """
    sizes = {
        name: math.prod(shape) * self._dtype.itemsize
        for name, shape in self.shapes.items()
    }
    shards = split(sizes, max_shard_size)
    files = [SAFETENSORS]
    if len(shards) > 1:
      stem, suffix = SAFETENSORS.split('.')
      of = f'of-{len(shards):05}.{suffix}'
      files = [f'{stem}-{i:05}-{of}' for i in range(1, len(shards) + 1)]
    count = itertools.count(1)
    for file, names in zip(files, shards, strict=True):
      self._write_file(
          directory / file, params, names, sizes, lambda: report(next(count))
      )
    if len(shards) == 1:
      return files
    index = dict(
        metadata=dict(total_size=sum(sizes.values())),
        weight_map={
            name: file for file, names in zip(files, shards) for name in names
        },
    )
    (directory / INDEX).write_text(json.dumps(index, indent=2) + '\n')
    return [*files, INDEX]

  def _write_file(self, path, params, names, sizes, report_one):
    header, end = {'__metadata__': {'format': 'pt'}}, 0
    for name in names:
      start, end = end, end + sizes[name]
      header[name] = dict(
          dtype=self._kind, shape=self.shapes[name], data_offsets=[start, end]
      )
    header = json.dumps(header, separators=(',', ':')).encode()
    header += b' ' * (-len(header) % 8)  # so that the data is aligned
    with open(path, 'wb') as f:
      f.write(len(header).to_bytes(8, 'little') + header)
      for name in names:
        parameter, layer, back = self.tensors[name]
        tensor = np.ascontiguousarray(
            back(np.asarray(params[parameter])[layer]), self._dtype
        )
        f.write(tensor.reshape(-1).view(np.uint8))
        report_one()


def split(sizes, limit):
  """Returns lists of names whose tensors have at most `limit` bytes together.

  A larger tensor has a list of its own.
  """
  shards, room = [], -1
  for name, size in sizes.items():
    if size > room:
      shards.append([])
      room = limit
    shards[-1].append(name)
    room -= size
  return shards
