"""--config.train.init_from=DIR: a run has the architecture of released weights.

Dropout and all keys outside config.model are the config's; lengths end at what
the model reads and writes.
"""

import os

from locost_jax.config import schema
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.runs import checks
from locost_jax.runs import resume
from locost_jax.training import warm_start
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib

# Keys of our architecture that may differ from the source's, if they are given.
_FREE = 'vocab_size attention_window global_tokens local_radius'.split()


def follow(config, overrides, workdir, is_named=False):
  """Gives a config the model that train.init_from of the command line has.

  DIR is a Hugging Face directory or what `convert` made of one, as WORKDIR may
  be; runs and checkpoints change nothing. A LOCOST that nobody named becomes
  the source's model. Others take the keys that both have: a PageSum a BART's.

  Args:
    overrides: {'model.d_model': 64, ...} of the command line; they are kept.
    is_named: whether the command line chooses config.model.name.

  Raises:
    InputError: a config.json that cannot be used, or overrides that contradict
      its weights.
  """
  where = f'config.train.init_from={config.train.init_from}'
  source = _find(overrides, workdir)
  if source is None:
    return
  name, before = config.model.name, dict(config.model)
  is_free = name == 'locost' and not is_named and not config.train.init_map
  if is_free and source['name'] != name:
    name = source['name']
    config.model = schema.make_model(name)
    config.model.dropout_rate = before['dropout_rate']
    if 'optim.groups' not in overrides:  # of LOCOST's time scales
      rows = config.optim.groups
      config.optim.groups = tuple(row for row in rows if '/ssm/' not in row[0])
  taken = {
      key: tuple(value) if isinstance(value, list) else value
      for key, value in configs.architecture(source).items()
      if key in config.model
  }
  if config.train.init_map:  # it may exclude the embedding
    taken.pop('vocab_size')
  elif source['name'] == name:
    _check_overrides(taken, overrides, where)
  with config.model.ignore_type():
    for key, value in taken.items():
      if f'model.{key}' not in overrides:
        config.model[key] = value
  changed = [
      f'model.{key}={value}'
      for key, value in config.model.items()
      if before.get(key) != value
  ]
  for section, key, most in checks.limits(config):
    given = f'{section}.{key}'
    if config[section][key] > most and given not in overrides:
      config[section][key] = most
      changed.append(f'{given}={most}')
  if changed:
    collective.log(f'{where}: takes {", ".join(changed)}')


def _find(overrides, workdir):
  """Returns config.model of the released weights to begin with, or None."""
  is_there = os.path.isdir(workdir)  # else other checks say why
  stored = phases_lib.read_config(workdir) or {} if is_there else {}
  if resume.is_converted(stored):
    return stored['model']
  start = overrides.get('train.init_from')
  if not start:
    return None
  if stored.get('train', {}).get('init_from') == start:
    return stored['model']  # the source may have been deleted
  directory = warm_start.find_directory(start)
  own = phases_lib.read_config(directory)
  if own is None or 'optim' in own:  # a checkpoint or a run
    return None
  if resume.is_converted(own):
    return own['model']
  released = configs.model_config(directory)
  return find.with_separator(released, find.find_vocabulary(directory))


def _check_overrides(taken, overrides, where):
  """Raises an InputError for overrides that are not the source's values."""
  wrong = [
      f'config.model.{key}={overrides[f"model.{key}"]}: expected {value}'
      for key, value in taken.items()
      if key not in _FREE and overrides.get(f'model.{key}', value) != value
  ]
  if wrong:
    raise InputError(
        f'{"; ".join(wrong)}, as {where} has it: leave out --config.model keys '
        'that the source gives'
    )
