"""Connects the processes of a multi-host run, before any device is used.

Run the same command on every host. On Cloud TPUs and in SLURM steps (`srun`) no
flags are needed; elsewhere every host needs the address of the first one:

  python -m locost_jax.main --config=FILE --coordinator=HOST:PORT \\
      --hosts=2 --host=0        # and on the other machine --host=1

A roll call comes first (roll_call.py): if a host is missing, all others exit
with a message that names it. Every host reads its own rows of each batch;
WORKDIR must be one directory that all hosts see.
"""

import glob
import importlib.util
import os
import sys

from absl import flags
import jax

from locost_jax.errors import InputError
from locost_jax.hosts import roll_call
from locost_jax.hosts import watchdog

TIMEOUT = 300.0  # seconds that hosts wait for each other


def define_flags(values):
  """Defines --coordinator, --hosts and --host."""
  flags.DEFINE_string(
      'coordinator',
      None,
      'HOST:PORT: the address of the first of several hosts; not needed on '
      'TPUs and under SLURM',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'hosts',
      None,
      'with --coordinator: number of processes',
      lower_bound=1,
      flag_values=values,
  )
  flags.DEFINE_integer(
      'host',
      None,
      'with --coordinator: index of this process, from 0',
      lower_bound=0,
      flag_values=values,
  )


def connect(values, seconds=TIMEOUT):
  """Waits for the other hosts, if any, and lets JAX connect them.

  Args:
    values: the flags of `define_flags`.
    seconds: how long to wait for them.

  Returns:
    A roll_call.Roll.

  Raises:
    InputError: a flag is missing or wrong, or the hosts disagree on their
      number, indices or versions.
    Stopped: a host is missing.
  """
  config = find_host_config(values, os.environ, seconds)
  roll = roll_call.call(config, seconds)
  if config.hosts == 1:
    return roll
  keep_stdout()
  with watchdog.ending_after(
      seconds, 'JAX to connect the hosts, which all answered the roll call'
  ):
    try:
      jax.distributed.initialize(
          config.address,
          config.hosts,
          config.host,
          config.local_devices,
          cluster_detection_method='deactivate',
      )
    except (RuntimeError, ValueError) as error:
      reason = str(error).strip().split('\n')[0]
      raise InputError(f'JAX could not connect the hosts: {reason}') from error
  return roll


def find_host_config(values, environment, seconds=TIMEOUT):
  """Returns this process's roll_call.HostConfig; host 0 of 1 if it is alone.

  Args:
    values: the flags of `define_flags`.
    environment: like os.environ.
    seconds: how long to wait for the cluster's answer.

  Raises:
    InputError: a flag is missing or wrong, or the cluster does not answer.
  """
  given = {
      name: values[name].value for name in ('coordinator', 'hosts', 'host')
  }
  missing = [f'--{name}' for name, value in given.items() if value is None]
  if len(missing) == len(given):
    if is_cluster(environment):
      return _detect_cluster(environment, seconds)
    return roll_call.HostConfig('', 1, 0)
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
  return roll_call.HostConfig(
      given['coordinator'], given['hosts'], given['host']
  )


def check_srun(environment):
  """Raises an InputError if srun did not start one of a job's several tasks.

  Args:
    environment: like os.environ.
  """
  if 'SLURM_STEP_NUM_TASKS' in environment:
    return
  wanted = int(environment.get('SLURM_NTASKS', 1))
  if wanted > 1:
    raise InputError(
        f'this is one host of {wanted}: SLURM gave this job {wanted} tasks, '
        'but srun did not start this one; use `srun python -m ...`'
    )


def is_cluster(environment):
  """Returns whether JAX can find the hosts of a run by itself.

  Args:
    environment: like os.environ.
  """
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
    return roll_call.HostConfig('', 1, 0)
  tasks = int(environment.get('SLURM_STEP_NUM_TASKS', 1))
  if tasks == int(environment.get('SLURM_STEP_NUM_NODES', 0)):
    devices = None
  return roll_call.HostConfig(address, hosts, host, devices and tuple(devices))


def keep_stdout():
  """Redirects native libraries' stdout to stderr; Python's stdout stays.

  Gloo, which connects hosts without accelerators, prints a message to stdout.
  """
  sys.stdout.flush()
  sys.stdout = open(
      os.dup(1), 'w', encoding=sys.stdout.encoding, errors=sys.stdout.errors
  )
  os.dup2(2, 1)
