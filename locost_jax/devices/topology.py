"""A TPU slice that is not here, to compile programs for: 'v5e:4x4'.

The compiler of TPUs comes with libtpu and needs no TPU. It gives programs with
their memory, and refuses those that a chip's memory does not hold.
"""

import importlib.util
import os

import jax
from jax.experimental import topologies

from locost_jax.errors import InputError

INSTALL = "pip install 'locost_jax[tpu-aot]'"
# libtpu asks the cloud what machine this is, and complains at length where
# nobody answers. These values decide nothing: the topology does.
_MACHINE = {
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_ACCELERATOR_TYPE': 'v5litepod-16',
    'TPU_WORKER_HOSTNAMES': 'localhost',
}


def devices(name):
  """Returns the devices of a slice, which can be compiled for, not run on.

  Args:
    name: of libtpu: a generation and the chips along its axes, like 'v5e:4x4',
      'v6e:2x4' or 'v4:2x2x2'.

  Raises:
    InputError: there is no such slice, or no libtpu.
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
