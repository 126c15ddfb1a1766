"""TPUs and GPUs that are not here, to compile for: `main --topology`.

The compilers come with pip packages and need no accelerator. They give the
memory of a program and its instructions, never a time.
"""

import importlib.util
import math
import os
import re
from typing import NamedTuple

import jax
from jax.experimental import topologies

from locost_jax.errors import InputError

SHARE = 0.75  # of a GPU's memory: what JAX allocates by default


class Card(NamedTuple):
  """A GPU, by its maker's data sheet; the memory is what CUDA reports."""

  kind: str  # jax.Device.device_kind
  capability: int  # CUDA's, times 10
  memory: float  # GiB
  bandwidth: int  # of the memory, GB/s
  cores: int  # streaming multiprocessors
  units: int  # of a core, for float32
  clock: float  # the highest, GHz
  cache: int  # L2, MiB
  shared: int  # memory of a core, KiB
  threads: int = 2048  # the most that a core holds


CARDS = dict(
    t4=Card('Tesla T4', 75, 14.6, 320, 40, 64, 1.59, 4, 64, 1024),
    l4=Card('NVIDIA L4', 89, 22.0, 300, 58, 128, 2.04, 48, 100, 1536),
    a100=Card('NVIDIA A100-SXM4-80GB', 80, 79.2, 2039, 108, 64, 1.41, 40, 164),
    h100=Card('NVIDIA H100 80GB HBM3', 90, 79.1, 3352, 132, 128, 1.98, 50, 228),
    h200=Card('NVIDIA H200', 90, 139.8, 4800, 132, 128, 1.98, 50, 228),
    b200=Card('NVIDIA B200', 100, 178.3, 7700, 148, 128, 1.965, 126, 228),
)
# GiB of a device that libtpu 0.0.42 gives to a program.
TPUS = dict(
    v2=7.48, v3=15.48, v4=30.75, v5e=15.75, v5p=95.74, v6e=31.25, tpu7x=94.75
)
# Generations of TPUs -> what an accelerator type counts for each chip (itself or
# its two TensorCores), and their slices, as chips along the axes.
_SLICES = {
    'v5litepod v5e v6e': (1, '1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16'),
    'v4 v5p': (2, '2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16'),
}
# Without the first three, libtpu asks the cloud for the type of the machine,
# and logs many errors if no server answers; the topology overrides the values.
# Without the last, a machine's second process that loads libtpu fails.
_MACHINE = {
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_ACCELERATOR_TYPE': 'v5litepod-16',
    'TPU_WORKER_HOSTNAMES': 'localhost',
    'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
}


class Target(NamedTuple):
  """Devices to compile for."""

  devices: list  # jax.Devices
  available: int  # bytes of a device that a program may use
  options: dict  # of the compiler
  margin: float  # share of the temporary memory that is added to it
  note: str  # about these numbers


def name_slice(name):
  """Returns 'v5e:4x4' for 'v5litepod-16'; a name with a colon as it is."""
  generation, _, size = name.partition('-')
  for generations, (counted, slices) in _SLICES.items():
    for sides in slices.split() if generation in generations.split() else ():
      if size == str(counted * math.prod(map(int, sides.split('x')))):
        return f'{generation.replace("litepod", "e")}:{sides}'
  if ':' in name:
    return name
  raise InputError(
      f'--topology={name}: expected an accelerator type like v5litepod-16, '
      'v6e-16 or v4-32, or a slice like v5e:4x4'
  )


def find(name):
  """Returns the Target of a name; JAX then uses only the CPU of this machine.

  Args:
    name: a generation of TPUs and its chips per axis, 'v5e:4x4' or 'v4:2x2x2';
      or a card, hosts and GPUs of a host, 'h100:1x8'. See `name_slice`, too.

  Raises:
    InputError: an unknown name, or the compiler is not installed.
  """
  kind = name.partition(':')[0]
  gpus = re.fullmatch(r'(\w+):([1-9]\d{0,3}x[1-9]\d?)', name)
  if kind not in TPUS and not (gpus and kind in CARDS):
    raise InputError(
        f'--topology={name}: expected a TPU slice like v5e:4x4 '
        f'({", ".join(TPUS)}), or GPUs like h100:1x8, hosts x GPUs of a host '
        f'({", ".join(CARDS)})'
    )
  # Plugins without their device would fail, and a device may be in use.
  jax.config.update('jax_platforms', 'cpu')
  return _find_tpus(name, kind) if kind in TPUS else _find_gpus(*gpus.groups())


