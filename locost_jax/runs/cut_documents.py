"""Reports how much of a run's documents its maximum lengths cut.

The counts are stored in the token caches, so they cost nothing here.
"""

from locost_jax.data import mixture

_SIDES = (
    ('inputs', 'max_input_length'),
    ('targets', 'max_target_length'),
)


def describe(setup, splits=('train', 'validation')):
  """Yields a line for each split of a phase with documents that are cut."""
  for split in splits:
    for task, cache in _caches(setup, split).items():
      parts = list(_parts(cache, setup.config.data))
      if parts:
        yield f'{task}, {split}: {"; ".join(parts)}'


def _caches(setup, split):
  """Returns {task: cache} of a split."""
  cache = setup.caches.get(split)
  if isinstance(cache, mixture.Mixture):
    return cache.tasks
  if isinstance(cache, dict):
    return cache
  return {} if cache is None else {setup.task: cache}


def _parts(cache, data):
  """Yields 'data.max_input_length=512 cuts 3 of 9 inputs: ...'.

  Yields nothing for a cache that is filled while the run trains.
  """
  stats, lengths = getattr(cache, 'stats', {}), getattr(cache, 'lengths', ())
  for i, (side, key) in enumerate(_SIDES):
    if not len(lengths) or (side == 'inputs' and data.pages):
      continue
    most, count = data[key], stats.get(f'{side}_cut')
    share = ''
    if count is None:  # a cache of an older version, or a part of a cache
      count = int((lengths[:, i] >= most).sum())
    else:
      lost = stats[f'{side}_lost']
      whole = lost + stats[f'{side[:-1]}_tokens']
      share = f', {lost / max(whole, 1):.1%} of their tokens'
    if count:
      yield f'data.{key}={most} cuts {count:,} of {len(lengths):,} {side}{share}'
