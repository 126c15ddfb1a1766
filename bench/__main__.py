"""Measures speed and memory by input length.

  python -m bench encode --lengths=16384,65536,262144
  python -m bench encode --lengths=4096 --batch_size=4 --against=longt5,led
  python -m bench train --lengths=1024,4096 --against=longt5 --dtype=bfloat16
  python -m bench pages --config=configs/pagesum.py:arxiv

encode    the whole encoder; of LOCOST also a layer, with kernels computed and
          given; --against: PyTorch's models
generate  samples per second of a whole model that reads an input and writes
          --tokens; --against: PyTorch's models
train     forward pass, and whole step for each train.remat; --against: a step
          of `main` and PyTorch's models
pages     PageSum and SimCAS: reading, selecting and writing

The model is that of --config, with random weights; beams are those of
--config.decode.num_beams. Each length and each compared model is measured in a
separate process, in interleaved rounds; a model that is out of memory is not
tried with longer inputs. A table goes to stdout; raw times (also CPU seconds),
machine and versions go to --output after each length.
"""

import datetime
import json
import os
from pathlib import Path
import platform
import re
import shlex
import sys

from locost_jax.config import speed

if __name__ == '__main__':  # before JAX is imported; subprocesses inherit it
  speed.restart_with_huge_pages()

# pylint: disable=g-import-not-at-top
from bench import peers
from bench import rounds
from bench import workers
from locost_jax.config import commands
from locost_jax.config import tables
from locost_jax.config import versions
from locost_jax.config.progress import Progress
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.files import check_directory
from locost_jax.files import check_regular
from locost_jax.files import write

QUESTIONS = 'encode', 'generate', 'train', 'pages'
DEFAULT_VOCABULARY = 32100  # the paper's
LENGTHS = '1024', '4096', '16384'
# A measured process may take this share of the free memory.
SHARE_OF_MEMORY = 0.9
PACKAGES = 'locost_jax jax jaxlib flax numpy torch transformers'.split()
# Environment variables that change a machine's speed. The allocator's decide
# comparisons with PyTorch.
VARIABLES = 'GLIBC_TUNABLES JAX_PLATFORMS LD_PRELOAD MALLOC_ OMP_ XLA_'.split()


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, 'configs/default.py')
  table = {
      'lengths': f'N,N,...: input lengths in tokens [{",".join(LENGTHS)}]',
      'batch_size': (1, 'documents per batch'),
      'tokens': (
          'tokens to write [pages: 32; generate: config.decode.max_length]; '
          'train: of a target [config.data.max_target_length]'
      ),
      'dtype': (
          'float32',
          'type of matrix products, activations',
          ('float32', 'bfloat16'),
      ),
      'repeats': (5, 'number of rounds; the table shows medians'),
      'seconds': (600.0, 'no round starts after N measured seconds'),
      'memory_limit': (
          'GiB of memory above which a measured process is ended '
          f'[{SHARE_OF_MEMORY:.0%} of the free memory]'
      ),
      'against': (
          [],
          f'NAME,...: PyTorch models to compare with: {", ".join(peers.NAMES)}',
      ),
      'output': ('runs/bench', 'DIR: write QUESTION.json here'),
      'format': ('text', 'format of the result on stdout', commands.FORMATS),
  }
  commands.define(values, table)


