"""Checks that a run may be continued or evaluated with a config.

The config must be the one that the run was started with, except for keys that
change no result (`_FREE`). A key that one of the two configs lacks, because it
is newer or older than the run, has its default. Commands without --config use
the config of the run.
"""

import json
import os
import re
import shlex

from flax import traverse_util
from ml_collections import ConfigDict

from locost_jax import files
from locost_jax import models
from locost_jax.config import object_store
from locost_jax.config import schema
from locost_jax.errors import InputError
from locost_jax.hugging_face import hub
from locost_jax.training import optim
from locost_jax.workdir import checkpoint
from locost_jax.workdir import phases as phases_lib

# Keys that may change: they change losses only by rounding (and by the units
# that dropout picks). More steps extend a run; `check_steps` checks its rate.
_FREE = re.compile(
    r'(mesh|checkpoint|eval|decode)\..*|data\.bucket_disk'
    r'|train\.(steps|remat|accumulate|max_nonfinite_steps|timeout|patience)'
    r'|train\.\w+_every'
)

# Keys of a model that matter only in training.
_TRAINING_ONLY = re.compile(r'model\.(\w+_)?dropout_rate')


def find_settings(workdir, is_needed):
  """Returns (config, its path) of the run in WORKDIR, also gs://, or None.

  Converted weights are a run of the default config, without a training.

  Raises:
    InputError: it is needed, and there is no run.
  """
  copy = f'{workdir.rstrip("/")}/{phases_lib.CONFIG_FILE}'
  if object_store.is_uri(workdir):
    object_store.forget(workdir)
    copy = object_store.local(copy)
  stored = phases_lib.read_config(os.path.dirname(copy)) or {}
  if 'train' not in stored:
    if is_needed:
      raise InputError(
          f'--workdir={workdir}: no config.json of a run in it; expected '
          'the WORKDIR of a run, or --config=FILE'
      )
    return None
  if is_converted(stored):
    stored = dict(stored, train={})
  return make_config(stored), copy


def check_unchanged(setups, workdir):
  """Raises unless the run in WORKDIR can be continued with this config.

  A phase that was started must have the same config, except for keys that may
  change, and all phases before it must be finished. Shares of train.steps in
  the schedule become steps here, those of the run's first config.

  Args:
    setups: assemble.Setups of all phases; the configs' schedules are resolved.
  """
  before = phases_lib.read_config(workdir)
  if before is not None:
    names = [name for name, _ in before.get('phases') or ()]
    wanted = [setup.name for setup in setups if setup.name]
    if names != wanted:
      raise InputError(
          f'{workdir} was started with the phases {names}, not {wanted}: use '
          'another --workdir'
      )
  for i, setup in enumerate(setups):
    stored = phases_lib.read_config(setup.directory)
    setup.shares = resolve_schedule(setup.config, stored)
    if stored is None:
      continue
    if is_converted(stored):
      raise InputError(
          f'{setup.directory} holds converted weights, no training to '
          'continue: use another --workdir, with '
          f'--config.train.init_from={setup.directory}'
      )
    differences = list_differences(stored, setup.config)
    before, now = differences.get('train.init_from', ('', None))
    # WORKDIR may have moved; older versions wrote Hub names without prefix.
    if i or now == hub.PREFIX + str(before):
      differences.pop('train.init_from', None)
    if differences:
      raise InputError(
          f'{setup.directory} was started with another config: '
          f'{_describe(differences)}, or use another --workdir'
      )
    check_steps(setup, stored)
    for before in setups[:i]:
      if not phases_lib.is_finished(before):
        raise InputError(
            f'{before.directory} has no step {before.config.train.steps}, but '
            f'{setup.directory} was started from it: keep config.train.steps of '
            f'{before.name}, or use another --workdir'
        )


