"""The version of this package, and those of installed ones."""

import contextlib
import importlib.metadata

__version__ = '0.1.0'


def installed(names):
  """Returns {name: version} of the packages that are installed.

  Args:
    names: package names, as for pip.
  """
  found = {}
  for name in names:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      found[name] = importlib.metadata.version(name)
  return found
