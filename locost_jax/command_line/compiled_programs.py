"""Keeps compiled programs for later commands, in JAX's persistent cache.

The directory is the first of these that is set: JAX_COMPILATION_CACHE_DIR
(JAX's own), --program_cache, LOCOST_JAX_CACHE, XDG_CACHE_HOME/locost_jax, and
otherwise ~/.cache/locost_jax. The programs are in its subdirectory `xla`, except
for JAX's own. A program's key contains versions, flags and device, so no entry
becomes stale. The directory may be deleted at any time.

If it cannot be written, for example because the disk is full, JAX warns about
each program and leaves a truncated file, which it never replaces. Here one line
reports it, and the file is removed.
"""

import functools
import os
from pathlib import Path
import re
import warnings

import jax

from locost_jax.command_line import commands
from locost_jax.command_line import progress

OFF = 'off'
_START = 'Error (writing|reading) persistent compilation cache entry'
_WARNING = re.compile(rf"{_START} for '(.*?)': (.*)", re.DOTALL)


def keep(directory=None):
  """Lets JAX keep the programs that it compiles from now on.

  Args:
    directory: where to keep them; 'off': nowhere; None: the default.

  Returns:
    The directory of the programs; None if they are not kept, also because the
    directory cannot be written.
  """
  if os.environ.get('JAX_COMPILATION_CACHE_DIR'):
    _report_errors(os.environ['JAX_COMPILATION_CACHE_DIR'])
    return os.environ['JAX_COMPILATION_CACHE_DIR']
  directory = (
      directory
      or os.environ.get(commands.PROGRAM_CACHE)
      or os.path.join(
          os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'),
          'locost_jax',
      )
  )
  if directory == OFF:
    return None
  directory = os.path.join(os.path.abspath(directory), 'xla')
  try:
    os.makedirs(directory, exist_ok=True)
  except OSError:
    return None
  if not os.access(directory, os.W_OK | os.X_OK):
    return None
  jax.config.update('jax_compilation_cache_dir', directory)
  # Also keep programs that compile fast: a run has a hundred of them.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
  _report_errors(directory)
  return directory


def _report_errors(directory):
  """Shows JAX's warnings about reading and about writing as one line each."""
  warnings.filterwarnings('always', _START)  # also those of equal text
  otherwise = warnings.showwarning
  if getattr(otherwise, 'func', None) is _show:
    otherwise = otherwise.args[0]
  warnings.showwarning = functools.partial(_show, otherwise, directory, set())


def _show(otherwise, directory, reported, message, *where, **keywords):
  """Shows a warning: `warnings.showwarning`.

  Args:
    otherwise: shows all other warnings.
    directory: of the programs.
    reported: the kinds that were reported; added to.
    message: the warning.
  """
  found = _WARNING.match(str(message))
  if not found:
    otherwise(message, *where, **keywords)
    return
  kind, program, reason = found.groups()
  if kind == 'writing':
    _remove_newest(directory, program)
  if kind in reported:
    return
  reported.add(kind)
  reason = re.sub(r'^\w+Error: (\[Errno \d+\] )?', '', ' '.join(reason.split()))
  if kind == 'writing':
    what, then = 'compiled programs cannot be kept there', 'the run goes on'
  else:
    what, then = 'a compiled program cannot be read', 'it is compiled again'
  progress.note(f'{directory}: {what}: {reason}; {then}')


def _remove_newest(directory, program):
  """Removes the newest file of a program: the one that was just truncated."""
  try:
    paths = Path(directory).glob(f'{program}-*-cache')
    max(paths, key=lambda path: path.stat().st_mtime_ns).unlink()
  except (OSError, ValueError):  # none was made, or another command removed it
    pass