def resolve_schedule(config, stored=None):
  """Turns the shares of train.steps in config.optim into steps.

  In an existing run they are shares of its first train.steps, so that more
  steps move the cooldown and nothing else.

  Args:
    config: a phase's config, changed in place.
    stored: the phase's config.json; None: a new phase.

  Returns:
    {'optim.warmup_steps': 0.05, ...}, the shares in the config.
  """
  shares, steps, stored = {}, config.train.steps, stored or {}
  if 'optim' in stored:
    steps = stored['train']['steps']
  for key in optim.STEP_KEYS:
    name, value = f'optim.{key}', config.optim[key]
    if optim.is_share(value):
      shares[name] = value
      is_known = stored.get(phases_lib.SHARES, {}).get(name) == value
      config.optim[key] = (
          stored['optim'][key] if is_known else optim.to_steps(value, steps)
      )
  return shares


def check_steps(setup, stored):
  """Raises an InputError if another train.steps changes a rate already used.

  The cooldown ends at train.steps, so these may change until it begins.
  """
  cooldown, before = setup.config.optim.cooldown_steps, stored['train']['steps']
  now = setup.config.train.steps
  done = checkpoint.latest_step(setup.directory / 'checkpoints') or 0
  first = min(before, now) - cooldown  # steps before any cooldown
  if now != before and cooldown and done > first + 1:
    raise InputError(
        f'config.train.steps={now}: {setup.directory} was started with {before}, '
        f'and its last step, {done}, is in the cooldown of '
        f'{cooldown:g} steps: keep {before}, or use another --workdir'
    )


def check_same_model(setup, stored):
  """Raises an InputError if a run was trained with another model.

  Dropout may differ.
  """
  differences = list_differences(
      stored, setup.config, keys=r'model\..*', free=_TRAINING_ONLY
  )
  if differences:
    raise InputError(
        f'{setup.directory} was trained with another model: '
        f'{_describe(differences)}, or leave out --config'
    )


def list_differences(stored, config, keys='.*', free=_FREE):
  """Returns {key: (old, new)} of the keys that differ but must not.

  A missing key has its default; model.vocab_size 0 means the vocabulary's size.
  """
  old, new = (
      flatten(tree, config.model.name)
      for tree in (stored, phases_lib.to_dict(config))
  )
  if not new.get('model.vocab_size'):
    new['model.vocab_size'] = old.get('model.vocab_size')
  ignored, missing = re.compile(rf'phases|{phases_lib.SHARES}\..*'), object()
  return {
      key: (old.get(key), new.get(key))
      for key in old.keys() | new.keys()
      if re.fullmatch(keys, key)
      and not ignored.fullmatch(key)
      and not free.fullmatch(key)
      and old.get(key, missing) != new.get(key, missing)
  }


def flatten(config, model):
  """Returns nested dicts as {dotted key: value}; missing ones at their defaults.

  A section that is None stays None.
  """
  none = {x: None for x in schema.table.OPTIONAL if config.get(x) is None}
  defaults = {
      key: row.default
      for key, row in schema.keys_of(model).items()
      if not row.is_needed and key.partition('.')[0] not in none
  }
  defaults = json.loads(json.dumps(defaults))  # lists, as in config.json
  return {'phases': [], **none, **defaults, **dict(schema.leaves(config))}


def _describe(differences):
  """Formats what differs, and the flags that set the old values."""
  shown, same = [], []
  # With another architecture all keys differ; the name explains it best.
  name = {'model.name'} & differences.keys()
  for key in sorted(name or differences):
    old, new = differences[key]
    shown.append(f'config.{key} was {_show(old)}, now {_show(new)}')
    if not name and old is not None:
      same.append(shlex.quote(f'--config.{key}={_with_tuples(old)}'))
  return f'{"; ".join(shown)}: give {" ".join(same) or "its config"}'


def _show(value):
  if isinstance(value, float) and value.is_integer():
    value = int(value)
  return files.show_value(value)


def is_converted(stored):
  """Whether a config.json is what `convert` wrote: a model, no training."""
  return 'train' in stored and 'optim' not in stored


def make_config(stored):
  """Returns a run's config as it was given, except for model.vocab_size."""
  name, stored = stored['model']['name'], dict(stored)
  models.check_choice('model.name', name, models.MODELS)
  shares = stored.pop(phases_lib.SHARES, {})
  filled = traverse_util.unflatten_dict(flatten(stored, name), sep='.')
  config = ConfigDict(_with_tuples(filled))
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
