"""Keeps compiled programs for later commands, in JAX's persistent cache.

The directory is the first of these that is set: JAX_COMPILATION_CACHE_DIR
(JAX's own), --program_cache, LOCOST_JAX_CACHE, XDG_CACHE_HOME/locost_jax, and
otherwise ~/.cache/locost_jax. The programs are in its subdirectory `xla`, except
for JAX's own. A program's key contains versions, flags and device, so no entry
becomes stale. The directory may be deleted at any time.
"""

import os

import jax

from locost_jax.command_line import commands

OFF = 'off'


def keep(directory=None):
  """Lets JAX keep the programs that it compiles from now on.

  Args:
    directory: where to keep them; 'off': nowhere; None: the default.

  Returns:
    The directory of the programs; None if they are not kept, also because the
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
  # Also keep programs that compile fast: a run has a hundred of them.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
  return directory
