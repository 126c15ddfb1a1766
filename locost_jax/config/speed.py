"""Makes commands faster: huge pages, freed memory, imports, kept programs.

Huge pages. XLA frees its temporary memory after every call, and the next call
gets it from the kernel page by page: 53,000 page faults of 4 KiB in one step of
the quickstart, a fifth of its time. With transparent huge pages it is 500
faults of 2 MiB. glibc (2.35 and later) uses them only if an environment
variable is set when the process starts, so the command restarts itself.

glibc keeps the memory that XLA's compiler frees, which adds to the peak of the
first step: 0.4 GiB of 3.7 with 2 + 2 layers of base width and 16,384 tokens in
float32, 0.5 of 3.8 in bfloat16. So this memory is returned to the system.

Compiled programs are kept in JAX's persistent cache. The directory is the first
of these that is set: JAX_COMPILATION_CACHE_DIR (JAX's own), --program_cache,
LOCOST_JAX_CACHE, XDG_CACHE_HOME/locost_jax, and otherwise ~/.cache/locost_jax.
The programs are in its subdirectory `xla`, except for JAX's own. A program's
key contains versions, flags and device, so no entry becomes stale. The
directory may be deleted at any time. If it cannot be written, for example
because the disk is full, JAX warns about each program and leaves a truncated
file, which it never replaces. Here one line reports it, and the file is removed.
"""

import contextlib
import ctypes
import functools
import gc
import os
from pathlib import Path
import re
import sys
import warnings

from locost_jax import files
from locost_jax.config import progress

TUNABLES = 'GLIBC_TUNABLES'  # settings of the C library's allocator
_COMPILED = '/jax/core/compile/backend_compile_duration'
OFF = 'off'
PROGRAM_CACHE = 'LOCOST_JAX_CACHE'  # the variable behind --program_cache
_START = 'Error (writing|reading) persistent compilation cache entry'
_WARNING = re.compile(rf"{_START} for '(.*?)': (.*)", re.DOTALL)


def restart_with_huge_pages():
  """Restarts this command with huge pages, in the same process id.

  Call it before slow imports. Does nothing outside Linux, or if GLIBC_TUNABLES
  is already set, even if it is empty.
  """
  if sys.platform == 'linux' and TUNABLES not in os.environ:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(
        sys.executable,
        [sys.executable, *sys.orig_argv[1:]],
        {**os.environ, TUNABLES: 'glibc.malloc.hugetlb=1'},
    )


@functools.cache
def trim_after_compiling(shortest=0.5):
  """Returns freed memory to the system after each compilation from now on.

  This happens before the compiled program first runs. Does nothing without
  glibc, or when called again.

  Args:
    shortest: shortest compilation in seconds; faster ones free little memory.
  """
  libc = ctypes.CDLL(None) if sys.platform == 'linux' else None
  if not hasattr(libc, 'malloc_trim'):
    return
  import jax  # only after the process has restarted

  def trim(event, seconds, **_):
    if event == _COMPILED and seconds >= shortest:
      libc.malloc_trim(0)

  jax.monitoring.register_event_duration_secs_listener(trim)


def cache_directory():
  """Returns the directory in which a user's programs keep what they can remake."""
  caches = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  return os.path.join(os.path.abspath(caches), 'locost_jax')


@contextlib.contextmanager
def importing():
  """A context for imports: what they make is not searched for garbage.

  All of it stays, and Python would look at it again and again while models are
  traced: a start of `summarize` takes an eighth less processor time.
  """
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    gc.freeze()
    if was_enabled:
      gc.enable()


def keep_programs(directory=None):
  """Lets JAX keep the programs that it compiles from now on.

  Args:
    directory: where to keep them; 'off': nowhere; None: the default.

  Returns:
    The directory of the programs; None if they are not kept, also because the
    default one cannot be written.

  Raises:
    InputError: `directory` cannot be written.
  """
  if own := os.environ.get('JAX_COMPILATION_CACHE_DIR'):
    _report_errors(own)
    return own
  if directory and directory != OFF:
    files.check_directory('--program_cache', directory)
  directory = directory or os.environ.get(PROGRAM_CACHE) or cache_directory()
  if directory == OFF:
    return None
  directory = os.path.join(os.path.abspath(directory), 'xla')
  try:
    os.makedirs(directory, exist_ok=True)
  except OSError:
    return None
  if not os.access(directory, os.W_OK | os.X_OK):
    return None
  import jax  # only after the process has restarted

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
    reported: the kinds that were reported; added to.
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
