"""Turns bench's flags into specs, the settings of the worker processes.

A spec is a JSON object. `make_spec` makes the fields that all measurements of a
call share; each measurement adds `what` and `length`:

  learns                   whether train steps are compared
  writes                   whether whole models are compared
  model, optim             config.model and config.optim, as dicts
  dtype, seed, batch_size
  tokens                   to generate, or of a target
  page_length              for `pages`, `select` and `turn` only
  num_beams
  repeats, seconds         counted rounds; no new round starts after this time
  limit                    most bytes of a worker process; None: no limit
  prices                   dict(per_hour, per_kwh, carbon_intensity)
  config, directory        the whole config, and --output; for `run` and `turn`
                           only
"""

import os

from locost_jax.benchmarks import peers
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.errors import suggest

COMMANDS = (
    'kernel',
    'encode',
    'decode',
    'generate',
    'train',
    'run',
    'cost',
    'gsg',
    'pages',
    'select',
    'turn',
)
# The commands that can compare models.
COMPARES = ('encode', 'generate', 'train')
DEFAULT_VOCABULARY = 32100  # the paper's
DECODE_TOKENS = 32
LENGTHS = ('1024', '4096', '16384')
WORDS = ('400', '5000')  # a page of C4, a long document
# A measured process may take this share of the free memory.
SHARE_OF_MEMORY = 0.9
UNITS = {'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}


def check(values, arguments):
  """Checks flags and arguments.

  Args:
    values: the flags.
    arguments: the other arguments of the command line.

  Returns:
    The command, one of COMMANDS.

  Raises:
    InputError: an unknown command, flags of another command, or --output is a
      file.
  """
  if len(arguments) != 1 or arguments[0] not in COMMANDS:
    given = ' '.join(arguments) or 'nothing'
    hint = suggest(given, COMMANDS)
    raise InputError(
        f'bench {given}: expected one of {", ".join(COMMANDS)}{hint}'
    )
  (command,) = arguments
  for name in values.against:
    if name not in peers.NAMES:
      raise InputError(
          f'--against={name}: expected some of {",".join(peers.NAMES)}'
      )
  if command not in COMPARES:
    for flag in ('against', 'longest'):
      if values[flag].value:
        raise InputError(
            f'--{flag} belongs to {", ".join(COMPARES)}, not to {command}'
        )
  if values.against:
    peers.check()
  if command != 'cost':
    for flag in ('price_per_hour', 'price_per_kwh', 'carbon_intensity'):
      if values[flag].value is not None:
        raise InputError(f'--{flag} belongs to cost, not to {command}')
  if os.path.exists(values.output) and not os.path.isdir(values.output):
    raise InputError(
        f'--output={values.output}: is a file, expected a directory'
    )
  return command


def make_spec(command, values, config):
  """Makes the spec of a command, without `what` and `length`.

  Args:
    command: one of COMMANDS.
    values: the flags.
    config: the whole config; a missing vocabulary size is filled in.
  """
  config.model.vocab_size = config.model.vocab_size or DEFAULT_VOCABULARY
  tokens = values.tokens or {
      'decode': DECODE_TOKENS,
      'pages': DECODE_TOKENS,
      'select': DECODE_TOKENS,
      'generate': config.decode.max_length,
      'cost': config.decode.max_length,
  }.get(command, config.data.max_target_length)
  spec = dict(
      learns=command == 'train',
      writes=command == 'generate',
      model=config.model.to_dict(),
      optim=config.optim.to_dict(),
      dtype=values.dtype,
      seed=values.seed,
      batch_size=values.batch_size,
      tokens=tokens,
      num_beams=config.decode.num_beams,
      repeats=values.repeats,
      seconds=values.seconds,
      limit=_read_limit(values.memory_limit),
      prices=dict(
          per_hour=values.price_per_hour,
          per_kwh=values.price_per_kwh,
          carbon_intensity=values.carbon_intensity,
      ),
  )
  if command in ('pages', 'select', 'turn'):
    spec['page_length'] = config.data.page_length
  if command in ('run', 'turn'):
    spec |= dict(config=config.to_dict(), directory=values.output)
  return spec


def _read_limit(given):
  """Converts '8GiB' to bytes; None: a share of free memory, None if unknown."""
  if given is None:
    available = memory.free_host_bytes()
    return None if available is None else int(SHARE_OF_MEMORY * available)
  return int(float(given[:-3]) * UNITS[given[-3:]])


def read_lengths(command, given):
  """Returns the lengths to measure, shortest first.

  Args:
    command: one of COMMANDS.
    given: --lengths, a list of str; None or []: the command's default.

  Raises:
    InputError: a length is not a positive integer.
  """
  given = given or (WORDS if command == 'gsg' else LENGTHS)
  try:
    lengths = sorted({int(length) for length in given})
  except ValueError:
    lengths = []
  if not lengths or lengths[0] < 1:
    raise InputError(
        f'--lengths={",".join(given)}: expected positive '
        'integers, like 1024,4096'
    )
  return lengths
