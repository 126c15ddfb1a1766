"""Which module may import which, checked in the source.

TABLE has the rules, one row per group of modules. Negative controls break them
in a copy of the package.
"""

import ast
import functools
import re
import shutil
import sys
import textwrap

import pytest

from tests import python
from tests.python import ROOT

PACKAGE = 'locost_jax'

# Any module may import these.
LEAVES = {'errors', 'files', 'config'}
# Arrays and text only: these import each other and LEAVES, and no Flax.
PURE = set("""
  ops vocabularies generation.decode generation.decode_limits
  training.losses training.ppo
  data.text data.words data.gsg data.workers documents.places documents.markup
  documents.numbering documents.page_styles evaluation.metrics
""".split())
# {package: packages or modules that it may import besides itself and LEAVES}
TABLE = {
    package: set(allowed.split())
    for package, allowed in {
        'errors': '',
        'files': '',
        'config': '',
        'ops': '',
        'vocabularies': '',
        'documents': '',
        'data': (
            'vocabularies devices.watchdog documents.markup workdir.manifest'
        ),
        'models': 'ops',
        'generation': 'models',
        'hugging_face': '',
        'devices': 'ops models.lora models.parameters',
        'workdir': 'hugging_face devices vocabularies models.lora models.parameters',
        'telemetry': 'workdir devices',
        'training': 'ops models devices workdir telemetry hugging_face',
        'evaluation': (
            'generation models devices hugging_face vocabularies '
            'training.step data.sources data.text data.words'
        ),
        'attribution': 'vocabularies documents data.text',
        'summarizing': (
            'ops models generation devices vocabularies hugging_face workdir '
            'documents attribution '
            'data.text data.buckets data.pages data.sources'
        ),
        'runs': (
            'data devices evaluation generation hugging_face models '
            'summarizing telemetry training vocabularies workdir'
        ),
    }.items()
}
# Folders of a checkout, which import the package and are never imported by it.
BESIDE = {'bench', 'papers', 'tests'}
# Single modules at the top: flags in, one call, output. __main__ lists them.
COMMANDS = {'__main__', 'main', 'summarize', 'score', 'convert'}
# What only commands import, those inside a package too.
FLAGS = 'config.commands'
DATA_COMMANDS = {'data.cache', 'data.inspect'}
TENSORFLOW = 'tensorflow tensorflow_datasets tensorflow_text seqio clu'.split()
# Allowed anywhere in these.
TENSORFLOW_ROOMS = (
    'data.prepared_corpora',
    'data.seqio_tasks',
)
# For users of SeqIO: loads TensorFlow on import.
IMPORTED_BY_NOBODY = 'data.seqio_tasks'
# These may import at their top what may be missing; others import them inside
# functions. The second also travels with exports, so it imports none of ours.
NEEDS_EXTRAS = {IMPORTED_BY_NOBODY, 'hugging_face.modeling_locost'}
# Can be imported after `pip install locost_jax` without extras.
BASE = set("""
  jax flax jinja2 optax orbax ml_collections sentencepiece rouge_score
  safetensors absl tensorboardX numpy scipy msgpack ml_dtypes
""".split())
# Used by the package's __init__.py to import the rest on first use.
OF_THE_FACE = 'importlib', 'signal', 'sys', 'typing'


def read_imports(root):
  """Returns {module: [(imported name, is at the top of the file)]}."""
  imports = {}
  for path in sorted((root / PACKAGE).rglob('*.py')):
    parts = path.relative_to(root / PACKAGE).with_suffix('').parts
    name = '.'.join(part for part in parts if part != '__init__')
    if name == 'builtin':  # files of models
      continue
    imports[name] = imports_of(path.read_text())
  return imports


@functools.cache  # the copies with a broken rule differ in one file
def imports_of(source):
  """Returns [(imported name, is at the top of the file)] of a module.

  Imports under TYPE_CHECKING do not count as at the top.
  """
  found = []
  tree = ast.parse(source)
  inside = {
      id(node)
      for function in ast.walk(tree)
      if isinstance(
          function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
      )
      or isinstance(function, ast.If)
      and ast.unparse(function.test) == 'typing.TYPE_CHECKING'
      for node in ast.walk(function)
  }
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, f'relative import: {ast.unparse(node)}'
      names = [f'{node.module}.{alias.name}' for alias in node.names]
    else:
      continue
    found += [(imported, id(node) not in inside) for imported in names]
  return found


