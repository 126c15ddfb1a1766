"""The config of an existing run, for commands without --config."""

from ml_collections import ConfigDict

from locost_jax import models
from locost_jax.runs import resume
from locost_jax.training import optim
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib


def read(workdir):
  """Returns (config, its path) of the run in WORKDIR; None if it has no run.

  `configs` must be importable (`config_files`). Seeds have the config of the
  first one.

  Args:
    workdir: WORKDIR; need not exist.

  Raises:
    InputError: config.json is damaged.
  """
  directory = next(iter(find.seeds(workdir).values()), workdir)
  stored = phases_lib.read_config(directory)
  if stored is None or 'optim' not in stored:  # converted weights have none
    return None
  return make_config(stored), f'{directory}/{phases_lib.CONFIG_FILE}'


def make_config(stored):
  """Returns a run's config as it was given, except for model.vocab_size."""
  models.check_choice('model.name', stored['model']['name'], models.MODELS)
  stored = dict(stored)
  shares = stored.pop(phases_lib.SHARES, {})
  config = ConfigDict(_with_tuples(resume.fill_defaults(stored)))
  with config.optim.ignore_type():
    for key in optim.STEP_KEYS:
      config.optim[key] = shares.get(f'optim.{key}', config.optim[key])
  return config


def _with_tuples(value):
  """Returns nested dicts with tuples, as in config files, for JSON's lists."""
  if isinstance(value, dict):
    return {key: _with_tuples(item) for key, item in value.items()}
  if isinstance(value, list):
    return tuple(map(_with_tuples, value))
  return value
