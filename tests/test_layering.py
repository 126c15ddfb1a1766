"""Who may import whom (the rules of the house), read from the source.

TABLE is the rule, one row per group of modules. The negative controls break
it on purpose, in a copy of the package.
"""

import ast
import fnmatch
from pathlib import Path
import shutil
import subprocess
import sys
import textwrap

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = 'locost_jax'

# group -> (its modules, the groups it may import; its own is one of them).
# Modules of `data` may only import those named before them.
L0 = ('allocator', 'errors', 'commands', 'versions', 'watchdog', 'roll_call',
      'hosts', 'losses', 'counted_flops', 'decode_limits', 'decode',
      'baselines', 'markup', 'progress', 'metrics.*', 'models.pieces',
      'models.mesh', 'models.pairs', 'models.ssm', 'models.long_conv',
      'models.split_conv', 'models.long_attention', 'models.causal_attention',
      'models.tokenwise', 'data.text', 'data.gsg', 'data.pages', 'data.bpe',
      'data.spiece', 'data.vocabulary')
DATA = ('data.documentation', 'data.sources', 'data.corpora', 'data.raw',
        'data.prepare', 'data.preprocessors', 'data.rows', 'data.tasks',
        'data.order', 'data.records', 'data.workers', 'data.blocks',
        'data.streamed', 'data.mixture', 'data.cache', 'data.beam',
        'data.inspect', 'data.pipeline')
TABLE = {
    'L0': (L0, {'L0'}),
    'data': (DATA, {'L0', 'data'}),
    'L1': (('models.attention', 'models.attention_mass', 'models.layers'),
           {'L0', 'L1'}),
    'L2': (('models', 'models.*'), {'L0', 'L1', 'L2'}),
    'L3': (('optim', 'lora', 'sharding', 'warm_start', 'manifest',
            'failed_save', 'checkpoint', 'appended', 'energy', 'peaks', 'pace',
            'tracking', 'profiling', 'telemetry', 'preemption', 'workdir',
            'hugging_face.*', 'memory', 'programs', 'topology'),
           {'L0', 'L3'}),
    # Batches are made elsewhere; the bucket of a length is a pure function.
    'L4': (('train', 'loop', 'evaluate', 'generate', 'pretrained', 'origin',
            'attribution'),
           {'L0', 'L1', 'L2', 'L3', 'L4'}),
    'L5': (('main', 'dry_run', 'preflight', 'parts', 'final', 'report',
            'summarize', 'documents', 'summaries', 'results', 'source_page',
            'score', 'convert', 'bench', 'benchmarks', 'benchmarks.*', 'plot'),
           {'L0', 'data', 'L1', 'L2', 'L3', 'L4', 'L5'}),
}
ALSO = {('pretrained', 'data.pipeline')}
TENSORFLOW = ('tensorflow', 'tensorflow_datasets', 'tensorflow_text', 'seqio',
              'clu')
# Anywhere in these, and inside functions of `data.sources`.
TENSORFLOW_ROOMS = ('data.preprocessors', 'data.tasks')
# Importable after `pip install locost_jax` without extras.
BASE = {'jax', 'flax', 'optax', 'orbax', 'ml_collections', 'sentencepiece',
        'rouge_score', 'safetensors', 'absl', 'tensorboardX', 'numpy', 'scipy',
        'msgpack', 'ml_dtypes'}


def read_imports(root):
  """Returns {module: [(imported name, is at the top of the file)]}."""
  imports = {}
  for path in sorted((root / PACKAGE).rglob('*.py')):
    parts = path.relative_to(root / PACKAGE).with_suffix('').parts
    name = '.'.join(part for part in parts if part != '__init__')
    found = []
    tree = ast.parse(path.read_text(), str(path))
    inside = {id(node) for function in ast.walk(tree)
              if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef,
                                       ast.Lambda))
              for node in ast.walk(function)}
    for node in ast.walk(tree):
      if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom):
        assert not node.level, f'{path}: relative import'
        names = [f'{node.module}.{alias.name}' for alias in node.names]
      else:
        continue
      found += [(imported, id(node) not in inside) for imported in names]
    imports[name] = found
  return imports


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


def group_of(module):
  for group, (patterns, _) in TABLE.items():
    if any(fnmatch.fnmatchcase(module, pattern) for pattern in patterns):
      return group
  return None


