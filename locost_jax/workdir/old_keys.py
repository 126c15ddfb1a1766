"""Renamed and removed config keys of earlier versions.

Stored configs are converted to the current keys when they are read, so that old
runs can be continued, evaluated and used for summaries. A new key needs no row:
a stored config without it has the default.
"""

# old key -> new key.
RENAMED = {
    'optim.ramp': 'optim.warmup_steps',
    'optim.warmup': 'optim.flat_steps',
    'optim.cooldown': 'optim.cooldown_steps',
}
# A removed key -> the values without effect. A stored config with another value
# keeps the key, so that the error message names it.
REMOVED = {
    'data.packing': (False, None),  # several short documents in a row
}


def update(config):
  """Returns a stored config, nested dicts, with the current keys."""
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
  # In old versions the constant schedule ignored this key.
  optim = config.get('optim') or {}
  if optim.get('schedule') == 'constant' and 'flat_steps' in optim:
    optim['flat_steps'] = 0
  if config.get('phases'):
    config['phases'] = [
        [name, update_overrides(values)] for name, values in config['phases']
    ]
  return config


def update_overrides(values):
  """Returns a phase's overrides, {'optim.ramp': 20, ...}, with current keys."""
  return {
      RENAMED.get(key, key): value
      for key, value in dict(values).items()
      if key not in REMOVED or value not in REMOVED[key]
  }


def _find(config, key):
  """Returns (section with the key, the key's last part); (None, ...) if missing."""
  *sections, last = key.split('.')
  for section in sections:
    config = config.get(section)
    if not isinstance(config, dict):
      return None, last
  return (config if last in config else None), last