def inner(imported, modules):
  """'locost_jax.data.text.f' -> 'data.text', or None for other packages."""
  parts = imported.split('.')
  if parts[0] != PACKAGE:
    return None
  for end in range(len(parts), 0, -1):
    name = '.'.join(parts[1:end])
    if name in modules:
      return name
  raise AssertionError(f'{imported} is not a module of the package')


def package_of(module):
  return module.split('.')[0]


def is_in(module, names):
  """Whether a module or its package is among names."""
  parts = module.split('.')
  return any('.'.join(parts[:end]) in names for end in range(1, len(parts) + 1))


def may_import(module, target):
  """Whether the table lets a module import another of this package."""
  if target == FLAGS:
    return (
        package_of(module) in COMMANDS | {'config'} or module in DATA_COMMANDS
    )
  if is_in(target, LEAVES):
    return True
  if is_in(module, PURE):
    return is_in(target, PURE)
  package = package_of(module)
  if package in COMMANDS:
    return package_of(target) not in COMMANDS
  return is_in(target, TABLE[package] | {package})


def violations(root):
  """Returns every broken rule as a line."""
  imports = read_imports(root)
  broken, graph = [], {module: set() for module in imports}
  for module, found in imports.items():
    for top in BESIDE.intersection(name.split('.')[0] for name, _ in found):
      broken.append(f'{module} imports {top}, which is beside the package')
    if module in TABLE or module == '':  # a package's __init__.py
      # The package itself imports its public names on first use.
      if (
          module != 'models'
          and module not in LEAVES
          and any(
              at_top and not (module == '' and imported in OF_THE_FACE)
              for imported, at_top in found
          )
      ):
        broken.append(f'{module or PACKAGE}/__init__ imports something')
      if module == '':
        continue
    if package_of(module) not in TABLE.keys() | COMMANDS:
      broken.append(f'{module} is in no package of the table')
      continue
    for imported, at_top in found:
      top = imported.split('.')[0]
      if top in TENSORFLOW and module not in TENSORFLOW_ROOMS:
        broken.append(f'{module} imports {top}')
      if top == 'flax' and is_in(module, PURE):
        broken.append(f'{module} imports flax')
      if top != PACKAGE:
        if (
            at_top
            and module not in NEEDS_EXTRAS
            and (top not in BASE | set(sys.stdlib_module_names))
        ):
          broken.append(f'{module} imports {top}, which may be missing')
        continue
      target = inner(imported, imports)
      if target in ('', module):
        continue
      graph[module].add(target)
      if not may_import(module, target):
        broken.append(f'{module} imports {target}')
      if at_top and target in NEEDS_EXTRAS:
        broken.append(f'{module} imports {target}, whose extras may be missing')
      if target == IMPORTED_BY_NOBODY:
        broken.append(f'{module} imports {target}, which is for users alone')
  return broken + find_cycles(graph) + find_cycles(rooms_of(root))


def rooms_of(root):
  """Returns {room: rooms that it imports}, inside functions too.

  A room is a package, a module at the top (the package itself is ''), or
  configs/. Leaves count as well.
  """
  imports = read_imports(root)
  modules = dict(imports)
  for path in sorted((root / 'configs').glob('*.py')):
    modules[f'configs.{path.stem}'] = imports_of(path.read_text())
  graph = {package_of(module): set() for module in modules}
  for module, found in modules.items():
    for imported, _ in found:
      target = inner(imported, imports)
      if target is not None and package_of(target) != package_of(module):
        graph[package_of(module)].add(package_of(target))
  return graph


def find_cycles(graph):
  state, cycles = {}, []

  def visit(module, path):
    state[module] = 'open'
    for target in sorted(graph[module]):
      if state.get(target) == 'open':
        cycles.append(f'cycle: {" -> ".join(path + [module, target])}')
      elif target not in state:
        visit(target, path + [module])
    state[module] = 'done'

  for module in sorted(graph):
    if module not in state:
      visit(module, [])
  return cycles


def test_imports_follow_the_table():
  assert violations(ROOT) == []


def test_rooms_and_arrows_between_them():
  graph = rooms_of(ROOT)
  assert len(graph) <= 25
  assert sum(map(len, graph.values())) <= 140


