"""A run's directory: its phases, what it was begun with, what may change.

  WORKDIR/config.json  vocabulary/  cache/  checkpoints/STEP/  metrics.jsonl
  tensorboard/  predictions/TASK-SPLIT-STEP.jsonl  profile/  wandb.json

With phases, WORKDIR holds config.json, vocabulary and cache, and WORKDIR/PHASE
all of a run but the cache, so that a phase's directory is complete by itself.
"""

import copy
import json
import os
from pathlib import Path
import re
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from locost_jax.errors import InputError
from locost_jax.errors import suggest

CONFIG_FILE = 'config.json'
# What a run may be continued with, changed: nothing here moves a loss but by
# rounding (and which units dropout takes), and more steps only extend it.
_FREE = re.compile(
    r'(mesh|checkpoint|eval|decode)\..*'
    r'|train\.(steps|remat|accumulate|max_nonfinite_steps|timeout|\w+_every)')


class Phase(NamedTuple):
  """One training run of one or several in a row."""

  name: str  # '' where the config has no phases
  directory: Path
  config: Any  # ConfigDict, resolved; train.init_from is the phase before


def make_phases(config, overrides, workdir):
  """Returns the phases of a config, a list of one or more.

  Args:
    config: the whole config, the command line's values in it.
    overrides: what the command line set, {'train.steps': 100, ...}: it comes
      after what a phase sets.
    workdir: WORKDIR.

  Raises:
    InputError: config.phases has another form, an unknown key or a wrong type.
  """
  workdir = Path(workdir)
  if not config.phases:
    return [Phase('', workdir, config)]
  phases = []
  for row in config.phases:
    try:
      name, values = row
      values = dict(values)
    except (TypeError, ValueError):
      raise InputError(f'config.phases: {row!r} is not '
                       "(name, {'train.steps': 100, ...})") from None
    if not re.fullmatch(r'\w[\w-]*', name) or name in (
        {phase.name for phase in phases} | {
            'vocabulary', 'cache', 'checkpoints', 'tensorboard',
            'predictions', 'profile', 'wandb'}):
      raise InputError(f'config.phases: {name!r} cannot name a phase: expected '
                       'a new word, which becomes a directory of WORKDIR')
    phase_config = copy.deepcopy(config)
    phase_config.phases = ()
    own = ()  # of the command line, what is the first phase's alone
    if phases:
      phase_config.train.init_from = str(phases[-1].directory)
      phase_config.train.init_map = ()
      own = 'train.init_from', 'train.init_map'
    for key, value in values.items():
      _set(phase_config, key, value, f'config.phases, {name}: ')
    for key, value in overrides.items():
      if key != 'phases' and key not in own:
        _set(phase_config, key, value, '')
    phases.append(Phase(name, workdir / name, phase_config))
  return phases


def _set(config, key, value, where):
  *sections, last = key.split('.')
  node = config
  for section in sections:
    node = node.get(section) if isinstance(node, ConfigDict) else None
  if not isinstance(node, ConfigDict) or last not in node:
    hint = suggest(key, list(_flatten(to_dict(config))))
    raise InputError(f'{where}there is no key config.{key}{hint}')
  try:
    node[last] = value
  except TypeError:
    raise InputError(
        f'{where}config.{key}={value!r}: expected '
        f'{type(node[last]).__name__}, got {type(value).__name__}') from None


def to_dict(config):
  """Returns a config as plain dicts and lists, as JSON holds it."""
  return json.loads(config.to_json_best_effort())


def has_checkpoint(phase):
  """Whether the phase has saved any step."""
  return any(path.parent.name.isdigit() for path in (
      phase.directory / 'checkpoints').glob('*/params'))


def is_finished(phase):
  """Whether the phase's last step has been saved."""
  last = phase.directory / 'checkpoints' / str(phase.config.train.steps)
  return (last / 'params').is_dir()


def check_unchanged(phases, workdir):
  """Raises unless what lies in WORKDIR can go on under this config.

  A phase that has begun must have been begun under the same config but for the
  keys that may change, and before it all phases must be finished.

  Args:
    phases: of `make_phases`.
    workdir: WORKDIR.

  Raises:
    InputError: names the keys that differ, both values, and the way out.
  """
  stored = read_config(workdir)
  if stored is not None:
    names = [name for name, _ in stored.get('phases') or ()]
    wanted = [phase.name for phase in phases if phase.name]
    if names != wanted:
      raise InputError(
          f'{workdir} was begun with the phases {names}, not {wanted}: use '
          'another --workdir')
  for i, phase in enumerate(phases):
    stored = read_config(phase.directory)
    if stored is None:
      continue
    if 'optim' not in stored:
      raise InputError(
          f'{phase.directory} holds weights from elsewhere, no training to go '
          'on with: use another --workdir, with '
          f'--config.train.init_from={phase.directory}')
    differences = list_differences(stored, to_dict(phase.config))
    if i:  # where WORKDIR lies may change
      differences.pop('train.init_from', None)
    if differences:
      shown = [f'config.{key} was {_show(old)}, now {_show(new)}'
               for key, (old, new) in sorted(differences.items())]
      raise InputError(
          f'{phase.directory} was begun with another config: '
          f'{"; ".join(shown)}. Use another --workdir, or the same values')
    for before in phases[:i]:
      if not is_finished(before):
        raise InputError(
            f'{before.directory} has no step {before.config.train.steps}, but '
            f'{phase.directory} was begun from it: keep config.train.steps of '
            f'{before.name}, or use another --workdir')


def list_differences(old, new, keys='.*', free=_FREE):
  """Returns {key: (old, new)} of the keys that differ and may not.

  model.vocab_size 0 stands for the vocabulary's size.

  Args:
    old, new: configs as nested dicts.
    keys: regex of the dotted keys that are looked at.
    free: regex of the dotted keys that may differ.
  """
  old, new = _flatten(old), _flatten(new)
  if not new.get('model.vocab_size'):
    new['model.vocab_size'] = old.get('model.vocab_size')
  missing = object()
  return {
      key: (old.get(key), new.get(key))
      for key in old.keys() | new.keys()
      if key != 'phases' and re.fullmatch(keys, key)
      and not free.fullmatch(key)
      and old.get(key, missing) != new.get(key, missing)
  }


def read_config(directory):
  """Returns a directory's config.json as nested dicts, or None.

  Raises:
    InputError: it is not JSON.
  """
  path = Path(directory) / CONFIG_FILE
  try:
    return json.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError:
    return None
  except NotADirectoryError:
    raise InputError(f'{directory}: not a directory') from None
  except ValueError as error:
    raise InputError(f'{path}: not JSON: {error}') from None


def write_config(directory, config):
  """Writes config.json."""
  write(Path(directory) / CONFIG_FILE,
        json.dumps(to_dict(config), indent=2) + '\n')


def write(path, text):
  """Writes a file so that it is there whole or not at all."""
  path = Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'{path.name}.tmp{os.getpid()}')
  try:
    with open(temporary, 'w', encoding='utf-8', newline='\n') as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def _flatten(tree, prefix=''):
  flat = {}
  for key, value in tree.items():
    if isinstance(value, dict):
      flat.update(_flatten(value, f'{prefix}{key}.'))
    else:
      flat[prefix + key] = value
  return flat


def _show(value):
  text = json.dumps(value)
  return text if len(text) <= 60 else text[:57] + '...'
