"""Keeps the results of evaluations, so that none is done twice.

  WORKDIR/evaluations/NAME-HASH.json

HASH is of everything that makes the numbers: checkpoints, records, decoding,
metrics. Results of other settings lie next to each other.
"""

import hashlib
import json

from locost_jax import files
from locost_jax import untrusted
from locost_jax.errors import InputError
from locost_jax.evaluation import metric_table
from locost_jax.hosts import collective
from locost_jax.runs import final_scores
from locost_jax.runs.final_table import Example
from locost_jax.runs.final_table import Row
from locost_jax.runs.final_table import Table

_TABLES = 'tables', 'by_length'


def measure(setups, workdir, split, name, overwrite=False, **options):
  """Does `final_scores.measure_run`, or returns what it gave before.

  Args:
    setups, workdir, split: as there.
    name: the beginning of the file's name.
    overwrite: whether to measure again.
    **options: its other arguments.
  """
  key = _key(setups, split, options)
  text = json.dumps(key, sort_keys=True)
  digest = hashlib.sha256(text.encode()).hexdigest()[:12]
  path = setups[-1].directory / 'evaluations' / f'{name}-{digest}.json'
  found = None if overwrite else read(path)
  if all(collective.gather_rows([found is not None])):
    collective.log(f'measured before ({path})')
    return found | {'workdir': str(workdir)}
  results = final_scores.measure_run(setups, workdir, split, **options)
  if collective.is_first_host():
    files.write(path, json.dumps({'key': key, **_to_json(results)}) + '\n')
  return results


def _key(setups, split, options):
  """All that the numbers depend on, as JSON has it."""
  last = setups[-1]
  return dict(
      final_scores.dependencies(last, setups, split),
      signatures=metric_table.signatures(last.config.eval.metrics, 0),
      **options,
  )


def read(path):
  """Returns the results that `measure` wrote, or None.

  A damaged file counts as missing, and a line says so.
  """
  try:
    found = untrusted.read_object(path)
    results = {
        name: [_table(table) for table in found[name]] for name in _TABLES
    }
    results['examples'] = [Example(**row) for row in found['examples']]
    return results | {'step': int(found['step'])}
  except FileNotFoundError:
    return None
  except (InputError, KeyError, TypeError, ValueError) as error:
    collective.log(f'{path}: measured again, as the file is damaged: {error}')
    return None


def _table(found):
  return Table(**dict(found, rows=[Row(**row) for row in found['rows']]))


def _to_json(results):
  """The results of `measure_run` as JSON has them."""
  return dict(
      {
          name: [
              dict(table._asdict(), rows=[row._asdict() for row in table.rows])
              for table in results[name]
          ]
          for name in _TABLES
      },
      examples=[example._asdict() for example in results['examples']],
      step=results['step'],
  )
