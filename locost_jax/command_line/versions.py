"""The versions of installed packages."""

import importlib.metadata


def installed(names):
  """{name: version} of the packages that are installed.

  Args:
    names: of packages, as pip has them.
  """
  found = {}
  for name in names:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      pass
  return found
