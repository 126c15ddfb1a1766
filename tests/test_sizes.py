"""A file has at most 600 lines, a function at most 50 lines of code."""

import ast
import io
from pathlib import Path
import tokenize

ROOT = Path(__file__).parent.parent
LONGEST_FILE = 600
LONGEST_FUNCTION = 50
# Tokens that do not make a line count.
_BLANK = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def find_too_long(source):
  """Returns lines about a file and the functions in it that are too long.

  The docstring, comments and blank lines of a function do not count.
  """
  found = []
  if (lines := source.count('\n')) > LONGEST_FILE:
    found.append(f'{lines} lines')
  code = set()
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type not in _BLANK:
      code.update(range(token.start[0], token.end[0] + 1))
  for node in ast.walk(ast.parse(source)):
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
      continue
    own = code & set(range(node.lineno, node.end_lineno + 1))
    if ast.get_docstring(node) is not None:
      docstring = node.body[0]
      own -= set(range(docstring.lineno, docstring.end_lineno + 1))
    if len(own) > LONGEST_FUNCTION:
      found.append(f'{node.name} has {len(own)} lines of code')
  return found


def test_no_file_and_no_function_is_too_long():
  found = {
      str(path.relative_to(ROOT)): long
      for folder in ('locost_jax', 'papers')
      for path in sorted((ROOT / folder).rglob('*.py'))
      if (long := find_too_long(path.read_text()))
  }
  assert found == {}


def test_long_files_and_functions_are_found():
  body = '  x = 1\n' * 50
  just = f'def f():\n  """Docs.\n\n  More.\n  """\n  # Why.\n\n{body[8:]}'
  assert find_too_long(just) == []
  assert find_too_long(just + '  x = 1\n') == ['f has 51 lines of code']
  assert find_too_long('\n' * 601) == ['601 lines']
