"""The version of this package, and those of installed ones."""

import importlib.metadata

__version__ = '0.1.0'


def installed(names):
  """Returns {name: version} of the packages that are installed.

  Args:
    names: package names, as for pip.
  """
  found = {}
  for name in names:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      pass
  return found
