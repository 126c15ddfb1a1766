"""The budgets of the whole tree: lines, code, words; long files and functions.

Whoever adds, removes: only a new capability raises a budget.
"""

import ast
import io
from pathlib import Path
import re
import tokenize

import pytest

ROOT = Path(__file__).parent.parent
BUDGETS = {
    'lines of locost_jax/': 37_995,  # with templates, CSS and JS
    'lines of code in locost_jax/': 24_410,
    'lines of configs/ and launch/': 2_475,
    'lines of papers/ and bench/': 4_420,
    'lines of tests/': 40_610,  # of Python
    'words of *.md': 19_800,  # as `wc -w` counts them
    'words of prose in *.md': 9_700,  # without tables and code
    'lines of README.md': 130,
    'columns of README.md': 120,
    'lines of a file': 600,
    'lines of code of a function': 50,
}
SOURCES = '.py', '.html', '.css', '.js'
SCRIPTS = '.py', '.sh', '.sbatch', '.env', '.md'
# Folders at the root that runs and tools write.
IGNORED = 'node_modules', 'build', 'dist', 'runs', 'corpora', 'caches'
# Tokens that do not make a line count.
_BLANK = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def read(root, folders, suffixes):
  """Returns {path: text} of the files in folders with these suffixes."""
  return {
      str(path.relative_to(root)): path.read_text(encoding='utf-8')
      for folder in folders
      for path in sorted((root / folder).rglob('*'))
      if path.suffix in suffixes and path.is_file()
      if not is_ignored(path.relative_to(root))
  }


def is_ignored(path):
  """Whether a file is not of the tree: of an environment, or written."""
  return path.parts[0] in IGNORED or any(
      part.startswith('.') or part == '_build' for part in path.parts
  )


def find_docstrings(tree):
  """Yields the docstring's node of a module, its classes and functions."""
  kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
  for node in ast.walk(tree):
    if isinstance(node, kinds) and ast.get_docstring(node, False) is not None:
      yield node.body[0]


def code_lines(source):
  """Returns the numbers of lines with code: no docstrings, comments, blanks."""
  code = set()
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type not in _BLANK:
      code.update(range(token.start[0], token.end[0] + 1))
  for docstring in find_docstrings(ast.parse(source)):
    code -= set(range(docstring.lineno, docstring.end_lineno + 1))
  return code


def find_too_long(source):
  """Returns lines about a file and the functions in it that are too long."""
  found = []
  if (lines := source.count('\n')) > BUDGETS['lines of a file']:
    found.append(f'{lines} lines')
  code = code_lines(source)
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
      own = code & set(range(node.lineno, node.end_lineno + 1))
      if len(own) > BUDGETS['lines of code of a function']:
        found.append(f'{node.name} has {len(own)} lines of code')
  return found


def prose(text):
  """Returns Markdown without fences of code and rows of tables."""
  text = re.sub(r'^ *(```|~~~).*?^ *\1 *$', '', text, flags=re.M | re.S)
  return re.sub(r'^ *\|.*$', '', text, flags=re.M)


def measure(root):
  """Returns {what: number} for each budget of the whole tree."""
  lines = lambda *where: sum(
      text.count('\n') for text in read(root, *where).values()
  )
  package = read(root, ['locost_jax'], ['.py'])
  pages = read(root, ['.'], ['.md']).values()
  readme = (root / 'README.md').read_text(encoding='utf-8').splitlines()
  return {
      'lines of locost_jax/': lines(['locost_jax'], SOURCES),
      'lines of code in locost_jax/': sum(
          len(code_lines(source)) for source in package.values()
      ),
      'lines of configs/ and launch/': lines(['configs', 'launch'], SCRIPTS),
      'lines of papers/ and bench/': lines(['papers', 'bench'], SOURCES),
      'lines of tests/': lines(['tests'], ['.py']),
      'words of *.md': sum(len(text.split()) for text in pages),
      'words of prose in *.md': sum(len(prose(text).split()) for text in pages),
      'lines of README.md': len(readme),
      'columns of README.md': max(map(len, readme)),
  }


MEASURED = measure(ROOT)


@pytest.mark.parametrize('what', MEASURED)
def test_the_tree_keeps_to_its_budget(what):
  assert MEASURED[what] <= BUDGETS[what]


def test_no_file_and_no_function_is_too_long():
  sources = read(ROOT, ['locost_jax', 'papers', 'bench'], ['.py'])
  found = {path: find_too_long(text) for path, text in sources.items()}
  assert {path: long for path, long in found.items() if long} == {}


def test_long_files_and_functions_are_found():
  body = '  x = 1\n' * 50
  just = f'def f():\n  """Docs.\n\n  More.\n  """\n  # Why.\n\n{body[8:]}'
  assert find_too_long(just) == []
  assert find_too_long(just + '  x = 1\n') == ['f has 51 lines of code']
  assert find_too_long('\n' * 601) == ['601 lines']


def test_what_is_added_is_counted(tmp_path):
  """One file of each kind, and what is not of the tree."""
  for name, text in {
      'README.md': 'Four words of prose.\n\n```\nx = 1\n```\n| a | b |\n',
      'locost_jax/a.py': '"""Docs."""\n\n# Why.\nX = """\n\n"""\n',
      'locost_jax/page.css': 'a {\n}\n',
      'papers/b.py': 'X = 1\n',
      'launch/c.sh': 'true\n',
      'tests/test_d.py': 'X = 1\n',
      '.venv/lib/README.md': 'words ' * 99,
      'build/locost_jax/README.md': 'words ' * 99,
  }.items():
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
  assert measure(tmp_path) == {
      'lines of locost_jax/': 8,
      'lines of code in locost_jax/': 3,
      'lines of configs/ and launch/': 1,
      'lines of papers/ and bench/': 1,
      'lines of tests/': 1,
      'words of *.md': 14,
      'words of prose in *.md': 4,
      'lines of README.md': 6,
      'columns of README.md': 20,
  }
