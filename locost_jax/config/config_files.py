"""Finds the configs of the package from any working directory.

`--config=configs/quickstart.py` is the file of that name in the working
directory, or else the one in the package; likewise for `from configs import
default` in a config. In a checkout the configs are next to locost_jax, in an
installed wheel inside it.
"""

import importlib.util
import os
from pathlib import Path
import re
import sys
import types

_PACKAGE = 'configs'


def directory():
  """Returns the directory of the package's configs."""
  library = Path(__file__).parents[1]
  inside = library / _PACKAGE
  return inside if inside.is_dir() else library.parent / _PACKAGE


def find(path):
  """Returns the path of a config: in the working directory, or the package's.

  Args:
    path: FILE, or FILE:WORD.
  """
  file, colon, word = path.partition(':')
  if os.path.isfile(file) or not file.startswith(f'{_PACKAGE}/'):
    return path
  ours = directory().parent / file
  return f'{ours}{colon}{word}' if ours.is_file() else path


def resolve(argv):
  """Returns a command line in which --config has the path from `find`."""
  argv = list(argv)
  for i, word in enumerate(argv):
    if match := re.fullmatch(r'(--?config=)(.*)', word, re.DOTALL):
      argv[i] = match[1] + find(match[2])
    elif word in ('--config', '-config') and i + 1 < len(argv):
      argv[i + 1] = find(argv[i + 1])
  return argv


def default_workdir(path):
  """Returns 'runs/NAME' for DIR/NAME.py, 'runs/NAME-WORD' for DIR/NAME.py:WORD."""
  file, _, word = path.partition(':')
  return Path('runs') / '-'.join(filter(None, [Path(file).stem, word]))


def make_importable():
  """Lets `from configs import default` find the package's, unless another does.

  A package `configs` of the user keeps its own files.
  """
  try:
    found = importlib.util.find_spec(f'{_PACKAGE}.default')
  except ModuleNotFoundError:
    found = None
  if found is not None:
    return
  try:
    package = importlib.import_module(_PACKAGE)
  except ModuleNotFoundError:
    package = types.ModuleType(_PACKAGE)
    package.__path__ = []
    sys.modules[_PACKAGE] = package
  package.__path__ = [*package.__path__, str(directory())]
