"""Keeps the results of evaluations, so that none runs twice.

  WORKDIR/evaluations/NAME-HASH.json

HASH covers everything that the numbers depend on: checkpoints, records,
decoding, metrics. Results of different settings are different files.
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
  """Runs `final_scores.measure_run`, or returns its stored result.

  Args:
    setups, workdir, split: as in `final_scores.measure_run`.
    name: prefix of the file's name.
    overwrite: whether to measure again.
    **options: other arguments of `final_scores.measure_run`.

  Returns:
    The result of `final_scores.measure_run`.
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
  """Returns everything that the numbers depend on, for JSON."""
  last = setups[-1]
  return dict(
      final_scores.dependencies(last, setups, split),
      signatures=metric_table.signatures(
          last.config.eval.metrics, 0, last.config.eval.protocol
      ),
      **options,
  )


def read(path):
  """Returns the results that `measure` wrote, or None.

  A damaged file counts as missing, and this is logged.
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
    collective.log(f'{path}: the file is damaged, measuring again: {error}')
    return None


def _table(found):
  return Table(**dict(found, rows=[Row(**row) for row in found['rows']]))


def _to_json(results):
  """Returns the results of `measure_run` for JSON."""
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
