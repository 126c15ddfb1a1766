"""The versions of installed packages."""

import importlib.metadata


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
