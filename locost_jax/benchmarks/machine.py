"""Describes the machine and the software that a benchmark ran on."""

import os
from pathlib import Path
import platform

from locost_jax.command_line import versions as versions_lib
from locost_jax.devices import memory

PACKAGES = (
    'locost_jax',
    'jax',
    'jaxlib',
    'flax',
    'numpy',
    'torch',
    'transformers',
)
# Prefixes of the environment variables that change a machine's speed.
VARIABLES = (
    'XLA_FLAGS',
    'JAX_PLATFORMS',
    'OMP_',
    'MALLOC_',
    'LD_PRELOAD',
    'XLA_PYTHON_CLIENT',
)


def cores():
  """Returns how many CPU cores this process may use."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def describe_machine():
  """Returns CPU, cores, memory, system and VARIABLES as a dict for JSON."""
  cpu = platform.processor() or platform.machine()
  try:
    for line in Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith('model name'):
        cpu = line.split(':', 1)[1].strip()
        break
  except OSError:
    pass
  variables = {
      key: value
      for key, value in sorted(os.environ.items())
      if key.startswith(VARIABLES)
  }
  return dict(
      cpu=cpu,
      cores=cores(),
      memory_bytes=memory.host_bytes(),
      system=f'{platform.system()} {platform.release()}',
      variables=variables,
  )


def versions():
  """Returns the versions of Python and of the installed PACKAGES."""
  return {
      'python': platform.python_version(),
      **versions_lib.installed(PACKAGES),
  }