def violations(root):
  """Returns every broken rule as a line."""
  imports = read_imports(root)
  broken, graph = [], {module: set() for module in imports}
  for module, found in imports.items():
    # The package itself imports its public names on first use.
    if module in ('', 'data', 'metrics', 'hugging_face'):
      if any(at_top for _, at_top in found):
        broken.append(f'{module or PACKAGE}/__init__ imports something')
      continue
    group = group_of(module)
    if group is None:
      broken.append(f'{module} is in no group')
      continue
    for imported, at_top in found:
      top = imported.split('.')[0]
      if top in TENSORFLOW and module not in TENSORFLOW_ROOMS and (
          module != 'data.sources' or at_top):
        broken.append(f'{module} imports {top}')
      if top != PACKAGE:
        if at_top and module != 'data.preprocessors' and (
            top not in BASE | set(sys.stdlib_module_names)):
          broken.append(f'{module} imports {top}, which may be missing')
        continue
      target = inner(imported, imports)
      if target in ('', module):
        continue
      graph[module].add(target)
      theirs = group_of(target)
      allowed = theirs in TABLE[group][1] or (module, target) in ALSO
      if group == theirs == 'data':
        allowed = DATA.index(target) < DATA.index(module)
      if not allowed:
        broken.append(f'{module} ({group}) imports {target} ({theirs})')
      if at_top and target == 'data.preprocessors':
        broken.append(f'{module} imports {target}, and TensorFlow with it')
  return broken + find_cycles(graph)


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


def test_the_house_keeps_its_rules():
  assert violations(ROOT) == []


@pytest.mark.parametrize('module, line, expected', [
    ('optim', 'from locost_jax.models import t5', 'optim (L3) imports models'),
    ('losses', 'import tensorflow as tf', 'losses imports tensorflow'),
    ('data/sources', 'import tensorflow_datasets', 'data.sources imports'),
    ('data/sources', 'from locost_jax.data import tasks', 'imports data.tasks'),
    ('data/pipeline', 'from locost_jax import models', 'data.pipeline (data)'),
    ('data/gsg', 'import nltk', 'nltk, which may be missing'),
    ('data/text', 'from locost_jax.data import gsg', 'cycle: '),
    ('train', 'def f():\n  from locost_jax.data import tasks', 'train (L4)'),
    ('data/tasks', 'from locost_jax.data import preprocessors',
     'and TensorFlow with it'),
    ('newroom', 'import os', 'newroom is in no group'),
])
def test_a_broken_rule_is_seen(tmp_path, module, line, expected):
  shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE)
  with open(tmp_path / PACKAGE / f'{module}.py', 'a') as f:
    f.write(f'\n{line}\n')
  assert any(expected in broken for broken in violations(tmp_path))


def test_works_without_tensorflow(tmp_path):
  """Trains, saves, loads and summarises with TensorFlow and SeqIO absent."""
  program = textwrap.dedent('''
      import sys

      class Absent:
        """A finder that does not find what only the extras install."""
        def __init__(self, finder):
          self.finder = finder
        def __getattr__(self, name):
          return getattr(self.finder, name)
        def find_spec(self, name, path=None, target=None):
          if name.split('.')[0] in (
              'tensorflow', 'tensorflow_datasets', 'tensorflow_text', 'seqio',
              'clu', 'array_record', 'torch', 'transformers'):
            return None
          return self.finder.find_spec(name, path, target)

      sys.meta_path[:] = map(Absent, sys.meta_path)
      import locost_jax
      assert 'jax' not in sys.modules, 'importing the package is not instant'
      import tiny_run
      tiny_run.make(sys.argv[1])
      summary, = locost_jax.load(sys.argv[1]).summarize(['A text to read.'])
      assert isinstance(summary, str)
      from locost_jax import evaluate, main, summarize
      try:
        import tensorflow
      except ImportError:
        print('fine')
  ''')
  done = subprocess.run(
      [sys.executable, '-c', program, str(tmp_path / 'run')],
      capture_output=True, text=True, cwd=ROOT,
      env={'PYTHONPATH': f'{ROOT}:{ROOT / "tests"}', 'JAX_PLATFORMS': 'cpu',
           'PATH': '/usr/bin:/bin'})
  assert done.returncode == 0, done.stderr
  assert done.stdout.endswith('fine\n')
