"""A run that starts from released weights has their model's architecture.

--config.train.init_from=DIR takes sizes, positions and padding from the
config.json of a Hugging Face directory, and shortens texts to what the model
reads and writes. Dropout and all other keys are the config's.
"""

import os

from locost_jax.config import schema
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.runs import checks
from locost_jax.runs import resume
from locost_jax.training import warm_start
from locost_jax.workdir import phases as phases_lib

# The model of a config that names none.
_DEFAULT = 'locost'
# Keys of our architecture that may differ from the source's, if they are given.
_FREE = 'vocab_size attention_window global_tokens local_radius'.split()
_DROPOUT = 'dropout_rate'


def follow(config, overrides, workdir, is_named=False):
  """Gives a config the model that --config.train.init_from=DIR begins with.

  DIR is a Hugging Face directory, or what `convert` made of one; with runs and
  checkpoints nothing changes. WORKDIR itself may be such a directory. The
  config keeps its model if it is another one than the default or is_named, and
  takes what the two have in common: a PageSum takes the sizes of a BART.

  Args:
    overrides: the values of the command line, {'model.d_model': 64, ...}, which
      are kept.
    is_named: whether the command line chooses config.model.name.

  Raises:
    InputError: the source's config.json cannot be used, or an override is not
      what its weights have.
  """
  where = f'config.train.init_from={config.train.init_from}'
  source = _find(config, overrides, workdir)
  if source is None:
    return
  name, before = config.model.name, dict(config.model)
  is_free = name == _DEFAULT and not is_named and not config.train.init_map
  if is_free and source['name'] != name:
    name = source['name']
    config.model = schema.make_model(name)
    config.model[_DROPOUT] = before[_DROPOUT]
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


def _find(config, overrides, workdir):
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
  is_converted = resume.is_converted(own)
  return own['model'] if is_converted else configs.model_config(directory)


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
