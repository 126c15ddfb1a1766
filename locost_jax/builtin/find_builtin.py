"""Models that come with the package, by name: builtin:documentation.

Each is a directory next to this file: config.json as a run writes it, the
vocabulary, the parameters in bfloat16, and MODEL_CARD.md. Nothing is
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
_HERE = Path(__file__).parent


def names():
  """Returns the names of all models that come with the package."""
  return sorted(path.parent.name for path in _HERE.glob(f'*/{PARAMETERS}'))


def find_directory(name):
  """Returns the directory of the model that 'builtin:NAME' means.

  Raises:
    InputError: no model of that name comes with the package.
  """
  if name.removeprefix(PREFIX) not in names():
    known = ', '.join(PREFIX + name for name in names())
    raise InputError(f'{visible(name)}: expected {known}')
  return str(_HERE / name.removeprefix(PREFIX))


def has_parameters(directory):
  """Whether a directory holds the parameters of a model like these."""
  return (Path(directory) / PARAMETERS).is_file()


def load_parameters(directory):
  """Returns {path of a parameter: numpy array, float32}."""
  stored = safetensors.load_file(Path(directory) / PARAMETERS)
  return {path: array.astype(np.float32) for path, array in stored.items()}
