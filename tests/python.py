"""Python in a process of its own."""

import os
from pathlib import Path
import subprocess
import sys

ROOT = Path(__file__).parent.parent
# A command that also prints the hits and misses of the cache of programs.
COUNTING = """
import collections, sys
import jax
from locost_jax.config import commands
from locost_jax import {0}
events = collections.Counter()
jax.monitoring.register_event_listener(
    lambda event, **_: events.update([event.rpartition('/')[2]]))
try:
  commands.run({0}.main, {0}.define_flags, '', sys.argv)
finally:
  print(events['cache_hits'], events['cache_misses'], file=sys.stderr)
"""


def run(*arguments, cwd=ROOT, paths=(), status=0, **environment):
  """Runs `python ARGUMENTS` with this repository; returns the process.

  It can import from `paths` too and must end with this status. Variables of the
  environment that are None are removed.
  """
  paths = [str(ROOT), *map(str, paths), os.environ.get('PYTHONPATH', '')]
  path = os.pathsep.join(filter(None, paths))
  changed = {**os.environ, 'PYTHONPATH': path, **environment}
  done = subprocess.run(
      [sys.executable, *map(str, arguments)],
      cwd=cwd,
      env={key: value for key, value in changed.items() if value is not None},
      capture_output=True,
      text=True,
      timeout=600,
  )
  assert done.returncode == status, done.stderr
  return done


def count(command, *arguments, **keywords):
  """Runs a command; returns (stdout, (hits, misses))."""
  done = run('-c', COUNTING.format(command), *arguments, **keywords)
  return done.stdout, tuple(map(int, done.stderr.splitlines()[-1].split()))
