"""Measures speed and memory against length.

  python -m locost_jax.bench kernel --lengths=4096,16384
  python -m locost_jax.bench encode --lengths=16384,65536,262144
  python -m locost_jax.bench encode --lengths=4096 --batch_size=4 \\
      --against=longt5,led
  python -m locost_jax.bench decode --lengths=16384 --dtype=bfloat16
  python -m locost_jax.bench train --lengths=1024,4096 --against=longt5
  python -m locost_jax.bench run --lengths=16384 --dtype=bfloat16
  python -m locost_jax.bench cost --lengths=600000 --price_per_hour=0.40
  python -m locost_jax.bench gsg

kernel   the kernels of one layer: two-level product, materialised array
encode   one encoder layer: kernels made, kernels given, its matrix products
         alone; then the whole encoder, each form in a process of its own, and
         with --against PyTorch's models beside it
decode   time to the first token, time per token, bytes kept of the input
train    forward pass and whole step, by what is kept for the backward pass;
         an encoder layer, forward and backward: as its equations read, as
         the model has it as a whole, and in pieces; with --against a step as
         `main` takes it, and PyTorch's models beside it
run      a whole run: the step that saves beside an ordinary one, waiting for
         data, and from the start of a process to going on after a checkpoint
cost     seconds, joules where they can be read, money of one document
gsg      gap sentences of documents of --lengths words, per core, beside
         rouge_score

The weights are random, of --config's model; with --config.decode.num_beams=4
decode and cost write with beams. Each length is measured in a process of its
own; what is compared takes turns. A table goes to stdout, with raw times,
machine and versions as JSON, and a picture, to --output.
"""

import datetime
import json
import os
import shlex
import sys

from locost_jax import allocator

if __name__ == '__main__':  # before JAX is imported; its children inherit it
  allocator.restart_with_huge_pages()

# pylint: disable=g-import-not-at-top
from absl import flags

from locost_jax import commands
from locost_jax import memory
from locost_jax.benchmarks import contest
from locost_jax.benchmarks import measure
from locost_jax.benchmarks import peers
from locost_jax.benchmarks import processes
from locost_jax.benchmarks import tables
from locost_jax.benchmarks import whole_run
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.progress import Line
from locost_jax.workdir import write

