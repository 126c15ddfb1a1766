"""Lists the commands of locost_jax.

  python -m locost_jax

Each line shows a command and the first line of its docstring.
"""

import ast
from pathlib import Path
import sys

from locost_jax.config import tables

COMMANDS = (
    'main',
    'summarize',
    'score',
    'convert',
    'data.inspect',
    'data.cache',
)


def main(arguments):
  """Prints each command's first line; returns the exit status."""
  if arguments and arguments not in (['--help'], ['-h']):
    print(
        f'error: {arguments[0]!r}: expected no arguments. '
        'python -m locost_jax lists the commands; '
        'python -m locost_jax.COMMAND runs one',
        file=sys.stderr,
    )
    return 2
  rows = [[f'python -m locost_jax.{x}', _purpose(x)] for x in COMMANDS]
  print('\n'.join(tables.align(rows, (0, 1))))
  print('\nTo see the flags of a command: python -m locost_jax.COMMAND --help')
  return 0


def _purpose(command):
  """Returns the first line of a command's docstring, without importing it."""
  path = Path(__file__).parent / f'{command.replace(".", "/")}.py'
  docstring = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8')))
  return docstring.splitlines()[0]


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
