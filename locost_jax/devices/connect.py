"""Connects the processes of a multi-host run, before any device is used.

Run the same command on every host. On Cloud TPUs and in SLURM steps (`srun`) no
flags are needed; elsewhere every host needs the address of the first one:

  python -m locost_jax.main --config=FILE --coordinator=HOST:PORT \\
      --hosts=2 --host=0        # and on the other machine --host=1

If a host is missing, the others end with one line after a while. All hosts must
have the same versions of locost_jax and JAX. Every host reads its own rows of
each batch; WORKDIR is one directory that all hosts see, or gs://BUCKET/NAME.
"""

import glob
import importlib.util
import os
import socket
import sys
from typing import NamedTuple

import jax

from locost_jax.config import versions
from locost_jax.devices import collective
from locost_jax.devices import watchdog
from locost_jax.errors import InputError

TIMEOUT = 300.0  # seconds that hosts wait for each other
# Their versions must agree, or the hosts compile different programs.
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax')


class HostConfig(NamedTuple):
  """The index of this process in a run, and how to reach the first one."""

  address: str  # HOST:PORT at which the first host listens
  hosts: int
  host: int  # index of this one, from 0 on
  local_devices: tuple[int, ...] | None = None  # those that it uses; None: all


def connect(values, seconds=TIMEOUT):
  """Lets JAX connect the hosts, if there are several.

  The process ends with one line if a host does not appear.
  """
  config = find_host_config(values, os.environ, seconds)
  if config.hosts == 1:
    return
  keep_stdout()
  with watchdog.ending_after(
      seconds,
      f'all {config.hosts} hosts to connect at {config.address}, of which this '
      f'is host {config.host}: expected the same command on every host',
  ):
    try:
      jax.distributed.initialize(
          config.address,
          config.hosts,
          config.host,
          config.local_devices,
          cluster_detection_method='deactivate',
          # JAX would abort the process, with a stack instead of one line.
          initialization_timeout=2 * int(seconds) + 60,
      )
    except (RuntimeError, ValueError) as error:
      reason = str(error).strip().split('\n')[0]
      raise InputError(f'JAX could not connect the hosts: {reason}') from error
    check_versions()


def check_versions():
  """Returns a row of each host, {'name', 'versions'}, once all have answered.

  Raises:
    InputError: the versions differ.
  """
  found = dict(locost_jax=versions.__version__, **versions.installed(PACKAGES))
  rows = collective.gather_rows(
      [dict(name=socket.gethostname(), versions=found)]
  )
  for host, row in enumerate(rows):
    for name, version in rows[0]['versions'].items():
      if row['versions'].get(name) != version:
        raise InputError(
            f"host {host} ({row['name']}) has {name} "
            f"{row['versions'].get(name)}, host 0 ({rows[0]['name']}) "
            f'{version}: expected the same'
        )
  return rows


def find_host_config(values, environment, seconds=TIMEOUT):
  """Returns this process's HostConfig; host 0 of 1 if it is alone."""
  given = {
      name: values[name].value for name in ('coordinator', 'hosts', 'host')
  }
  missing = [f'--{name}' for name, value in given.items() if value is None]
  if len(missing) == len(given):
    if is_cluster(environment):
      return _detect_cluster(environment, seconds)
    return HostConfig('', 1, 0)
  if missing:
    raise InputError(
        '--coordinator, --hosts and --host belong together: '
        f'{" and ".join(missing)} missing'
    )
  if given['host'] >= given['hosts']:
    raise InputError(
        f'--host={given["host"]}: expected less than '
        f'--hosts={given["hosts"]}'
    )
  name, _, port = given['coordinator'].rpartition(':')
  if not (name and port.isdecimal() and 0 < int(port) < 65536):
    raise InputError(
        f'--coordinator={given["coordinator"]}: expected '
        'HOST:PORT, like gpu1:8476'
    )
  return HostConfig(given['coordinator'], given['hosts'], given['host'])


def check_srun(environment):
  """Raises an InputError if srun did not start one of a job's several tasks."""
  if 'SLURM_STEP_NUM_TASKS' in environment:
    return
  wanted = int(environment.get('SLURM_NTASKS', 1))
  if wanted > 1:
    raise InputError(
        f'this is one host of {wanted}: SLURM gave this job {wanted} tasks, '
        'but srun did not start this one; use `srun python -m ...`'
    )


def is_cluster(environment):
  """Returns whether JAX can find the hosts of a run by itself."""
  if int(environment.get('SLURM_STEP_NUM_TASKS', 1)) > 1:
    return True
  if environment.get('JAX_PLATFORMS') == 'cpu':
    return False
  return importlib.util.find_spec('libtpu') is not None and bool(
      glob.glob('/dev/accel*') or glob.glob('/dev/vfio/*')
  )


def _detect_cluster(environment, seconds):
  """Returns the HostConfig that JAX detects from SLURM or the cloud.

  JAX has no public function for this that does not connect. By default it gives
  a SLURM task one device, even if the task has the whole machine.
  """
  from jax._src import clusters

  try:
    address, hosts, host, devices = (
        clusters.ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, int(seconds)
        )
    )
  except (RuntimeError, OSError, ValueError) as error:
    raise InputError(
        f'cannot read the list of hosts from the cluster: {error}'
    ) from error
  if None in (address, hosts, host):  # a TPU without a pod: Colab's
    return HostConfig('', 1, 0)
  tasks = int(environment.get('SLURM_STEP_NUM_TASKS', 1))
  if tasks == int(environment.get('SLURM_STEP_NUM_NODES', 0)):
    devices = None
  return HostConfig(address, hosts, host, devices and tuple(devices))


def keep_stdout():
  """Redirects native libraries' stdout to stderr; Python's stdout stays.

  Gloo, which connects hosts without accelerators, prints a message to stdout.
  """
  sys.stdout.flush()
  sys.stdout = open(
      os.dup(1), 'w', encoding=sys.stdout.encoding, errors=sys.stdout.errors
  )
  os.dup2(2, 1)
