"""Checks and measurements that need a GPU, in parts of at most 9 minutes.

  python -m tests.on_gpu golden speed memory --output=DIR
  python -m tests.on_gpu table DIR

golden          the arrays of tests/golden in float32, with products of highest
                precision: the largest difference of each, and the tolerance
                that the tests on a CPU have
speed           base models in bfloat16 at 4K and 16K tokens: encoding, writing
                128 tokens, a train step (LOCOST, table 4)
speed_no_triton the same without XLA's products by Triton
memory          peak of an encoder from 1K to 500K tokens (LOCOST, figure 4),
                and what the compiler says
book            600,000 tokens in one pass, and 64 tokens written
resume          a run that is killed at random steps has the parameters of an
                unbroken one, bit for bit

A peak is that of a process so far, in the order of the rows. Each part writes
DIR/PART.json, and what its processes print to DIR/PART.log. A failed row has an
error; then the status is 1. `table` prints what DIR has as Markdown. --tiny:
tiny models and short inputs, to rehearse on a CPU.

Needs no pytest. This process does not import JAX: each job has its own process,
its XLA_FLAGS and the whole memory of the device.
"""

import argparse
import datetime
import json
import os
from pathlib import Path
import shlex
import signal
import subprocess
import sys
import time

from bench import __main__ as bench
from locost_jax.devices import memory
from locost_jax.files import write

ROOT = Path(__file__).parents[2]
SECONDS = 540  # of a part
PARTS = 'golden', 'speed', 'speed_no_triton', 'memory', 'book', 'resume'
NO_TRITON = '--xla_gpu_enable_triton_gemm=false'
DETERMINISTIC = '--xla_gpu_deterministic_ops=true'
# Lengths of --tiny.
TINY = {4096: 64, 65536: 192, 500_000: 256, 600_000: 512}
MEMORY = {
    'locost': (1024, 4096, 16384, 65536, 262_144, 500_000),
    'longt5': (1024, 4096, 16384, 65536),
}
# {key of a row: (heading of the table, function to text)}
COLUMNS = {
    'seconds': ('seconds', '{:.3g}'.format),
    'tokens_per_second': ('tokens/s', '{:,.0f}'.format),
    'samples_per_second': ('documents/s', '{:.3g}'.format),
    'peak_bytes': ('peak', memory.format_bytes),
    'compiled_bytes': ('compiler', memory.format_bytes),
    'difference': ('difference', '{:.2g}'.format),
    'tolerance': ('tolerance', '{:.2g}'.format),
    'error': ('failed', lambda text: text.replace('|', '\\|')),
}


def plan(part, tiny):
  """Returns the jobs of a part: dicts that `tests.on_gpu.KIND` gets."""
  size = lambda length: TINY.get(length, 32) if tiny else length
  common = dict(kind='measure', part=part, flags='', tiny=tiny)
  if part == 'golden':
    return [dict(common, kind=part, name=part)]
  if part == 'resume':
    return [
        dict(common, kind=part, name=name, flags=flags)
        for name, flags in (('', ''), ('deterministic, ', DETERMINISTIC))
    ]
  if part == 'memory':
    return [
        _job(common, model, size(length), 'encode')
        for model, lengths in MEMORY.items()
        for length in (lengths[:1] + lengths[-1:] if tiny else lengths)
    ]
  if part == 'book':
    return [_job(common, 'locost', size(600_000), 'generate', tokens=64)]
  models = 'locost', 'longt5'
  if part == 'speed_no_triton':
    common['flags'], models = NO_TRITON, models[: 1 if tiny else 2]
  return [
      _job(common, model, size(length), 'encode', 'generate', 'train')
      | dict(batch_size=2, repeats=5)
      for model in models
      for length in ((4096,) if tiny else (4096, 16384))
  ]


def _job(common, model, length, *questions, tokens=128):
  settings = dict(questions=questions, tokens=tokens, batch_size=1, repeats=1)
  name = f'{model} {length:,}'
  return dict(common, **settings, name=name, model=model, length=length)


