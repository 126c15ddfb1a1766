"""Reads the documentation of the installed Python and its packages.

`pydoc_data.topics` (chapters of Python's language reference) and the docstrings
of the standard library and of the installed packages named in PACKAGES: real
English text for a first run without a download. Files are parsed with `ast`;
nothing is imported, so reading has no side effects and needs no accelerator.

`clean` removes everything but prose from docstrings: code (doctests, fenced,
literal and directive blocks), underlines of headings, and inline marks of
reStructuredText and Markdown. data/builtin_corpus.py makes documents and pairs.
"""

import ast
import gc
import importlib.util
import os
import re
import sysconfig
from typing import NamedTuple
import warnings

# Well-documented packages that the extras of this package install.
PACKAGES = (
    'numpy',
    'scipy',
    'jax',
    'flax',
    'optax',
    'orbax',
    'tensorflow',
    'keras',
)

# Tests, copies of other packages and generated re-exports.
_SKIPPED = frozenset("""
    test tests testing idle_test kernel_tests __pycache__ site-packages
    dist-packages _vendor vendored third_party _api include
""".split())


# Files with a smaller share of triple-quoted text are skipped: parsing them
# takes a third of the time, but they have only 6% of the words.
_FEWEST_DOCUMENTED = 0.15
_TRIPLE_QUOTED = re.compile(rb'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)


class Docstring(NamedTuple):
  """The documentation of one object."""

  module: str  # or topic
  name: str  # qualified in the module; '' for the module itself
  text: str  # cleaned


def read_docstrings(packages=PACKAGES):
  """Reads the documentation on this machine.

  Args:
    packages: top-level packages in addition to the standard library; packages
      that are not installed are skipped.

  Returns:
    List of Docstring. Modules are in the order of their names, objects in
    source order. Only the first of equal docstrings is kept.
  """
  found = {}
  for module, name, text in _raw_docstrings(packages):
    found.setdefault(text, (module, name))
  docstrings = []
  for text, (module, name) in found.items():
    text = clean(text)
    if text:
      docstrings.append(Docstring(module, name, text))
  return docstrings


def _raw_docstrings(packages):
  """Yields (module, name, text) of all docstrings, copies included."""
  yield from _topics()
  stdlib = sysconfig.get_paths()['stdlib']
  yield from _package('', stdlib)
  for package in packages:
    spec = importlib.util.find_spec(package)
    if spec is not None:
      for directory in sorted(spec.submodule_search_locations or ()):
        yield from _package(package, directory)


def _topics():
  try:
    from pydoc_data import topics
  except ImportError:  # some distributions of Python leave it out
    return
  for name, text in sorted(topics.topics.items()):
    yield f'topics.{name}', '', text


def _package(name, directory):
  """Yields (module, name, text) of the .py files under a directory."""
  for path in _python_files(directory):
    parts = os.path.relpath(path, directory)[: -len('.py')].split(os.sep)
    if parts[-1] == '__init__':
      parts.pop()
    module = '.'.join(([name] if name else []) + parts)
    with open(path, 'rb') as f:
      source = f.read()
    if not _is_documented(source):
      continue
    for qualified, text in _docstrings(source):
      yield module, qualified, text


def _is_documented(source):
  quoted = sum(len(a) + len(b) for a, b in _TRIPLE_QUOTED.findall(source))
  return quoted > _FEWEST_DOCUMENTED * len(source)


def _python_files(directory):
  for root, directories, files in os.walk(directory):
    directories[:] = sorted(d for d in directories if d not in _SKIPPED)
    for file in sorted(files):
      if (
          file.endswith('.py')
          and not file.startswith('test_')
          and not file.endswith(('_test.py', '_tests.py'))
      ):
        yield os.path.join(root, file)


def _docstrings(source):
  """Returns (qualified name, docstring) of module, classes and functions."""
  # A syntax tree has hundreds of thousands of objects without cycles; garbage
  # collection would take a third of the time.
  collecting = gc.isenabled()
  gc.disable()
  try:
    with warnings.catch_warnings():  # invalid escape sequences
      warnings.simplefilter('ignore')
      tree = ast.parse(source)
    found = [('', ast.get_docstring(tree))]
    found += [(name, ast.get_docstring(node)) for name, node in _objects(tree)]
  except (SyntaxError, ValueError, RecursionError):
    return []  # templates, other versions of Python
  finally:
    if collecting:
      gc.enable()
  return [(name, text) for name, text in found if text]


def _objects(tree, prefix=''):
  """Yields (qualified name, node), without functions inside functions."""
  for node in tree.body:
    if isinstance(node, ast.ClassDef):
      yield prefix + node.name, node
      yield from _objects(node, f'{prefix}{node.name}.')
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
      if not node.name.startswith('__'):
        yield prefix + node.name, node
    elif isinstance(node, (ast.If, ast.Try)):
      yield from _objects(node, prefix)


_FENCE = re.compile(r'\s*(?:```|~~~)')
_RULE = re.compile(r'[^\w\n]{3,}$')
_DIRECTIVE = re.compile(r'\s*\.\. (?:(\[[^]]*\])|\|?([\w -]+)\|?.*?::|_)')
# Directives whose block is prose; the block of any other is dropped.
_PROSE = frozenset('note warning tip important caution hint seealso'.split())
_INLINE = (  # (substring of any match, for speed; the mark; its replacement)
    ('](', re.compile(r'!?\[([^]\n]+)\]\([^)\s]*\)'), r'\1'),  # [text](url)
    (
        '>`',
        re.compile(r'(?::[a-z:]+:)?`([^`<>\n]+?)\s*<[^>`\n]*>`_{0,2}'),
        r'\1',
    ),  # `text <url>`_, :role:`text <target>`
    (':`', re.compile(r':[a-z]+(?::[a-z]+)?:`[~!]?([^`\n]*)`'), r'\1'),
    (']_', re.compile(r'\s?\[[\w#*]+\]_'), ''),  # references to footnotes
    ('`', re.compile(r'`{1,2}([^`\n]+)`{1,2}'), r'\1'),
    ('**', re.compile(r'\*\*(?=\w)([^*\n]+)\*\*'), r'\1'),
    ('*', re.compile(r'(?<!\S)\*(?=\w)([^*\n]*\w)\*(?![\w*])'), r'\1'),
)


def clean(text):
  """Removes everything but prose from a docstring.

  Args:
    text: a docstring whose indentation was removed (inspect.cleandoc).

  Returns:
    The text without code blocks, doctests, underlines and inline marks. Other
    lines are unchanged; runs of blank lines become one.
  """
  kept = []
  fenced = doctest = False
  dropped = None  # the indentation that a dropped block must exceed
  for line in text.split('\n'):
    bare = line.strip()
    if _FENCE.match(line):
      fenced = not fenced
      continue
    if fenced:
      continue
    if not bare:
      doctest = False
      if kept and kept[-1]:
        kept.append('')
      continue
    indentation = len(line) - len(line.lstrip())
    if dropped is not None:
      if indentation > dropped:
        continue
      dropped = None
    if doctest or bare.startswith('>>>'):
      doctest = True
      continue
    if _RULE.match(line):
      continue
    directive = _DIRECTIVE.match(line)
    if directive:
      if (directive.group(2) or '').strip() not in _PROSE:
        dropped = indentation
      continue
    if bare.endswith('::'):  # a literal block follows
      dropped = indentation
      line = line.rstrip()[:-1]
      if bare == '::':
        continue
    kept.append(line.rstrip())
  text = '\n'.join(kept).strip('\n')
  for sign, pattern, replacement in _INLINE:
    if sign in text:
      text = pattern.sub(replacement, text)
  return text
