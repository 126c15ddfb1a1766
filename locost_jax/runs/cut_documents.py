"""Says how much of a run's documents its maximum lengths cut.

Counted when the token caches were made, so that it costs nothing here.
"""

from locost_jax.data import mixture

_SIDES = (
    ('inputs', 'max_input_length'),
    ('targets', 'max_target_length'),
)


def describe(setup, splits=('train', 'validation')):
  """Yields a line for each split of a phase of which something is cut.

  Args:
    setup: an assemble.Setup, caches open.
    splits: names of splits.
  """
  for split in splits:
    for task, cache in _caches(setup, split).items():
      parts = list(_parts(cache, setup.config.data))
      if parts:
        yield f'{task}, {split}: {"; ".join(parts)}'


def _caches(setup, split):
  """{task: cache} of a split."""
  cache = setup.caches.get(split)
  if isinstance(cache, mixture.Mixture):
    return cache.tasks
  if isinstance(cache, dict):
    return cache
  return {} if cache is None else {setup.task: cache}


def _parts(cache, data):
  """Yields 'data.max_input_length=512 cuts 3 of 9 inputs: ...'.

  Of a cache that is made while the run trains nothing is known yet.
  """
  stats, lengths = getattr(cache, 'stats', {}), getattr(cache, 'lengths', ())
  for i, (side, key) in enumerate(_SIDES):
    if not len(lengths) or (side == 'inputs' and data.pages):
      continue
    most, count = data[key], stats.get(f'{side}_cut')
    share = ''
    if count is None:  # an older cache, or a part of one
      count = int((lengths[:, i] >= most).sum())
    else:
      lost = stats[f'{side}_lost']
      whole = lost + stats[f'{side[:-1]}_tokens']
      share = f', {lost / max(whole, 1):.1%} of their tokens'
    if count:
      yield f'data.{key}={most} cuts {count:,} of {len(lengths):,} {side}{share}'
