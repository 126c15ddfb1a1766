"""Makes the default config, checks and --help=config from the table of keys."""

import re
import textwrap

from ml_collections import ConfigDict

from locost_jax import files
from locost_jax.config import keys as table
from locost_jax.config import kinds
from locost_jax.errors import InputError
from locost_jax.errors import suggest

# Old dotted key -> the key that replaced it.
RENAMED = {
    f'{key.rpartition(".")[0]}.{row.old}': key
    for key, row in table.KEYS.items()
    if row.old
}
# Sections that every config has.
SECTIONS = ('model', *(name for name in table.SECTIONS if '.' not in name))


def defaults(section):
  """Returns {key: default} of a section, such as 'gsg'."""
  return {name: key.default for name, key in table.SECTIONS[section].items()}


def make_config():
  """Returns the default config: LOCOST in the paper's size, without data.

  It is locked, so that a config cannot set an unknown key.
  """
  config = ConfigDict({'model': make_model('locost')})
  for section in table.SECTIONS:
    above, _, last = section.rpartition('.')
    values = None
    if section not in table.OPTIONAL:
      values = ConfigDict(defaults(section))
    (config[above] if above else config)[last] = values
  config.phases = ()
  return config.lock()


def make_model(name):
  """Returns config.model of a model in base size."""
  values = {key: row.default for key, row in table.MODELS[name].items()}
  return ConfigDict({'name': name, **values})


# --- Checks -------------------------------------------------------------------


def keys_of(model):
  """Returns {dotted name: Key} of all keys, given the name of the model.

  Of a model that is not known, its name alone.
  """
  own = table.MODELS.get(model, {}) if isinstance(model, str) else {}
  return table.SHARED | {f'model.{name}': key for name, key in own.items()}


def check_config(config):
  """Raises an InputError for a key with a value that is not allowed.

  Keys that are not in the table are ignored.
  """
  for name in {key.partition('.')[0] for key in table.KEYS}:
    section = config.get(name)
    is_none = section is None and name in table.OPTIONAL
    if name in config and not (is_none or isinstance(section, ConfigDict)):
      raise InputError(
          f'config.{name}={section!r}: expected a section, a ConfigDict'
      )
  keys = keys_of(config['model'].get('name'))
  for key, value in leaves(config):
    if key in keys:
      _check(key, key, keys[key].kind, value)


def check_flags(flags, command):
  """Raises an InputError for a flag with a value that is not allowed.

  command is the last part of the command's module; the value None: not given.
  """
  for name, value in flags.items():
    kind = table.FLAGS.get(f'{command}.{name}', table.FLAGS.get(name))
    if kind is not None and value is not None:
      _check(f'--{name}', name, kind, value)


def check_path(name, path):
  """Raises an InputError for a path that is neither local nor in a bucket."""
  _check(name, name, kinds.path('gs'), path)


def _check(where, key, kind, value):
  if problem := kind.problem(key.rpartition('.')[2], value):
    shown = value
    if not isinstance(value, str):
      shown = f'{value:g}' if isinstance(value, float) else repr(value)
    raise InputError(f'{where}={shown}: {problem}')


def check_stored(path, config):
  """Raises an InputError unless a config.json is a valid run's config.

  A run wrote it, but it may have been edited, damaged or sent by somebody else.
  Whether the sizes fit together is checked when the model is built. config has
  the current keys.
  """
  for name in ('model', *table.SECTIONS, 'shares'):
    above, _, last = name.rpartition('.')
    section = (config.get(above, {}) if above else config).get(last, {})
    if section is not None or name not in table.OPTIONAL:
      files.check_value(path, name, section, kinds.OBJECT)
  for key in 'model.name', 'train.steps':
    section, last = key.split('.')
    if last not in config.get(section, {}):
      raise InputError(f'{path}: lacks {key}; expected the config of a run')
  keys = keys_of(config['model'].get('name'))
  known = {key: row.kind for key, row in keys.items()} | table.STORED
  for key, value in leaves(config):
    kind = known.get(key, kinds.number(0, 1) if key[:7] == 'shares.' else None)
    if kind is not None:
      files.check_value(path, key, value, kind)
  _check_phases(path, config.get('phases') or [])


def _check_phases(path, phases):
  """Raises an InputError unless each phase is [name, {key: value}]."""
  files.check_value(path, 'phases', phases, kinds.LIST)
  for row in phases:
    is_row = isinstance(row, list) and len(row) == 2
    # The name becomes a directory in WORKDIR and must not lead elsewhere.
    if not (
        is_row
        and isinstance(row[0], str)
        and re.fullmatch(r'\w[\w-]*', row[0])
        and isinstance(row[1], dict)
    ):
      raise InputError(
          f'{path}: phases: {files.show_value(row)}: expected '
          '["name", {"key": value}], the name being one word'
      )


# --- Configs of earlier versions ----------------------------------------------


def update(config):
  """Returns a stored config, nested dicts, with the current keys.

  A new key needs nothing here: a stored config without it has the default.
  """
  config = {
      name: dict(value) if isinstance(value, dict) else value
      for name, value in update_overrides(config).items()
  }
  for name, section in config.items():
    if isinstance(section, dict):
      pairs = {f'{name}.{key}': value for key, value in section.items()}
      pairs = update_overrides(pairs)
      config[name] = {key[len(name) + 1 :]: x for key, x in pairs.items()}
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
      if key not in table.REMOVED or value not in table.REMOVED[key]
  }


# --- --help=config ------------------------------------------------------------


def help_page(config, path, prefix=''):
  """Returns the page of --help=config: the keys of a config, with meanings.

  prefix: show only keys below this one, for example 'optim'; '': all.
  """
  values = dict(leaves(config))
  keys = keys_of(config.model.name)
  chosen = [
      key for key in values if not prefix or f'{key}.'.startswith(f'{prefix}.')
  ]
  if not chosen:
    known = {key.rpartition('.')[0] for key in values} | set(values)
    raise InputError(
        f'--help=config.{prefix}: {path} has no such key'
        f'{suggest(prefix, sorted(known), "config.")}'
    )
  lines = [
      f'Keys of {path} and their values. --config.KEY=VALUE sets one, like',
      '--config.train.steps=100; tuples need quotes.',
  ]
  section, order = None, list(keys)
  for key in sorted(
      chosen,
      key=lambda key: order.index(key) if key in keys else len(order),
  ):
    above = key.rpartition('.')[0]
    if above != section or not above:
      section = above
      lines += ['', *([f'{above}:'] if above else [])]
      lines += _wrap(table.ABOUT.get(above, ''), 2)
    text, shown = table.ABOUT.get(key, ''), ''
    if key in keys:
      text, shown = keys[key].text, keys[key].kind.range
    lines.append(f'  --config.{key}={values[key]!r}')
    lines += _wrap(f'{text} ({shown})' if shown else text, 6)
  return '\n'.join(lines)


def leaves(config, prefix=''):
  """Yields (dotted key, value) of all keys that are not sections."""
  for key, value in config.items():
    if isinstance(value, (dict, ConfigDict)):
      yield from leaves(value, f'{prefix}{key}.')
    else:
      yield f'{prefix}{key}', value


def _wrap(text, indent):
  pad = ' ' * indent
  return textwrap.wrap(text, 80, initial_indent=pad, subsequent_indent=pad)
