"""Parameters -> released weights: a safetensors file, tensor by tensor.

The layout of the file is computed first, so that only one tensor besides the
parameters is in memory.
"""

import json
import math

import numpy as np

from locost_jax.errors import InputError
from locost_jax.hugging_face import names as names_lib
from locost_jax.hugging_face.tensors import DTYPES
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

  def write(self, directory, params, report=lambda done: None):
    """Writes model.safetensors.

    Args:
      directory: a Path that exists.
      params: {path: array}.
      report: called after each tensor with the number written so far.
    """
    header, end = {'__metadata__': {'format': 'pt'}}, 0
    for name, shape in self.shapes.items():
      start, end = end, end + math.prod(shape) * self._dtype.itemsize
      header[name] = dict(
          dtype=self._kind, shape=shape, data_offsets=[start, end]
      )
    header = json.dumps(header, separators=(',', ':')).encode()
    header += b' ' * (-len(header) % 8)  # so that the data is aligned
    with open(directory / SAFETENSORS, 'wb') as f:
      f.write(len(header).to_bytes(8, 'little') + header)
      for done, (parameter, layer, back) in enumerate(self.tensors.values(), 1):
        tensor = np.ascontiguousarray(
            back(np.asarray(params[parameter])[layer]), self._dtype
        )
        f.write(tensor.reshape(-1).view(np.uint8))
        report(done)
