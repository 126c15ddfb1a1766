"""Compiles programs for a TPU slice, such as 'v5e:4x4', without a TPU.

libtpu contains the TPU compiler, which needs no TPU. It reports the memory of a
program and refuses one that does not fit a chip's memory.
"""

import importlib.util
import os

import jax
from jax.experimental import topologies

from locost_jax.errors import InputError

INSTALL = "pip install 'locost_jax[tpu-aot]'"
# Without these libtpu asks the cloud for the type of the machine, and logs many
# errors if no server answers. The topology overrides the values.
_MACHINE = {
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_ACCELERATOR_TYPE': 'v5litepod-16',
    'TPU_WORKER_HOSTNAMES': 'localhost',
}


def devices(name):
  """Returns the devices of a slice, for compiling only.

  Args:
    name: a generation and the chips along its axes, as libtpu names them:
      'v5e:4x4', 'v6e:2x4' or 'v4:2x2x2'.

  Raises:
    InputError: an unknown slice, or libtpu is not installed.
  """
  if importlib.util.find_spec('libtpu') is None:
    raise InputError(
        f'--topology={name}: compiling for TPUs needs libtpu, '
        f'which is not installed: {INSTALL}'
    )
  for variable, value in _MACHINE.items():
    os.environ.setdefault(variable, value)
  try:
    return topologies.get_topology_desc(
        platform='tpu', topology_name=name
    ).devices
  except jax.errors.JaxRuntimeError as error:
    raise InputError(
        f'--topology={name}: expected a TPU slice like v5e:4x4; libtpu says: '
        f'{str(error).splitlines()[0]}'
    ) from None
