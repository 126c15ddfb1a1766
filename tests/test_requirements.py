"""setup.cfg requires the packages that the code imports and no others."""

import configparser
from importlib import metadata
import re
import sys

from tests import test_layering
from tests.python import ROOT

OPTIONS = configparser.ConfigParser()
OPTIONS.read(ROOT / 'setup.cfg')


def names(text):
  """Returns the normalised distribution names of a list of requirements."""
  lines = [line for line in text.splitlines() if line.strip(' #') == line]
  return {normalise(re.match(r'[\w.-]+', line)[0]) for line in lines if line}


def normalise(name):
  return re.sub('[-_.]+', '-', name).lower()


def imported():
  """Returns the top-level modules that locost_jax imports."""
  names = sum(test_layering.read_imports(ROOT).values(), [])
  return {x.partition('.')[0] for x, _ in names} - sys.stdlib_module_names


def distributions(modules):
  """Returns {module: distributions that install it}."""
  known = metadata.packages_distributions()
  return {
      module: {normalise(name) for name in known.get(module, [module])}
      for module in modules
  }


REQUIRED = names(OPTIONS['options']['install_requires'])
EXTRAS = {
    extra: names(text)
    for extra, text in OPTIONS['options.extras_require'].items()
}


def test_imported_packages_are_required():
  declared = REQUIRED.union(*EXTRAS.values())
  for module, owners in distributions(imported()).items():
    if module not in ('locost_jax', 'configs'):
      assert owners & declared, f'{module} of {owners} is not in setup.cfg'


def test_required_packages_are_imported():
  """Covers install_requires; dependencies such as jaxlib come with jax."""
  used = set().union(*distributions(imported()).values())
  assert REQUIRED <= used, REQUIRED - used


def test_extras_in_the_documentation_exist():
  named = set()
  for path in [ROOT / 'README.md', *(ROOT / 'docs').glob('*.md')]:
    for extras in re.findall(r"'\.\[([\w,-]+)\]'", path.read_text()):
      named |= set(extras.split(','))
  assert {'train', 'test', 'tensorboard'} <= named
  assert named <= EXTRAS.keys(), named - EXTRAS.keys()
