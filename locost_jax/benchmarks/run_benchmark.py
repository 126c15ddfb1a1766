"""Runs one command of bench: each length in a process of its own."""

import datetime
import json
import os
import shlex
import sys

from locost_jax.benchmarks import compare_models
from locost_jax.benchmarks import machine
from locost_jax.benchmarks import picture
from locost_jax.benchmarks import processes
from locost_jax.benchmarks import tables
from locost_jax.benchmarks import whole_run
from locost_jax.command_line import pictures
from locost_jax.errors import InputError
from locost_jax.files import write


def run(command, spec, lengths, peers, with_longest, report):
  """Runs a command.

  Args:
    command: one of `spec.COMMANDS`.
    spec: from `spec.make_spec`.
    lengths: in tokens (gsg: in words), shortest first.
    peers: some of `peers.NAMES`, the models to compare ours with.
    with_longest: whether to find the longest input of every model.
    report: function (line) that shows progress.

  Returns:
    dict for COMMAND.json: command, date, machine, settings and so on; rows, one
    per length; contest, the rows of the compared models; longest; growth.

  Raises:
    InputError: a worker raised one, or peers are compared on an accelerator.
  """
  result = dict(
      command=command,
      date=datetime.datetime.now(datetime.timezone.utc).isoformat(
          timespec='seconds'
      ),
      command_line=shlex.join(
          ['python', '-m', 'locost_jax.bench', *sys.argv[1:]]
      ),
      machine=machine.describe_machine(),
      versions=machine.versions(),
      settings=dict(spec, lengths=lengths),
      device='',
      rows=[],
  )
  _measure_rows(result, spec, lengths, peers)
  names, out_of_memory = compare_models.names_of(spec, peers), {}
  if command == 'encode' or peers:
    result['contest'] = [
        row
        for length in lengths
        for row in compare_models.compare_all(
            spec, names, length, out_of_memory, report
        )
    ]
  if with_longest:
    result['longest'] = [
        compare_models.find_longest(spec, name, lengths[0], report)
        for name in names
        if name != compare_models.KERNELS_KEPT
    ]
  result['growth'] = tables.all_growth(result)
  return result


def _measure_rows(result, spec, lengths, peers):
  """Adds rows and device to result; stops at the first out-of-memory length."""
  command = result['command']
  what = 'layer' if command == 'encode' else command
  for length in lengths:
    row = measure_row(dict(spec, what=what, length=length))
    result['rows'].append(row)
    if row.get('memory_ended'):
      break
    result['device'] = row['device']
    if peers and row['platform'] != 'cpu':
      raise InputError(
          f'--against compares on the CPU, but JAX runs on '
          f'{row["device"]}: set JAX_PLATFORMS=cpu'
      )


def measure_row(spec):
  """Measures one row in a process of its own; 'run' takes two processes."""
  try:
    if spec['what'] == 'run':
      return dict(whole_run.measure_run(spec), length=spec['length'])
    with processes.WorkerProcess(spec, spec['limit']) as worker:
      row = worker.measure()
  except processes.OutOfMemory as error:
    row = dict(memory_ended=True, peak_bytes=error.held)
  return dict(row, length=spec['length'])


def save(result, directory):
  """Writes COMMAND.json and, if matplotlib is installed, COMMAND.png."""
  path = os.path.join(directory, result['command'])
  write(f'{path}.json', json.dumps(result, indent=1) + '\n')
  if pictures.draw(picture.draw, result, f'{path}.png'):
    print(f'{path}.json, {path}.png', file=sys.stderr)
