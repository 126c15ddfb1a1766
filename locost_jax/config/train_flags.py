"""The flags of the main command: values, and what --help says."""

from locost_jax.config import commands
from locost_jax.errors import InputError

# What --expect_NAME=NUMBER counts.
EXPECTED = {
    'hosts': 'hosts in JAX',
    'devices': 'devices in JAX',
    'vocabulary': 'tokens in the vocabulary',
    'files': 'training files',
}
ACTIONS = 'dry_run', 'evaluate', 'preflight'  # instead of training
PREFLIGHT_SECONDS = 60  # time limit of each answer
TRACED_STEPS = 5
_FLAGS = {
    'workdir': (
        'DIR: where the run is stored and resumed, also gs://BUCKET/DIR '
        '[runs/NAME for --config=configs/NAME.py]'
    ),
    'topology': (
        'with --dry_run: compile for devices that are not attached: v5e:4x4, '
        'v5litepod-16 (extra `tpu-aot`), or h100:1x8, hosts x GPUs (extra '
        '`gpu-aot`)'
    ),
    'coordinator': (
        'HOST:PORT: the address of the first of several hosts; not needed on '
        'TPUs and under SLURM'
    ),
    'hosts': 'with --coordinator: number of processes',
    'host': 'with --coordinator: index of this process, from 0',
    'evaluate': (
        False,
        'do not train: evaluate the best checkpoint of the workdir on the test '
        'split, or on validation if there is no test split; on all documents, '
        'unless --config.eval.examples is given',
    ),
    'by_length': (
        False,
        'with --evaluate: add a table of the scores by document length',
    ),
    'dry_run': (
        False,
        'do not train: check everything, compile the train step (with '
        '--evaluate: what writes the summaries of a batch), and print sizes, '
        'FLOPs, memory, and whether it fits',
    ),
    'peak_tflops': (
        'peak TFLOP/s of one device, to log the utilisation [of known devices: '
        'see locost_jax/telemetry/step_times.py]'
    ),
    'format': ('text', 'format of the report on stdout', commands.FORMATS),
    **commands.PROGRAM_CACHE,
    **{
        f'expect_{name}': (
            f'with --preflight: fail unless this is the number of {what}'
        )
        for name, what in EXPECTED.items()
    },
}


def define(values):
  """Defines the flags of this command, except --config."""
  commands.define(values, _FLAGS)
  commands.define_optional_number(
      values,
      'preflight',
      PREFLIGHT_SECONDS,
      'do not train: print hosts, versions, devices and mesh, check everything, '
      'run one all-reduce over all devices, write into the workdir, and report '
      'whatever does not answer within NUMBER seconds',
  )
  commands.define_optional_number(
      values,
      'profile',
      TRACED_STEPS,
      'write a trace of NUMBER steps into WORKDIR/profile',
  )


def expected(values):
  """Returns {name: number or None} of --expect_NAME, for `preflight`."""
  return {name: values[f'expect_{name}'].value for name in EXPECTED}


def check(values):
  """Raises an InputError for flags that do not go together."""
  instead = [f'--{name}' for name in ACTIONS if values[name].value]
  if len(instead) > 1 and instead != ['--dry_run', '--evaluate']:
    raise InputError(f'{" and ".join(instead)}: expected one of them')
  if values.topology and not values.dry_run:
    raise InputError(f'--topology={values.topology} needs --dry_run')
  if values.by_length and not values.evaluate:
    raise InputError('--by_length needs --evaluate')
  if any(expected(values).values()) and not values.preflight:
    raise InputError('--expect_hosts and its like need --preflight')
