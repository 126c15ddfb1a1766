"""setup.cfg asks for what the code imports, and for nothing else."""

import ast
import configparser
from importlib import metadata
from pathlib import Path
import re
import sys

ROOT = Path(__file__).parents[1]
OPTIONS = configparser.ConfigParser()
OPTIONS.read(ROOT / 'setup.cfg')


def names(text):
  """The distributions of a list of requirements, as importlib spells them."""
  lines = [line for line in text.splitlines() if line.strip(' #') == line]
  return {normal(re.match(r'[\w.-]+', line)[0]) for line in lines if line}


def normal(name):
  return re.sub('[-_.]+', '-', name).lower()


def imported():
  """The top-level modules that any file of locost_jax imports."""
  found = set()
  for path in (ROOT / 'locost_jax').rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
      if isinstance(node, ast.Import):
        found |= {alias.name.partition('.')[0] for alias in node.names}
      elif isinstance(node, ast.ImportFrom) and not node.level:
        found.add(node.module.partition('.')[0])
  return found - sys.stdlib_module_names


def distributions(modules):
  """Who installs them: a module of several is of the first that is declared."""
  known = metadata.packages_distributions()
  return {
      module: {normal(name) for name in known.get(module, [module])}
      for module in modules
  }


REQUIRED = names(OPTIONS['options']['install_requires'])
EXTRAS = {
    extra: names(text)
    for extra, text in OPTIONS['options.extras_require'].items()
}


def test_what_is_imported_is_asked_for():
  declared = REQUIRED.union(*EXTRAS.values())
  for module, owners in distributions(imported()).items():
    if module not in ('locost_jax', 'configs'):
      assert owners & declared, f'{module} of {owners} is not in setup.cfg'


def test_what_is_asked_for_is_imported():
  """Of what everybody installs; jaxlib and its like come with their users."""
  used = set().union(*distributions(imported()).values())
  assert REQUIRED <= used, REQUIRED - used


def test_extras_that_the_documentation_names_exist():
  named = set()
  for path in [ROOT / 'README.md', *(ROOT / 'docs').glob('*.md')]:
    for extras in re.findall(r"'\.\[([\w,-]+)\]'", path.read_text()):
      named |= set(extras.split(','))
  assert {'train', 'test', 'tensorboard'} <= named
  assert named <= EXTRAS.keys(), named - EXTRAS.keys()
