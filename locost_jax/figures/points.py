"""Reads the points of a picture that compares models, from JSON lines or runs.

A row of a file is a point with the fields that the picture needs
(docs/pictures.md). A WORKDIR gives a row for each of its tasks:

  model     config.model.name
  data      the task
  length    config.data.max_input_length
  examples  config.data.train_examples; missing if it is 0, all examples
  score     ROUGE of the best checkpoint's predictions, with low and high, the
            ends of its interval
"""

import os

from locost_jax import untrusted
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import protocols
from locost_jax.figures import finished_runs

NUMBERS = (
    'length',
    'examples',
    'score',
    'low',
    'high',
    'memory',
    'train_memory',
)
TEXTS = ('model', 'data')


def read(paths, needed, split='', protocol='locost'):
  """Reads points.

  Args:
    paths: JSONL files or WORKDIRs.
    needed: fields that each point must have.
    split, protocol: see `finished_runs.score`, for WORKDIRs.

  Returns:
    List of dicts with `needed` and the other fields of NUMBERS and TEXTS that a
    row has; `data` is '' if the row lacks it.

  Raises:
    InputError: a file cannot be read or has no rows, a row lacks a field or has
      a value of the wrong type, or a WORKDIR has no predictions.
  """
  found = []
  for path in paths:
    if os.path.isdir(path):
      rows = of_run(path, split, protocol)
    else:
      rows = list(sources.read_jsonl([path]))
    for number, row in enumerate(rows, start=1):
      found.append(_check(f'{path}: row {number}', row, needed))
  if not found:
    raise InputError(f'{", ".join(paths)}: no rows; expected points')
  return found


def _check(where, row, needed):
  """Returns the known fields of a row."""
  missing = [name for name in needed if row.get(name) is None]
  if missing:
    raise InputError(
        f'{where}: lacks {", ".join(missing)}; expected {", ".join(needed)}'
    )
  point = {'data': ''}
  for names, kind in (NUMBERS, untrusted.number(0)), (TEXTS, untrusted.TEXT):
    for name in names:
      if row.get(name) is not None:
        untrusted.check(where, name, row[name], kind)
        point[name] = row[name]
  return point


def of_run(path, split='', protocol='locost'):
  """Returns the points of a WORKDIR, see the top of this module."""
  run = finished_runs.find_run(path)
  data = run.config.get('data', {})
  points = []
  for scored in finished_runs.score(run, split, protocol):
    low, high = scored.summary['intervals'][protocols.MEAN]
    points.append(
        dict(
            model=run.config['model']['name'],
            data=scored.task,
            length=data.get('max_input_length'),
            examples=data.get('train_examples') or None,
            score=scored.summary[protocols.MEAN],
            low=low,
            high=high,
        )
    )
  if not points:
    raise InputError(
        f'{path}: has no predictions'
        + (f' of the {split} split' if split else '')
        + '; run main --evaluate on it first'
    )
  return points


def group(points, *names):
  """Returns {values of these fields: points}, in the order of the points."""
  found = {}
  for point in points:
    found.setdefault(tuple(point[name] for name in names), []).append(point)
  return found