COMMANDS = ('kernel', 'encode', 'decode', 'train', 'run', 'cost', 'gsg')
DEFAULT_CONFIG = 'configs/default.py'
DEFAULT_VOCABULARY = 32100  # the paper's
DECODE_TOKENS = 32
LENGTHS = ('1024', '4096', '16384')
WORDS = ('400', '5000')  # of a page of C4, of a long document
# Of the memory that is available, what a measured process may take.
SHARE_OF_MEMORY = 0.9
UNITS = {'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, DEFAULT_CONFIG)
  flags.DEFINE_list(
      'lengths', None, 'input lengths in tokens, shortest first '
      f'[{",".join(LENGTHS)}]; gsg: in words [{",".join(WORDS)}]',
      flag_values=values)
  flags.DEFINE_list(
      'against', [], 'encode, train: PyTorch models measured beside ours: '
      f'{", ".join(peers.NAMES)}', flag_values=values)
  flags.DEFINE_bool(
      'longest', False, 'encode, train: also look for the longest input of '
      'every model within --memory_limit', flag_values=values)
  flags.DEFINE_string(
      'memory_limit', None, 'most memory of a measured process, like 8GiB; one '
      f'that needs more is ended [{SHARE_OF_MEMORY:.0%} of what is available]',
      flag_values=values)
  flags.DEFINE_integer(
      'repeats', 5, 'rounds that count; medians are told', lower_bound=1,
      flag_values=values)
  flags.DEFINE_float(
      'seconds', 600.0, 'no new round of a comparison after that many seconds',
      lower_bound=0, flag_values=values)
  flags.DEFINE_integer(
      'batch_size', 1, 'documents at once', lower_bound=1, flag_values=values)
  flags.DEFINE_integer(
      'tokens', None, f'tokens written; decode [{DECODE_TOKENS}], cost '
      '[config.decode.max_length]; of a target, train '
      '[config.data.max_target_length]', lower_bound=1, flag_values=values)
  flags.DEFINE_enum(
      'dtype', 'float32', ['float32', 'bfloat16'], 'of matrix products and '
      'activations', flag_values=values)
  flags.DEFINE_integer(
      'seed', 0, 'of weights and inputs', flag_values=values)
  flags.DEFINE_float(
      'price_per_hour', None, 'cost: of the machine', lower_bound=0,
      flag_values=values)
  flags.DEFINE_float(
      'price_per_kwh', None, 'cost: of energy', lower_bound=0,
      flag_values=values)
  flags.DEFINE_float(
      'carbon_intensity', None, 'cost: grams of CO2 per kWh', lower_bound=0,
      flag_values=values)
  flags.DEFINE_string(
      'output', 'runs/bench', 'DIR for COMMAND.json and COMMAND.png',
      flag_values=values)
  flags.DEFINE_enum(
      'format', 'text', ['text', 'json'], 'what goes to stdout',
      flag_values=values)


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: one of COMMANDS.
  """
  command = _check(values, arguments)
  spec, lengths = make_spec(command, values), _lengths(
      values.lengths or (WORDS if command == 'gsg' else LENGTHS))
  os.makedirs(values.output, exist_ok=True)
  line = Line(seconds=10.0, at_once=True)
  tell = lambda text: line.show([f'bench {command}: {text}'])
  result = dict(
      command=command, date=datetime.datetime.now(
          datetime.timezone.utc).isoformat(timespec='seconds'),
      command_line=shlex.join(
          ['python', '-m', 'locost_jax.bench', *sys.argv[1:]]),
      machine=measure.describe_machine(), versions=measure.versions(),
      settings=dict(spec, lengths=lengths), device='', rows=[])
  what = 'layer' if command == 'encode' else command
  for length in lengths:
    row = measure_row(dict(spec, what=what, length=length))
    result['rows'].append(row)
    if row.get('memory_ended'):
      break
    result['device'] = row['device']
    if values.against and row['platform'] != 'cpu':
      raise InputError(f'--against compares on the CPU, and JAX is on '
                       f'{row["device"]}: set JAX_PLATFORMS=cpu')
  names, ended = contest.subjects(spec, values.against), {}
  if command == 'encode' or values.against:
    result['contest'] = [
        row for length in lengths
        for row in contest.compare_all(spec, names, length, ended, tell)]
  if values.longest:
    result['longest'] = [
        contest.find_longest(spec, name, lengths[0], tell)
        for name in names if name != contest.KEPT]
  result['growth'] = {
      heading: {title: tables.grow(rows, path) for title, path, unit in columns
                if unit == 's'}
      for heading, columns, rows in tables.tables(result)}
  line.wipe()
  save(result, values.output)
  if values.format == 'json':
    print(json.dumps(result))
  else:
    print(tables.text(result), end='')


def _check(values, arguments):
  """Returns the command. Raises InputError for what cannot be."""
  if len(arguments) != 1 or arguments[0] not in COMMANDS:
    given = ' '.join(arguments) or 'nothing'
    hint = suggest(given, COMMANDS)
    raise InputError(f'bench {given}: expected one of '
                     f'{", ".join(COMMANDS)}{hint}')
  command, = arguments
  for name in values.against:
    if name not in peers.NAMES:
      raise InputError(f'--against={name}: expected some of '
                       f'{",".join(peers.NAMES)}')
  if command not in ('encode', 'train'):
    for flag in ('against', 'longest'):
      if values[flag].value:
        raise InputError(
            f'--{flag} belongs to encode and train, not to {command}')
  if values.against:
    peers.check()
  if command != 'cost':
    for flag in ('price_per_hour', 'price_per_kwh', 'carbon_intensity'):
      if values[flag].value is not None:
        raise InputError(f'--{flag} belongs to cost, not to {command}')
  if os.path.exists(values.output) and not os.path.isdir(values.output):
    raise InputError(f'--output={values.output}: is a file, expected a '
                     'directory')
  return command


def _lengths(given):
  try:
    lengths = sorted({int(length) for length in given})
  except ValueError:
    lengths = []
  if not lengths or lengths[0] < 1:
    raise InputError(f'--lengths={",".join(given)}: expected positive '
                     'integers, like 1024,4096')
  return lengths


def make_spec(command, values):
  """What every measuring process is told, but for `what` and the length."""
  config, _ = commands.get_config(values)
  config.model.vocab_size = config.model.vocab_size or DEFAULT_VOCABULARY
  tokens = values.tokens or {
      'decode': DECODE_TOKENS, 'cost': config.decode.max_length,
  }.get(command, config.data.max_target_length)
  return dict(
      learns=command == 'train', model=config.model.to_dict(),
      optim=config.optim.to_dict(),
      dtype=values.dtype, seed=values.seed, batch_size=values.batch_size,
      tokens=tokens, num_beams=config.decode.num_beams,
      repeats=values.repeats, seconds=values.seconds,
      limit=_limit(values.memory_limit),
      prices=dict(per_hour=values.price_per_hour,
                  per_kwh=values.price_per_kwh,
                  carbon_intensity=values.carbon_intensity),
      **(dict(config=config.to_dict(), directory=values.output)
         if command == 'run' else {}))


def _limit(given):
  """'8GiB' -> bytes; None: a share of what is available, if that is known."""
  if given is None:
    available = memory.free_host_bytes()
    return None if available is None else int(SHARE_OF_MEMORY * available)
  try:
    return int(float(given[:-3]) * UNITS[given[-3:]])
  except (ValueError, KeyError):
    raise InputError(f'--memory_limit={given}: expected a number with KiB, MiB '
                     'or GiB, like 8GiB') from None


def measure_row(spec):
  """Measures one row in a process of its own, a run in two."""
  try:
    if spec['what'] == 'run':
      return dict(whole_run.measure_run(spec), length=spec['length'])
    with processes.Process(spec, spec['limit']) as process:
      row = process.ask()
  except processes.MemoryEnded as error:
    row = dict(memory_ended=True, peak_bytes=error.held)
  return dict(row, length=spec['length'])


def save(result, directory):
  """Writes COMMAND.json and, where matplotlib is installed, COMMAND.png."""
  path = os.path.join(directory, result['command'])
  write(f'{path}.json', json.dumps(result, indent=1) + '\n')
  try:
    tables.draw(result, f'{path}.png')
  except ImportError:
    print("no picture: matplotlib is not installed: pip install "
          "'locost_jax[plot]'", file=sys.stderr)
    return
  print(f'{path}.json, {path}.png', file=sys.stderr)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
