"""Compiled programs kept between calls, in JAX's persistent cache.

JAX's own JAX_COMPILATION_CACHE_DIR wins; then come the directory that is asked
for, LOCOST_JAX_CACHE, XDG_CACHE_HOME/locost_jax and ~/.cache/locost_jax. The
programs lie in `xla` in there. A program's key holds the versions, the flags
and the device, so nothing goes stale; the directory may be deleted at any time.
"""

import os

import jax

from locost_jax.command_line import commands

OFF = 'off'


def keep(directory=None):
  """Lets JAX keep what it compiles from now on.

  Args:
    directory: where; 'off': nowhere; None: the default.

  Returns:
    The directory of the programs; None when none are kept, be it that the
    directory cannot be written.
  """
  if os.environ.get('JAX_COMPILATION_CACHE_DIR'):
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
  # Also what compiles fast: a run has a hundred such programs.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
  return directory
