"""Finds the documents of a run's predictions.

The files of predictions have no documents, but the run's token cache has them
as the model read them. They are unknown without the cache or the extra `train`.
"""

from pathlib import Path
from typing import NamedTuple

from locost_jax.data import records
from locost_jax.errors import InputError

_AT_ONCE = 64  # records in memory at once


class Source(NamedTuple):
  """A document: its number of tokens, and a function that returns its text."""

  tokens: int
  text: object  # () -> str


def find(run, task, split, ids, vocabulary):
  """Finds documents in the caches of a run.

  Args:
    run: a `finished_runs.Run`.
    task, split: task and split of the predictions.
    ids: ids of the documents.
    vocabulary: has decode(ids) -> text; None: the texts are None.

  Returns:
    {id: Source}; empty if no cache has all documents.
  """
  wanted = set(ids)
  homes = {run.workdir / 'cache'}
  if run.config.get('data', {}).get('cache_dir'):
    homes.add(Path(run.config['data']['cache_dir']))
  for home in sorted(homes):
    for path in sorted(home.glob(f'{task}-{split}-*')):
      if (path / records.STATS).exists():
        found = _read(path, wanted, vocabulary)
        if found.keys() == wanted:
          return found
  return {}


def _read(path, wanted, vocabulary):
  """Returns {id: Source} of a cache; empty if it cannot be read."""
  try:
    cache = records.Cache(path, verify=False)
    found = {}
    for start in range(0, len(cache), _AT_ONCE):
      for row in cache.read(range(start, min(start + _AT_ONCE, len(cache)))):
        if row['id'] in wanted:
          found[row['id']] = Source(
              len(row['inputs']), _decoder(vocabulary, row['inputs'])
          )
    return found
  except (ImportError, InputError):
    return {}


def _decoder(vocabulary, ids):
  if vocabulary is None:
    return lambda: None
  return lambda: vocabulary.decode(ids.tolist())