def _find_tpus(name, kind):
  """Returns the Target of a TPU slice."""
  _require('libtpu', name, 'TPUs', 'tpu-aot')
  for variable, value in _MACHINE.items():
    os.environ.setdefault(variable, value)
  # One device per chip, which JAX's meshes need.
  config = {'chip_config_name': 'megacore'} if kind == 'v4' else {}
  if name.endswith(':1x1'):  # hosts have four chips otherwise
    config['chips_per_host_bounds'] = 1, 1, 1
  try:
    found = topologies.get_topology_desc(name, 'tpu', **config)
  except jax.errors.JaxRuntimeError as error:
    raise InputError(
        f'--topology={name}: expected a TPU slice like v5e:4x4; libtpu says: '
        f'{str(error).splitlines()[0]}'
    ) from None
  # A third of the default's time for a step with transforms. Its temporary
  # memory was 3 to 17% below the default's: 1 / 0.83 < 1.25.
  effort = {'exec_time_optimization_effort': -1.0}
  note = 'margin: of low effort; a run takes 3 to 17% more temporary memory'
  return Target(found.devices, int(TPUS[kind] * 2**30), effort, 0.25, note)


def _find_gpus(kind, sizes):
  """Returns the Target of GPUs; sizes: '1x8'."""
  # Another version than jax's is refused by it.
  pin = f' jax-cuda12-plugin=={jax.__version__}'
  _require('jax_cuda12_plugin', f'{kind}:{sizes}', 'GPUs', 'gpu-aot', pin)
  card = CARDS[kind]
  topology = topologies.get_topology_desc(
      kind, 'cuda', target_config=describe(card), topology=f'1x{sizes}'
  )
  # Without a GPU to try tiles on, Triton finds none for some products
  # ("Couldn't find output tile sizes"); cuBLAS computes them instead.
  options = {'xla_gpu_enable_triton_gemm': False}
  note = (
      f"available: {SHARE} of a card, JAX's default; cuFFT's scratch is extra"
  )
  available = int(card.memory * SHARE * 2**30)
  return Target(topology.devices, available, options, 0.0, note)


def _require(module, name, devices, extra, more=''):
  """Raises an InputError with the pip command if a compiler is missing."""
  if importlib.util.find_spec(module) is None:
    raise InputError(
        f'--topology={name}: compiling for {devices} needs {module}, which is '
        f"not installed: pip install 'locost_jax[{extra}]'{more}"
    )


def describe(card):
  """Returns a Card as the text of XLA's GpuTargetConfigProto."""
  major, minor = divmod(card.capability, 10)
  # From 8.0 on, CUDA keeps 1 KiB of each block.
  largest = card.shared - (major >= 8)
  return f"""gpu_device_info {{
      threads_per_block_limit: 1024 threads_per_warp: 32
      threads_per_core_limit: {card.threads} block_dim_limit_x: {2**31 - 1}
      block_dim_limit_y: 65535 block_dim_limit_z: 65535
      registers_per_core_limit: 65536 registers_per_block_limit: 65536
      shared_memory_per_core: {card.shared << 10}
      shared_memory_per_block_optin: {largest << 10}
      shared_memory_per_block: 49152 l2_cache_size: {card.cache << 20}
      core_count: {card.cores} fpus_per_core: {card.units}
      clock_rate_ghz: {card.clock} memory_bandwidth: {card.bandwidth * 10**9}
      device_memory_size: {int(card.memory * 2**30)}
      cuda_compute_capability {{ major: {major} minor: {minor} }} }}
      platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }}
      runtime_version {{ major: 12 minor: 8 }}
      device_description_str: "{card.kind}" """
