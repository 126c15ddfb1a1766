"""Reads tensors from safetensors, whole or in shards, and PyTorch's pickles.

Tensors are read from their file one by one.
"""

import os
import pickle
import re
import warnings
import zipfile

import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors import SafetensorError

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.errors import visible

SAFETENSORS = 'model.safetensors'
INDEX = SAFETENSORS + '.index.json'
PICKLE = 'pytorch_model.bin'
_MOST_INDEX_BYTES = 1 << 26
# Endings of state dicts that a project published in a format of its own.
_PICKLE_ENDS = ('.bin', '.pt', '.pth', '.ckpt')
# The allowed types of parameters, by safetensors' names.
DTYPES = {
    'F32': np.dtype(np.float32),
    'F16': np.dtype(np.float16),
    'BF16': np.dtype(ml_dtypes.bfloat16),
}


class Tensors:
  """The tensors of a directory by name, read one at a time.

  Attributes:
    shapes: {name: tuple}.
  """

  def __init__(self, directory):
    """Finds safetensors files, sharded or not, else pytorch_model.bin.

    A PyTorch file with another name is taken if it is the only one. An
    InputError if a file is missing or broken, or a tensor of another type.
    """
    self.shapes = {}
    self._read = {}  # name -> function that reads it
    for stem in _stems(directory):
      is_pickle = stem.endswith(_PICKLE_ENDS)
      add = self._add_pickle if is_pickle else self._add_safetensors
      paths, index = _find_files(directory, stem)
      for path in paths:
        add(path)
      if paths:
        missing = sorted(index - self.names())
        if missing:
          raise InputError(
              f'{directory}: {stem}.index.json lists tensors that '
              f'are in no shard: {list_few(missing)}'
          )
        return
    raise InputError(
        f'{directory} holds no weights: expected {SAFETENSORS}, {INDEX}, '
        f'state_dict.safetensors or {PICKLE}'
    )

  def names(self):
    """Returns the names of all tensors."""
    return set(self._read)

  def __getitem__(self, name):
    """Returns a tensor as a new array: of its dtype, of a pickle float32."""
    return self._read[name]()

  def _add(self, path, name, shape, dtype, read):
    if dtype not in DTYPES:
      raise InputError(
          f'{path}: {visible(name)} has the type {visible(str(dtype))}: expected '
          f'{", ".join(DTYPES)}'
      )
    if name in self._read:
      raise InputError(f'{path}: {visible(name)} is in another shard, too')
    self.shapes[name] = tuple(shape)
    self._read[name] = read

  def _add_safetensors(self, path):
    files.open_regular(path).close()  # a pipe would block
    try:  # checks the header, its size and that of the file
      with safe_open(path, framework='numpy') as f:
        listed = {name: f.get_slice(name) for name in f.keys()}
    except (SafetensorError, OSError, ValueError) as e:
      reason = visible(str(e))
      raise InputError(
          f'{path} is not a whole safetensors file: {reason}'
      ) from None
    for name, tensor in listed.items():

      def read(name=name):
        # Closed after each tensor: pages that were read count as memory.
        with safe_open(path, framework='numpy') as f:
          return f.get_tensor(name)

      self._add(path, name, tensor.get_shape(), tensor.get_dtype(), read)

  def _add_pickle(self, path):
    files.open_regular(path).close()
    try:
      import torch  # pylint: disable=g-import-not-at-top
    except ImportError:
      raise InputError(
          f'{path} needs PyTorch to be read: install torch, or '
          f'provide {SAFETENSORS}'
      ) from None
    types = {torch.float32: 'F32', torch.float16: 'F16', torch.bfloat16: 'BF16'}
    try:  # weights_only: no code of the file is ever run
      with warnings.catch_warnings(action='ignore'):
        tensors = torch.load(
            path,
            map_location='cpu',
            mmap=zipfile.is_zipfile(path),  # PyTorch 1.6 and later
            weights_only=True,
        )
      listed = [
          (name, tuple(tensor.shape), tensor.dtype)
          for name, tensor in tensors.items()
      ]
    except Exception as e:  # pylint: disable=broad-except
      raise InputError(
          f'{path} is not a plain state dict: {_pickle_problem(e)}; expected '
          f'tensors by name, or {SAFETENSORS}'
      ) from None
    for name, shape, dtype in listed:
      read = lambda name=name: tensors[name].float().numpy().copy()
      self._add(path, name, shape, types.get(dtype, dtype), read)


def _pickle_problem(error):
  """Returns why a pickle is refused, without PyTorch's own message.

  That one advises weights_only=False, which runs code of the file.
  """
  found = re.search(r'GLOBAL ([\w.]+)', str(error))
  if found:
    return f'it would run {found[1]}, and code of a file is never run'
  if isinstance(error, pickle.UnpicklingError):
    return 'it holds other things than tensors'
  return visible(str(error).strip().split('\n')[0])


def list_few(names, limit=5):
  """Returns 'a, b, c, d, e and 7 more', with control characters escaped."""
  names = [visible(name) for name in names]
  rest = f' and {len(names) - limit} more' if len(names) > limit else ''
  return ', '.join(names[:limit]) + rest


def find_names(directory):
  """Returns the names of a directory's tensors; none if it has no weights."""
  if not any(_find_files(directory, stem)[0] for stem in _stems(directory)):
    return set()
  return Tensors(directory).names()


def _stems(directory):
  """Returns the file names that weights may have, in order of preference."""
  pickles = [
      name for name in os.listdir(directory) if name.endswith(_PICKLE_ENDS)
  ]
  own = pickles if len(pickles) == 1 else []
  return [SAFETENSORS, 'state_dict.safetensors', PICKLE, *own]


def _find_files(directory, stem):
  """Finds the files of one kind of weights: whole, or listed in an index.

  Returns (paths, names of the tensors that an index lists).
  """
  path = os.path.join(directory, stem)
  if os.path.lexists(path):
    return [path], set()
  index = path + '.index.json'
  if not os.path.lexists(index):
    return [], set()
  shards = files.read_object(index, _MOST_INDEX_BYTES).get('weight_map')
  try:
    # Only the file's name: an index must not lead to other directories.
    names = sorted({os.path.basename(name) for name in shards.values()})
  except (TypeError, AttributeError):
    raise InputError(
        f'{index} is not an index of shards: weight_map='
        f'{files.show_value(shards)}: expected {{"TENSOR": "FILE"}}'
    ) from None
  paths = [os.path.join(directory, name) for name in names]
  for file in paths:
    if not os.path.isfile(file):
      name = os.path.basename(file)
      raise InputError(f'{index} lists {visible(name)}, which is missing')
  return paths, set(shards)
