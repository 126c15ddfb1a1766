"""Runs a config under several seeds or lengths: mean and spread, or gain.

  python -m papers.seeds --seeds=3 --workdir=runs/s --config=configs/finetune.py
  python -m papers.seeds --seeds=3 --workdir=runs/s \\
      --config=configs/finetune.py --evaluate
  python -m papers.seeds --lengths=4096,8192 --workdir=runs/a --evaluate

Calls `python -m locost_jax.main` with all other flags. Seed S is a run like any
other in WORKDIR/seed-S, with config.train.seed=S (counting from
--config.train.seed); all share the records in WORKDIR/cache. The same command
continues an interrupted sweep.

--lengths evaluates one run at several values of config.data.max_input_length
(LOCOST, table 6), and shows the gain of the mean ROUGE over the first in %.
"""

import argparse
import json
import os
from pathlib import Path
import statistics
import subprocess
import sys

from locost_jax.evaluation.metrics import metric
from locost_jax.runs import final_table

GAIN = metric.Column('gain', 'gain %', 1)
_MEAN = 'rouge_mean'


def main(argv=None):
  """Runs the command; returns its exit status."""
  parser = argparse.ArgumentParser(
      'papers.seeds',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter,
      allow_abbrev=False,
  )
  one_of = parser.add_mutually_exclusive_group(required=True)
  one_of.add_argument('--seeds', type=int, help='number of seeds')
  one_of.add_argument('--lengths', type=_lengths, help='N,N,... tokens')
  parser.add_argument('--workdir', type=Path, required=True)
  parser.add_argument('--config.train.seed', type=int, default=0, dest='first')
  parser.add_argument('--format', choices=('text', 'json'), default='text')
  given, words = parser.parse_known_args(argv)
  if given.lengths:
    if '--evaluate' not in words:
      parser.error('--lengths needs --evaluate')
    flag = '--config.data.max_input_length'
    calls = {
        f'{length:,} tokens': (given.workdir, f'{flag}={length}')
        for length in given.lengths
    }
  else:
    if given.seeds < 1 or (given.workdir / 'config.json').exists():
      parser.error(
          f'--seeds={given.seeds} --workdir={given.workdir}: expected a '
          'number, and a directory without a run of its own'
      )
    calls = {
        f'seed {seed}': (
            _share_cache(given.workdir, seed),
            f'--config.train.seed={seed}',
        )
        for seed in range(given.first, given.first + given.seeds)
    }
  reports = {}
  for name, (workdir, flag) in calls.items():
    print(f'{name}: {workdir}', file=sys.stderr, flush=True)
    command = [sys.executable, '-m', 'locost_jax.main', *words]
    command += [f'--workdir={workdir}', flag, '--format=json']
    done = call(command)
    if done.returncode:
      return done.returncode
    reports[name] = json.loads(done.stdout)
  _print(given, join(reports, add_gains if given.lengths else add_statistics))
  return 0


def call(command):
  """Runs a command whose stdout is kept: a CompletedProcess."""
  return subprocess.run(command, stdout=subprocess.PIPE)


def _print(given, tables):
  if given.format == 'json':
    shown = [final_table.to_json(table) for table in tables]
    print(json.dumps(dict(workdir=str(given.workdir), tables=shown)))
    return
  gain = (GAIN,) if given.lengths else ()
  for table in tables:
    columns = (*final_table.columns_of(tables), *gain)
    print(final_table.format_table(table, columns), end='\n\n')
  if given.seeds:
    print('spread: the sample standard deviation over the seeds (n - 1).')


def _lengths(text):
  lengths = [int(word) for word in text.split(',')]
  if len(set(lengths)) < len(lengths):
    raise ValueError
  return lengths


def _share_cache(workdir, seed):
  """Returns WORKDIR/seed-SEED, whose cache is that of WORKDIR."""
  directory = workdir / f'seed-{seed}'
  directory.mkdir(parents=True, exist_ok=True)
  (workdir / 'cache').mkdir(exist_ok=True)
  if not os.path.lexists(directory / 'cache'):
    (directory / 'cache').symlink_to(os.path.join('..', 'cache'))
  return directory


def join(reports, add):
  """Returns a `final_table.Table` for each task.

  Args:
    reports: {name of a row: JSON report of `main`}.
    add: function (list of Row) -> list of Row.
  """
  tables = []
  for same in zip(*(report['tables'] for report in reports.values())):
    rows = []
    for name, table in zip(reports, same):
      *_, last = (r for r in table['rows'] if r['name'].startswith('after '))
      rows.append(final_table.Row(name, last, is_result=True))
      last.pop('name')
    table = final_table.Table(**dict(same[-1], rows=add(rows)))
    tables.append(table)
  return tables


def add_gains(rows):
  """Returns the rows with the gain of the mean ROUGE over the first row."""
  first = rows[0].metrics.get(_MEAN)
  for row in rows[1:]:
    if first:
      row.metrics[GAIN.key] = 100 * (row.metrics[_MEAN] / first - 1)
  return rows


def add_statistics(rows):
  """Returns the rows, 'mean' and, for two rows or more, 'spread'."""
  keys = [key for key in rows[0].metrics if all(key in r.metrics for r in rows)]
  columns = {key: [row.metrics[key] for row in rows] for key in keys}
  found = {'mean': statistics.mean}
  if len(rows) > 1:
    found['spread'] = statistics.stdev
  return rows + [
      final_table.Row(name, {k: of(x) for k, x in columns.items()}, True)
      for name, of in found.items()
  ]


if __name__ == '__main__':
  sys.exit(main())