def main(values, arguments):
  """Runs the command; `arguments` is one of QUESTIONS."""
  question, lengths = check(values, arguments)
  config, _ = commands.get_config(values)
  config.model.vocab_size = config.model.vocab_size or DEFAULT_VOCABULARY
  from bench import programs  # imports JAX

  programs.check(question, config, lengths)
  check_directory('--output', values.output)
  path = Path(values.output) / f'{question}.json'
  check_regular(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  spec = make_spec(question, values, config)
  progress = Progress(seconds=10.0, at_once=True)
  report = lambda text: progress.write([f'bench {question}: {text}'])
  against = [name + workers.KEPT for name in values.against]
  result = run(spec, lengths, against, path, report)
  progress.wipe()
  print(json.dumps(result) if values.format == 'json' else describe(result))
  print(path, file=sys.stderr)


def check(values, arguments):
  """Returns the question and the lengths; raises an InputError."""
  if len(arguments) != 1 or arguments[0] not in QUESTIONS:
    given = ' '.join(arguments) or 'nothing'
    raise InputError(
        f'bench {given}: expected one of {", ".join(QUESTIONS)}'
        + suggest(given, QUESTIONS)
    )
  (question,) = arguments
  if values.against and question not in rounds.COMPARED:
    raise InputError(f'--against: expected one of {", ".join(rounds.COMPARED)}')
  for name in set(values.against) - set(peers.NAMES):
    expected = ','.join(peers.NAMES)
    raise InputError(f'--against={name}: expected some of {expected}')
  if values.against:
    peers.check()
  given = values.lengths or LENGTHS
  if not all(re.fullmatch('[1-9][0-9]{0,8}', length) for length in given):
    expected = 'expected positive integers, like 1024,4096'
    raise InputError(f'--lengths={",".join(given)}: {expected}')
  return question, sorted(set(map(int, given)))


def make_spec(question, values, config):
  """Returns the settings that all workers share, see `bench.programs`."""
  tokens = {
      'generate': config.decode.max_length,
      'train': config.data.max_target_length,
  }
  limit, free = values.memory_limit, memory.free_host_bytes()
  if limit is None and free is not None:
    limit = SHARE_OF_MEMORY * free / 2**30
  return dict(
      question=question,
      config=config.to_dict(),
      dtype=values.dtype,
      batch_size=values.batch_size,
      tokens=values.tokens or tokens.get(question, 32),
      repeats=values.repeats,
      seconds=values.seconds,
      limit=None if limit is None else int(limit * 2**30),
  )


def run(spec, lengths, against, path, report):
  """Measures all lengths; writes what is known after each group of models.

  Returns:
    The JSON object: question, machine, settings and so on; device; rows, see
    `rounds.measure`; complete.
  """
  now = datetime.datetime.now(datetime.timezone.utc)
  result = dict(
      question=spec['question'],
      date=now.isoformat(timespec='seconds'),
      command_line=shlex.join(['python', '-m', 'bench', *sys.argv[1:]]),
      machine=describe_machine(),
      versions=versions.installed(PACKAGES),
      settings=dict(spec, lengths=lengths),
      device='',
      rows=[],
      complete=False,
  )
  out_of_memory = set()
  for length in lengths:
    say = lambda text, length=length: report(f'{length}: {text}')
    name = spec['config']['model']['name']
    for parts in rounds.groups(spec['question'], name, against):
      rows, device = rounds.measure(
          dict(spec, length=length), parts, out_of_memory, say
      )
      result['rows'] += rows
      result['device'] = result['device'] or device
      write(path, json.dumps(result, indent=1) + '\n')
      if against and device not in ('cpu', ''):
        raise InputError(
            f'--against compares on the CPU, but JAX runs on {device}: set '
            'JAX_PLATFORMS=cpu'
        )
  result['complete'] = True
  write(path, json.dumps(result, indent=1) + '\n')
  return result


def describe_machine():
  """Returns CPU, cores, memory, load and VARIABLES as a dict for JSON."""
  info = Path('/proc/cpuinfo')
  text = info.read_text() if info.exists() else ''
  names = re.findall('^model name\\s*: (.*)', text, re.MULTILINE)
  return dict(
      cpu=(names or [platform.processor() or platform.machine()])[0],
      cores=len(os.sched_getaffinity(0)),
      memory_bytes=memory.host_bytes(),
      load=os.getloadavg()[0],  # before the measurement: was it idle?
      system=f'{platform.system()} {platform.release()}',
      python=platform.python_version(),
      variables={
          key: value
          for key, value in sorted(os.environ.items())
          if key.startswith(tuple(VARIABLES))
      },
  )


def describe(result):
  """Returns a table of all rows, and a line on the machine."""
  machine, settings = result['machine'], result['settings']
  return (
      f'{format_table(result["rows"])}\n{machine["cpu"]}, {machine["cores"]} '
      f'cores, load {machine["load"]:.1f}, {settings["dtype"]}, batch '
      f'{settings["batch_size"]}, medians of up to {settings["repeats"]}'
  )


def format_table(rows):
  """Returns a table of the numbers of dicts, a column per key."""
  keys = dict.fromkeys(key for row in rows for key in row)
  keys = [key for key in keys if not key.endswith('times')]
  cells = [[key.replace('_', ' ') for key in keys]]
  cells += [[_format(key, row.get(key)) for key in keys] for row in rows]
  return '\n'.join(tables.align(cells, left=()))


def _format(key, value):
  if value is None:
    return '-'
  if key.endswith('_bytes'):
    return memory.format_bytes(value)
  return f'{value:.3g}' if isinstance(value, float) else str(value)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
