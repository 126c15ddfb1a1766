"""Checks and measurements for a GPU: `python -m tests.on_gpu --help`."""

import importlib.util
import sys
import types


class NoPytest(types.ModuleType):
  """Stands for pytest where it is not installed: marks change nothing."""

  def __getattr__(self, name):
    if name.startswith('__'):
      raise AttributeError(name)
    return self

  def __call__(self, *arguments, **_):
    is_marked = len(arguments) == 1 and callable(arguments[0])
    return arguments[0] if is_marked else self


if importlib.util.find_spec('pytest') is None:
  sys.modules['pytest'] = NoPytest('pytest')
