"""Every used `module.name` of our modules exists, also in rarely run code."""

import ast
import importlib

from tests.python import ROOT


def find_missing(source):
  """Returns 'line 3: alias.name' for names that an imported module lacks."""
  tree, modules = ast.parse(source), {}
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and (
        node.module.split('.')[0] == 'locost_jax'
    ):
      for alias in node.names:
        try:
          module = importlib.import_module(f'{node.module}.{alias.name}')
        except ModuleNotFoundError:
          continue  # a function or class
        modules[alias.asname or alias.name] = module
  reused = {
      node.id
      for node in ast.walk(tree)
      if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
  } | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
  return [
      f'line {node.lineno}: {node.value.id}.{node.attr}'
      for node in ast.walk(tree)
      if isinstance(node, ast.Attribute)
      and isinstance(node.value, ast.Name)
      and node.value.id in modules.keys() - reused
      and not hasattr(modules[node.value.id], node.attr)
  ]


def test_names_of_modules_exist():
  found = {
      str(path.relative_to(ROOT)): missing
      for folder in ('locost_jax', 'configs', 'papers')
      for path in sorted((ROOT / folder).rglob('*.py'))
      if (missing := find_missing(path.read_text()))
  }
  assert found == {}


def test_a_missing_name_is_found():
  source = 'from locost_jax.ops import ssm\nssm.kernel\nssm.colonel'
  assert find_missing(source) == ['line 3: ssm.colonel']
