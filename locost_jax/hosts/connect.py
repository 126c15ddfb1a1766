"""Several processes, one run: they find each other before any device is used.

The same command runs on every host. On Cloud TPUs and in steps of SLURM
(`srun`) that is all; elsewhere each needs the address where the first one listens:

  python -m locost_jax.main --config=FILE --coordinator=HOST:PORT \\
      --hosts=2 --host=0        # and on the other machine --host=1

A roll call comes first (roll_call.py): where a host does not come, all others
end with a line that says which. Every host reads its own rows of each batch;
WORKDIR must be one directory that all of them see.
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

PATIENCE = 300.0  # seconds that hosts wait for each other


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


def connect(values, seconds=PATIENCE):
  """Waits for the other hosts, if there are any, and lets JAX connect them.

  Args:
    values: the flags of `define_flags`.
    seconds: to wait for them.

  Returns:
    A roll_call.Roll.

  Raises:
    InputError: a flag is missing or wrong, or the hosts do not fit together.
    Stopped: a host does not come.
  """
  seat = find_seat(values, os.environ, seconds)
  roll = roll_call.call(seat, seconds)
  if seat.hosts == 1:
    return roll
  keep_stdout()
  with watchdog.ending_after(
      seconds, 'the hosts to connect, which all were there'
  ):
    try:
      jax.distributed.initialize(
          seat.address,
          seat.hosts,
          seat.host,
          seat.local_devices,
          cluster_detection_method='deactivate',
      )
    except (RuntimeError, ValueError) as error:
      reason = str(error).strip().split('\n')[0]
      raise InputError(f'the hosts do not find each other: {reason}') from error
  return roll


def find_seat(values, environment, seconds=PATIENCE):
  """Returns the roll_call.Seat of this process; one of one host if alone.

  Args:
    values: the flags of `define_flags`.
    environment: like os.environ.
    seconds: how long to wait for the cluster's answer.
  """
  given = {
      name: values[name].value for name in ('coordinator', 'hosts', 'host')
  }
  missing = [f'--{name}' for name, value in given.items() if value is None]
  if len(missing) == len(given):
    if is_cluster(environment):
      return _ask_cluster(environment, seconds)
    return roll_call.Seat('', 1, 0)
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
  return roll_call.Seat(given['coordinator'], given['hosts'], given['host'])


def check_srun(environment):
  """Raises an InputError where a run would silently be of one host of several.

  Args:
    environment: like os.environ.
  """
  if 'SLURM_STEP_NUM_TASKS' in environment:
    return
  wanted = int(environment.get('SLURM_NTASKS', 1))
  if wanted > 1:
    raise InputError(
        f'you ran on one host of {wanted}: SLURM gave this job {wanted} tasks, '
        'but srun did not start this one: expected `srun python -m ...`'
    )


def is_cluster(environment):
  """Whether JAX can find the hosts of a run by itself.

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


def _ask_cluster(environment, seconds):
  """Returns the Seat that JAX learns from SLURM or the cloud.

  JAX has no public function that returns it without connecting. By itself it gives
  a SLURM task one device even where the task has the whole machine.
  """
  from jax._src import clusters

  try:
    address, hosts, host, devices = (
        clusters.ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, int(seconds)
        )
    )
  except (RuntimeError, OSError, ValueError) as error:
    raise InputError(f'the cluster does not name its hosts: {error}') from error
  if None in (address, hosts, host):  # a TPU without a pod: Colab's
    return roll_call.Seat('', 1, 0)
  tasks = int(environment.get('SLURM_STEP_NUM_TASKS', 1))
  if tasks == int(environment.get('SLURM_STEP_NUM_NODES', 0)):
    devices = None
  return roll_call.Seat(address, hosts, host, devices and tuple(devices))


def keep_stdout():
  """Leaves stdout to Python: what libraries write there goes to stderr.

  Gloo, through which hosts without accelerators talk, says there that it does.
  """
  sys.stdout.flush()
  sys.stdout = open(
      os.dup(1), 'w', encoding=sys.stdout.encoding, errors=sys.stdout.errors
  )
  os.dup2(2, 1)
