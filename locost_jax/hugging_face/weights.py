"""Released weights -> parameters: every tensor used, every parameter found.

Names, shapes and types are compared before anything is read. Parameters are
then made one by one, to need little memory besides their own.
"""

import math

import numpy as np

from locost_jax.errors import InputError
from locost_jax.errors import not_finite
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import names as names_lib
from locost_jax.hugging_face.tensors import list_few
from locost_jax.hugging_face.tensors import Tensors


def load_params(directory, config, abstract, place=lambda array: array):
  """Returns {path: place(float32 array)} from a released state dict.

  `place` stores one parameter before the next is read; abstract is {path: leaf
  with a shape}.

  Raises:
    InputError: a tensor that is missing, of another shape, not used or not
      finite.
  """
  released = Released(directory, config, abstract)
  # Largest first: `place` needs a second copy of a parameter while it copies.
  paths = sorted(abstract, key=lambda path: -math.prod(abstract[path].shape))
  return {path: place(released.read(path)) for path in paths}


class Released:
  """The state dict of a directory as a model's parameters.

  Attributes:
    sources: {path: `names.Source`}.
    tensors: a `Tensors`.
    stored: {a tensor's name in our table: its name in the files}; None if the
      files lack it and it is zero.
    copies: {name in the table: names in the files of its other copies}.
    unread: names of tensors in the files that no model uses.
  """

  def __init__(self, directory, config, abstract):
    """Compares names and shapes; arguments and errors as in `load_params`."""
    self._directory, self._abstract = directory, abstract
    table = names_lib.table(config)
    self.sources = names_lib.sources(table, abstract)
    self.tensors = Tensors(directory)
    needed = [name for source in self.sources.values() for name in source.names]
    known = set(needed).union(table.unread, *table.copies.values())
    found = {}
    for name in sorted(self.tensors.names()):
      for full in table.prefix + name, name.removeprefix(table.prefix):
        if name not in known and full in known and full not in found:
          found[full] = name
          break
      else:
        found[name] = name
    self.unread = sorted(set(table.unread) & found.keys())
    self.stored, self.copies = {}, {}
    for name in needed:
      copies = [
          copy for copy in (name, *table.copies.get(name, ())) if copy in found
      ]
      if copies:
        self.stored[name] = found[copies[0]]
        self.copies[name] = [found[copy] for copy in copies[1:]]
      elif name in table.zeros:
        self.stored[name] = None
    head, embedding = 'lm_head.weight', 'shared.weight'
    if head in needed and head not in self.stored and embedding in self.stored:
      if configs.has_tied_head(directory):
        self.stored[head], self.copies[head] = self.stored[embedding], []
    missing = [name for name in needed if name not in self.stored]
    used = {found[name] for name in self.unread}.union(
        self.stored.values(), *self.copies.values()
    )
    unused = sorted(self.tensors.names() - used)
    wrong = []
    if missing:
      wrong.append(f'lacks the tensor {list_few(missing)}')
    if unused:
      wrong.append(
          'holds tensors that the model does not use: ' + list_few(unused)
      )
    if wrong:
      raise InputError(f'{directory} {"; it ".join(wrong)}')
    for path, source in self.sources.items():
      self._check_shapes(path, source)

  def _check_shapes(self, path, source):
    expected = source.released_shape(self._abstract[path].shape)
    for name in source.names:
      for stored in (self.stored[name], *self.copies.get(name, ())):
        if stored and self.tensors.shapes[stored] != expected:
          raise InputError(
              f'{self._directory}: {stored} has shape '
              f'{self.tensors.shapes[stored]}, the config says {expected}'
          )

  def read(self, path):
    """Returns a parameter: a new float32 array; its copies must be equal."""
    source, shape = self.sources[path], self._abstract[path].shape
    released = source.released_shape(shape)
    if source.is_stacked:
      array = np.empty(shape, np.float32)
      for i, name in enumerate(source.names):
        array[i] = source.form[0](self._read(name, released))
      return array
    array = source.form[0](self._read(source.names[0], released))
    return np.ascontiguousarray(array, np.float32)

  def _read(self, name, shape):
    stored = self.stored[name]
    if stored is None:
      return np.zeros(shape, np.float32)
    tensor = self.tensors[stored]
    if not np.isfinite(tensor).all():
      raise not_finite(self._directory, stored)
    for copy in self.copies[name]:
      if not np.array_equal(self.tensors[copy], tensor):
        raise InputError(
            f'{self._directory}: {copy} differs from {stored}, '
            'but this model has one tensor for both'
        )
    return tensor
