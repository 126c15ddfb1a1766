"""Runs one config under several seeds, and reports mean and spread.

WORKDIR/seed-N is a separate run with config.train.seed=N; all share the records
in WORKDIR/cache. The same command continues an interrupted sweep and skips
seeds that were trained and measured. Commands that read WORKDIR use its best
seed (`workdir.find`).
"""

import copy
import json
import math
from pathlib import Path

from locost_jax.errors import InputError
from locost_jax.hosts import collective
from locost_jax.runs import final_table
from locost_jax.runs.final_table import Row
from locost_jax.values import directories
from locost_jax.values import ranges
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib

_NOTE = """\
seed N: the run in the directory seed-N, with config.train.seed=N.
spread: the sample standard deviation over the seeds (n - 1)."""


def run(config, overrides, workdir, count, run_one):
  """Runs a config under several seeds, one after the other.

  Args:
    config: the whole config; the first seed is its train.seed.
    overrides: what the command line set, see `phases.make_phases`.
    workdir: WORKDIR.
    count: number of seeds.
    run_one: (config, phases, directory) -> the result of
      `final_scores.measure_run`.

  Returns:
    dict of the arguments of `format_text`.

  Raises:
    InputError: WORKDIR holds a single run, or as in `run_one`.
  """
  directories.check('--workdir', workdir)
  if phases_lib.read_config(workdir) is not None:
    raise InputError(
        f'{workdir} holds one run, not those of --seeds: use another --workdir'
    )
  seeds = range(config.train.seed, config.train.seed + count)
  ranges.check_section('train', {'seed': seeds[-1]})
  found = {}
  for number, seed in enumerate(seeds, start=1):
    own, directory = copy.deepcopy(config), Path(workdir) / f'seed-{seed}'
    own.train.seed = seed
    phases = phases_lib.make_phases(
        own, {**overrides, 'train.seed': seed}, directory
    )
    collective.log(f'seed {seed}, {number} of {count}: {directory}')
    found[seed] = run_one(own, phases, directory)
  return dict(
      tables=_join(found), workdir=str(workdir), best=find.best_seed(workdir)
  )


def _join(found):
  """Returns a table for each task: a row for each seed, mean and spread.

  Args:
    found: {seed: result of `final_scores.measure_run`}.
  """
  rows, tables = {}, {}
  for seed, results in found.items():
    for table in results['tables']:
      key = table.task, table.split
      row = [row for row in table.rows if row.is_result][-1]
      name = f'seed {seed}: {row.name}'
      rows.setdefault(key, []).append(row._replace(name=name))
      tables[key] = table
  return [
      tables[key]._replace(rows=rows[key] + statistics(rows[key]))
      for key in tables
  ]


def statistics(rows):
  """Returns the rows 'mean' and, for two rows or more, 'spread'.

  Metrics that are missing from a row are left out.

  Args:
    rows: list of final_table.Row.
  """
  mean, spread = {}, {}
  for key in rows[0].metrics:
    values = [row.metrics[key] for row in rows if key in row.metrics]
    n = len(values)
    if n < len(rows):
      continue
    mean[key] = sum(values) / n
    if n > 1:
      squares = sum((value - mean[key]) ** 2 for value in values)
      spread[key] = math.sqrt(squares / (n - 1))
  found = [Row('mean', mean, is_baseline=True)]
  return found + ([Row('spread', spread, is_baseline=True)] if spread else [])


def format_text(tables, workdir, best):
  """Returns the report as text.

  Args:
    tables: list of final_table.Table.
    workdir: WORKDIR.
    best: the directory of the best seed.
  """
  columns = final_table.columns_of(tables)
  return '\n\n'.join(
      [
          *(final_table.format_table(table, columns) for table in tables),
          _NOTE,
          f'The best seed is {best}. Try it on a text of your own:\n'
          f'  python -m locost_jax.summarize --checkpoint={workdir} FILE',
      ]
  )


def format_json(tables, workdir, best):
  """Returns the same report as one JSON object."""
  shown = [final_table.to_json(table) for table in tables]
  return json.dumps(dict(workdir=workdir, best=str(best), tables=shown))
