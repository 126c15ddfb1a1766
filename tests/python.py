"""Python in a process of its own."""

import os
from pathlib import Path
import subprocess
import sys

ROOT = Path(__file__).parent.parent


def run(*arguments, cwd=ROOT, paths=(), **environment):
  """Runs `python ARGUMENTS` with this repository; returns what it printed.

  Args:
    *arguments: of Python.
    cwd: its working directory.
    paths: more directories to import from.
    **environment: variables to set; None removes one.
  """
  paths = [str(ROOT), *map(str, paths), os.environ.get('PYTHONPATH', '')]
  path = os.pathsep.join(filter(None, paths))
  changed = {**os.environ, 'PYTHONPATH': path, **environment}
  return subprocess.run(
      [sys.executable, *map(str, arguments)],
      cwd=cwd,
      env={key: value for key, value in changed.items() if value is not None},
      capture_output=True,
      text=True,
      check=False,
  )
