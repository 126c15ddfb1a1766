"""Reads the inputs of pictures: runs, JSON, and points of compared models.

A file of points is JSON Lines with `model` (its colour), `data` (its panel),
`score` (`low`, `high`: its interval), and, by kind of picture, `memory` and
`train_memory` in bytes, `length` in tokens, or `examples`. A WORKDIR gives a
point: the scores of its best checkpoint's newest predictions.
"""

import os
from pathlib import Path
import re

from locost_jax import files
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge
from locost_jax.workdir import find

_MOST_BYTES = 1 << 28  # largest JSON file
_TEXTS = ('model', 'data')  # the other fields are numbers


def find_run(directory):
  """Returns (directory of the checkpoints, best step, config) of a WORKDIR."""
  found = os.path.isdir(directory) and find.find_run(directory)
  if not found:
    raise InputError(
        f'{directory}: no config.json of a run in it; expected a WORKDIR'
    )
  home, step_directory, config = found
  return Path(home), int(Path(step_directory).name), config


def find_metrics(path):
  """Returns the metrics.jsonl of a WORKDIR, or the file itself."""
  return find_run(path)[0] / 'metrics.jsonl' if os.path.isdir(path) else path


def short_names(paths):
  """Returns names of paths for a legend: the last parts if they are unique."""
  names = [Path(os.path.abspath(path)).name for path in paths]
  names = [
      name.partition('.')[0] if os.path.isfile(path) else name
      for name, path in zip(names, paths)
  ]
  return names if len(set(names)) == len(names) else list(paths)


def read_json(path):
  """Returns the object in a JSON file."""
  try:
    return files.read_object(path, _MOST_BYTES)
  except (FileNotFoundError, NotADirectoryError):
    raise InputError(f'{path}: no such file') from None


def read_rows(path, needed):
  """Returns the rows of a JSONL file; each must have the `needed` fields."""
  return _check(path, list(sources.read_jsonl(path)), needed)


def _check(path, rows, needed):
  for number, row in enumerate(rows, start=1):
    missing = [name for name in needed if not _fits(name, row.get(name))]
    if missing:
      raise InputError(
          f'{path}: row {number} lacks {", ".join(missing)}; expected numbers '
          f'(or names of models and data): {", ".join(needed)}'
      )
  if not rows:
    raise InputError(f'{path}: has no rows; expected {", ".join(needed)}')
  return rows


def _fits(name, value):
  return isinstance(value, str if name in _TEXTS else (int, float))


def read(paths, needed, split=None, protocol='locost'):
  """Reads points from JSONL files and WORKDIRs (see `of_run`).

  Returns:
    List of dicts with the `needed` fields and data, '' if a row lacks it.
  """
  found = []
  for path in paths:
    if os.path.isdir(path):
      found += _check(path, [of_run(path, split, protocol)], needed)
    else:
      found += read_rows(path, needed)
  return [
      {'data': ''} | {k: v for k, v in row.items() if _fits(k, v)}
      for row in found
  ]


def of_run(directory, split=None, protocol='locost'):
  """Returns the point of a WORKDIR; see `find.newest_predictions`."""
  protocol, (_, _, config) = protocols.find(protocol), find_run(directory)
  path = find.newest_predictions(directory, split)
  scores = rouge.score_rows(predictions.read(path), protocol)
  summary = rouge.summarize(scores, protocol)
  low, high = summary['intervals'][protocols.MEAN]
  return dict(
      model=_name(config['model']),
      data=re.sub(r'-(test|validation)-\d+.*', '', Path(path).name),
      length=config['data']['max_input_length'],
      examples=_examples(config),
      score=summary[protocols.MEAN],
      low=low,
      high=high,
  )


def _name(model):
  """Returns a model's name; a SimCAS that only reads one chunk is a BART."""
  is_bart = model.get('chunk') == 'one' and model.get('select') == 'none'
  return 'bart' if is_bart else model['name']


def _examples(config):
  """Returns the examples that a run learnt from; None: all there are."""
  if not config['optim']['learning_rate']:
    return 0
  return config['data'].get('train_examples') or None


def group(points, name):
  """Returns {value of a field: points}, in the order of the points."""
  found = {}
  for point in points:
    found.setdefault(point[name], []).append(point)
  return found