def run_job(job, directory, seconds):
  """Runs a job in a process of its own; returns its rows."""
  path, log = (directory / f'{job["part"]}.{x}' for x in ('rows', 'log'))
  path.write_text('')
  flags = f'{os.environ.get("XLA_FLAGS", "")} {job["flags"]}'.strip()
  paths = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
  changed = dict(XLA_FLAGS=flags, LOCOST_JAX_CACHE='off', PYTHONPATH=paths)
  command = [sys.executable, '-m', f'tests.on_gpu.{job["kind"]}']
  command += [json.dumps(job), path]
  with open(log, 'a', encoding='utf-8') as output:
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | changed,
        stdout=output,
        stderr=output,
        start_new_session=True,  # with its own processes, to end all
    )
    try:
      problem = process.wait(max(seconds, 0.01)) and f'status {process.poll()}'
    except subprocess.TimeoutExpired:
      problem = f'ended after {seconds:.0f} seconds'
    finally:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  path.unlink()
  if problem:
    last = (log.read_text(encoding='utf-8').strip().splitlines() or [''])[-1]
    rows.append(dict(name=job['name'], error=f'{problem}: {last}'))
  return rows


def run_part(part, directory, tiny):
  """Runs the jobs of a part, writing its file after each; returns the file."""
  end = time.monotonic() + SECONDS
  now = datetime.datetime.now(datetime.timezone.utc)
  result = dict(
      part=part,
      date=now.isoformat(timespec='seconds'),
      command=shlex.join(['python', '-m', 'tests.on_gpu', *sys.argv[1:]]),
      machine=bench.describe_machine(),
      device='',
      jax='',
      rows=[],
  )
  (directory / f'{part}.log').write_text('')
  for job in plan(part, tiny):
    for row in run_job(job, directory, end - time.monotonic()):
      result |= {key: row.pop(key) for key in ('device', 'jax') if key in row}
      result['rows'].append(row)
      if 'error' in row:
        print(f'{part}: {row["name"]}: {row["error"]}', file=sys.stderr)
    write(directory / f'{part}.json', json.dumps(result, indent=1) + '\n')
  return result


def make_table(directory):
  """Returns the rows of all parts as Markdown; of golden, the worst of each."""
  titles = ['part', 'row', *(title for title, _ in COLUMNS.values())]
  cells, devices = [titles, ['---'] * len(titles)], {}
  for part in PARTS:
    path = directory / f'{part}.json'
    if not path.exists():
      continue
    found = json.loads(path.read_text(encoding='utf-8'))
    about = f'{found["device"]}, jax {found["jax"]}, {found["date"][:10]}'
    devices.setdefault(about, []).append(part)
    rows = found['rows']
    if part == 'golden':
      worst = {}
      for row in rows:
        key = row['name'].partition(':')[0]
        worst[key] = max(worst.get(key, row), row, key=_badness)
      rows = worst.values()
    for row in rows:
      values = (
          form(row[key]) if key in row else ''
          for key, (_, form) in COLUMNS.items()
      )
      cells.append([part, row['name'], *values])
  about = '\n'.join(f'{", ".join(x)}: {key}' for key, x in devices.items())
  return '\n'.join(f'| {" | ".join(row)} |' for row in cells) + f'\n\n{about}'


def _badness(row):
  share = row.get('difference', 0) / (row.get('tolerance') or 1)
  return 'error' in row, share


def main():
  """Returns the exit status."""
  parser = argparse.ArgumentParser(
      prog='python -m tests.on_gpu',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('parts', nargs='+', metavar='PART | table DIR')
  parser.add_argument('--output', type=Path, help='DIR')
  parser.add_argument('--tiny', action='store_true')
  given = parser.parse_args()
  if given.parts[0] == 'table' and len(given.parts) == 2:
    print(make_table(Path(given.parts[1])))
    return 0
  if unknown := set(given.parts) - set(PARTS):
    parser.error(f'{", ".join(unknown)}: expected some of {", ".join(PARTS)}')
  if not given.output:
    parser.error('expected --output=DIR')
  given.output.mkdir(parents=True, exist_ok=True)
  results = [run_part(part, given.output, given.tiny) for part in given.parts]
  return int(any('error' in row for found in results for row in found['rows']))


if __name__ == '__main__':
  sys.exit(main())
