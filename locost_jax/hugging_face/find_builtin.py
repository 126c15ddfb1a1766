"""Finds the models that come with the package, such as builtin:documentation.

Each model is a directory next to this file with config.json as written by a
run, the vocabulary, the parameters in bfloat16, and MODEL_CARD.md. Nothing is
downloaded.
"""

from pathlib import Path

import numpy as np
from safetensors import numpy as safetensors

from locost_jax.errors import InputError
from locost_jax.errors import visible

PREFIX = 'builtin:'
PARAMETERS = 'parameters.safetensors'
CARD = 'MODEL_CARD.md'
_HERE = Path(__file__).parents[1] / 'builtin'


def names():
  """Returns the names of all built-in models, without `builtin:`."""
  return sorted(path.parent.name for path in _HERE.glob(f'*/{PARAMETERS}'))


def find_directory(name):
  """Returns the directory of the model 'builtin:NAME' (or 'NAME').

  Raises:
    InputError: there is no built-in model of this name.
  """
  if name.removeprefix(PREFIX) not in names():
    known = ', '.join(PREFIX + name for name in names())
    raise InputError(f'{visible(name)}: expected {known}')
  return str(_HERE / name.removeprefix(PREFIX))


def has_parameters(directory):
  """Whether a directory has the parameters of a built-in model."""
  return (Path(directory) / PARAMETERS).is_file()


def load_parameters(directory):
  """Returns {path of a parameter: float32 array} of a directory."""
  stored = safetensors.load_file(Path(directory) / PARAMETERS)
  return {path: array.astype(np.float32) for path, array in stored.items()}
