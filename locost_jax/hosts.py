"""Several processes, one run: they find each other before any device is used.

The same command runs on every host. On Cloud TPUs and in steps of SLURM
(`srun`) that is all; elsewhere each is told where the first one listens:

  python -m locost_jax.main --config=FILE --coordinator=HOST:PORT \\
      --hosts=2 --host=0        # and on the other machine --host=1

Every host reads its own rows of each batch; WORKDIR must be one directory that
all of them see.
"""

import glob
import importlib.util
import os

from absl import flags
import jax

from locost_jax.errors import InputError


def define_flags(values):
  """Defines --coordinator, --hosts and --host."""
  flags.DEFINE_string(
      'coordinator', None, 'HOST:PORT at which the first of several hosts '
      'listens; not needed on TPUs and under SLURM', flag_values=values)
  flags.DEFINE_integer(
      'hosts', None, 'how many processes take part, with --coordinator',
      lower_bound=1, flag_values=values)
  flags.DEFINE_integer(
      'host', None, 'which of them this is, from 0 on', lower_bound=0,
      flag_values=values)


def connect(values):
  """Waits for the other hosts, if there are any.

  Args:
    values: the flags of `define_flags`.

  Raises:
    InputError: a flag is missing or wrong, or a host does not come.
  """
  given = {name: values[name].value
           for name in ('coordinator', 'hosts', 'host')}
  missing = [f'--{name}' for name, value in given.items() if value is None]
  if len(missing) == len(given):
    if not is_cluster(os.environ):
      return
    arguments = {}
  elif missing:
    raise InputError('--coordinator, --hosts and --host belong together: '
                     f'{" and ".join(missing)} missing')
  else:
    if given['host'] >= given['hosts']:
      raise InputError(f'--host={given["host"]}: expected less than '
                       f'--hosts={given["hosts"]}')
    arguments = dict(coordinator_address=given['coordinator'],
                     num_processes=given['hosts'], process_id=given['host'])
  try:
    jax.distributed.initialize(**arguments)
  except (RuntimeError, ValueError) as error:
    reason = str(error).strip().split('\n')[0]
    raise InputError(f'the hosts do not find each other: {reason}') from error


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
      glob.glob('/dev/accel*') or glob.glob('/dev/vfio/*'))