def find_probes(root):
  """Returns code that asks whether a model or its config has an attribute.

  `models.model_config.ModelConfig` states what others may ask.
  """
  asked, found = r'(.*[._])?(config|model|mixer|make_mixer|c)', []
  for path in sorted((root / PACKAGE).rglob('*.py')):
    for node in ast.walk(ast.parse(path.read_text())):
      is_probe = (
          isinstance(node, ast.Call)
          and ast.unparse(node.func) in ('getattr', 'hasattr', 'vars')
          and re.fullmatch(asked, ast.unparse(node.args[0]), re.I)
      ) or (
          isinstance(node, ast.ExceptHandler)
          and 'AttributeError' in ast.unparse(node.type or node)
          and path.parent.name in ('models', 'generation', 'ops', 'training')
      )
      if is_probe:
        found.append(f'{path.stem}: {ast.unparse(node).splitlines()[0]}')
  return found


def test_nobody_probes_a_model():
  assert find_probes(ROOT) == []


@pytest.mark.parametrize(
    'line',
    [
        "x = hasattr(model, 'y')",
        "x = getattr(self._model.config, 'y', None)",
        'x = vars(config)',
        'try: x = config.y\nexcept (KeyError, AttributeError): x = 1',
    ],
)
def test_a_probe_is_found(tmp_path, line):
  (tmp_path / PACKAGE / 'models').mkdir(parents=True)
  (tmp_path / PACKAGE / 'models/new.py').write_text(line)
  assert len(find_probes(tmp_path)) == 1


def test_the_architecture_page_lists_every_package():
  page = (ROOT / 'docs' / 'architecture.md').read_text()
  rows = re.findall(r'^\| `(\w+)` \|', page, re.M)
  assert sorted(rows) == sorted(TABLE.keys() - {'errors', 'files'})


# Module: a line that breaks a rule, and below it what is found.
BROKEN = """
training/optim: from locost_jax.data import order
    training.optim imports data.order
training/losses: from locost_jax.models import longt5
    training.losses imports models.longt5
training/losses: import tensorflow as tf
    losses imports tensorflow
ops/ssm: from flax import linen
    ops.ssm imports flax
data/sources: import tensorflow_datasets
    data.sources imports
data/pipeline: from locost_jax.config import commands
    data.pipeline imports config.commands
data/gsg: import nltk
    nltk, which may be missing
data/text: from locost_jax.data import gsg
    cycle:
models/lora: from locost_jax.devices import sharding
    devices -> models -> devices
data/prepared_corpora: import tensorflow
    data.prepared_corpora imports tensorflow, which may be missing
data/blocks: def f(): from locost_jax.data import seqio_tasks
    data.seqio_tasks, which is for users alone
runs/convert_weights: from locost_jax.hugging_face import modeling_locost
    modeling_locost, whose extras may be missing
devices/__init__: import os
    devices/__init__ imports something
newroom: import os
    newroom is in no package
main: def f(): import papers.figures
    main imports papers, which is beside the package
runs/newroom: from locost_jax import main
    runs.newroom imports main
"""


@pytest.mark.parametrize(
    'module, line, expected', re.findall('(.*?): (.*)\n    (.*)\n', BROKEN)
)
def test_a_broken_rule_is_found(tmp_path, module, line, expected):
  shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE)
  with open(tmp_path / PACKAGE / f'{module}.py', 'a') as f:
    f.write(f'\n{line}\n')
  assert any(expected in broken for broken in violations(tmp_path))


@pytest.mark.runs
def test_works_without_tensorflow(tmp_path):
  """Trains, saves, loads and summarises with TensorFlow and SeqIO absent."""
  program = textwrap.dedent("""
      import sys

      for name in (
          'tensorflow', 'tensorflow_datasets', 'tensorflow_text', 'seqio',
          'clu', 'array_record', 'torch', 'transformers'):
        sys.modules[name] = None
      import locost_jax
      assert 'jax' not in sys.modules, 'importing the package is not instant'
      from tests import tiny_run
      tiny_run.make(sys.argv[1])
      summary, = locost_jax.load(sys.argv[1]).summarize(['A text to read.'])
      assert isinstance(summary, str)
      from locost_jax.evaluation import evaluate
      from locost_jax import main, score, summarize
      try:
        import tensorflow
      except ImportError:
        print('fine')
  """)
  done = python.run('-c', program, tmp_path / 'run')
  assert done.stdout.endswith('fine\n')
