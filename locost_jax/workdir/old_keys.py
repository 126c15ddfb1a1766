"""Config keys of earlier versions: what became of each.

Everything that reads a stored config gets it in today's keys, so that old runs
continue, evaluate and summarise. A key that is new needs no row: where a stored
config lacks it, it has its default.
"""

# old key -> new key.
RENAMED = {
    'optim.ramp': 'optim.warmup_steps',
    'optim.warmup': 'optim.flat_steps',
    'optim.cooldown': 'optim.cooldown_steps',
}
# A key that was removed -> the values at which it did nothing. A stored config
# with another value keeps the key, so that the run is refused by its name.
REMOVED = {
    'data.packing': (False, None),  # several short documents in a row
}


def update(config):
  """Returns a stored config, nested dicts, in today's keys."""
  config = {
      name: dict(value) if isinstance(value, dict) else value
      for name, value in config.items()
  }
  for old, new in RENAMED.items():
    section, last = _find(config, old)
    if section is not None:
      section[new.rpartition('.')[2]] = section.pop(last)
  for old, ignored in REMOVED.items():
    section, last = _find(config, old)
    if section is not None and section[last] in ignored:
      del section[last]
  # Until it was renamed, the flat part was ignored by the constant schedule.
  optim = config.get('optim') or {}
  if optim.get('schedule') == 'constant' and 'flat_steps' in optim:
    optim['flat_steps'] = 0
  if config.get('phases'):
    config['phases'] = [
        [name, update_overrides(values)] for name, values in config['phases']
    ]
  return config


def update_overrides(values):
  """Returns what a phase sets, {'optim.ramp': 20, ...}, in today's keys."""
  return {
      RENAMED.get(key, key): value
      for key, value in dict(values).items()
      if key not in REMOVED or value not in REMOVED[key]
  }


def _find(config, key):
  """(section that holds the key, its last part); (None, ...) without it."""
  *sections, last = key.split('.')
  for section in sections:
    config = config.get(section)
    if not isinstance(config, dict):
      return None, last
  return (config if last in config else None), last
