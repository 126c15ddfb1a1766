"""A run's directory: its phases, stored config and lock.

  WORKDIR/config.json  vocabulary/  cache/  checkpoints/STEP/  metrics.jsonl
  tensorboard/  predictions/TASK-SPLIT-STEP.jsonl  profile/  wandb.json

With phases, WORKDIR has config.json, vocabulary and cache; each WORKDIR/PHASE
has all other files of a run, and its own config.json and vocabulary.
"""

import contextlib
import copy
import json
import os
from pathlib import Path
import re
import shutil
import socket
import sys
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from locost_jax import files
from locost_jax.config import schema
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint

CONFIG_FILE = 'config.json'
LOCK_FILE = 'run.lock'
_QUERIES_FILE = 'queries.json'
SHARES = 'shares'  # a key of config.json, see `write_config`
# No phase can have these names.
_FOLDERS = (
    'vocabulary cache checkpoints tensorboard predictions profile wandb'.split()
)


class Phase(NamedTuple):
  """One training phase of a run."""

  name: str  # '' if the config has no phases
  directory: Path
  config: Any  # ConfigDict, resolved; train.init_from is the phase before


def make_phases(config, overrides, workdir):
  """Returns the phases of a config, a list of one or more; checks their keys.

  Args:
    config: the whole config, including the command line's values; its rows of
      `phases` get those values too.
    overrides: the command line's values, {'train.steps': 100, ...}; they
      override a phase's values.
  """
  workdir = Path(workdir)
  if not config.phases:
    schema.check_config(config)
    return [Phase('', workdir, config)]
  phases, rows = [], []
  for row in config.phases:
    try:
      name, values = row
      values = schema.update_overrides(values)
    except (TypeError, ValueError):
      raise InputError(
          f"config.phases: {row!r} is not (name, {{'train.steps': 100, ...}})"
      ) from None
    taken = {phase.name for phase in phases}.union(_FOLDERS)
    is_word = isinstance(name, str) and re.fullmatch(r'\w[\w-]{,79}', name)
    if not is_word or name in taken:
      raise InputError(
          f'config.phases: {name!r} cannot name a phase: expected '
          'a new word, which becomes a directory of WORKDIR'
      )
    phase_config = copy.deepcopy(config)
    phase_config.phases = ()
    own = set()  # keys of the command line that only the first phase uses
    if phases:
      phase_config.train.init_from = str(phases[-1].directory)
      phase_config.train.init_map = ()
      own = {'train.init_from', 'train.init_map'}
    for key, value in values.items():
      _set(phase_config, key, value, f'config.phases, {name}: ')
    for key, value in overrides.items():
      if key != 'phases' and key not in own:
        _set(phase_config, key, value, '')
    schema.check_config(phase_config)
    phases.append(Phase(name, workdir / name, phase_config))
    given = {
        key: overrides[key] for key in (values.keys() & overrides.keys()) - own
    }
    rows.append((name, {**values, **given}))
  config.phases = tuple(rows)  # what WORKDIR/config.json gets
  return phases


def _set(config, key, value, where):
  if not isinstance(key, str):
    raise InputError(f"{where}{key!r}: expected a key such as 'train.steps'")
  *sections, last = key.split('.')
  node = config
  for section in sections:
    node = node.get(section) if isinstance(node, ConfigDict) else None
  if not isinstance(node, ConfigDict) or last not in node:
    hint = suggest(key, list(dict(schema.leaves(config))))
    raise InputError(f'{where}there is no key config.{key}{hint}')
  try:
    node[last] = value
  except TypeError:
    raise InputError(
        f'{where}config.{key}={value!r}: expected '
        f'{type(node[last]).__name__}, got {type(value).__name__}'
    ) from None


def to_dict(config):
  """Returns a config as plain dicts and lists, for JSON."""
  return json.loads(config.to_json_best_effort())


def is_finished(phase):
  """Whether a Phase saved its last step, or stopped by train.patience."""
  return checkpoint.is_finished(
      phase.directory / 'checkpoints', phase.config.train
  )


def read_config(directory):
  """Returns a directory's config.json as nested dicts, or None.

  Keys of older versions are converted to the current ones (`schema.update`).
  """
  path = Path(directory) / CONFIG_FILE
  try:
    config = files.read_object(path)
  except FileNotFoundError:
    return None
  except NotADirectoryError:
    raise InputError(f'{directory}: not a directory') from None
  if 'train' not in config:  # a Hugging Face directory's
    return config
  schema.check_stored(path, config)
  return schema.update(config)


def begin(directory, config, vocabulary, shares=()):
  """Writes vocabulary/ and then config.json, each atomically."""
  if not (directory / 'vocabulary').exists() or read_config(directory) is None:
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f'vocabulary.tmp{os.getpid()}'
    vocabulary_lib.save_vocabulary(vocabulary, temporary)
    shutil.rmtree(directory / 'vocabulary', ignore_errors=True)
    os.rename(temporary, directory / 'vocabulary')
  write_config(directory, config, shares)


def write_config(directory, config, shares=()):
  """Writes config.json.

  Args:
    config: its config, shares of train.steps resolved to steps.
    shares: {'optim.warmup_steps': 0.05, ...}, the shares before resolution.
  """
  stored = to_dict(config)
  if shares:
    stored[SHARES] = dict(shares)
  files.write(
      Path(directory) / CONFIG_FILE, json.dumps(stored, indent=2) + '\n'
  )


def save_queries(directory, asked):
  """Writes whether the training rows have queries (None: not known)."""
  if asked is None:
    return
  files.write(
      os.path.join(directory, _QUERIES_FILE),
      json.dumps({'queries': bool(asked)}) + '\n',
  )


def load_queries(directory):
  """Returns whether a run was trained with queries; None: it does not say.

  Runs of older versions, and released models, do not say.
  """
  try:
    found = files.read_object(os.path.join(directory, _QUERIES_FILE))
  except FileNotFoundError:
    return None
  return found.get('queries') is True


@contextlib.contextmanager
def hold_lock(workdir):
  """A context that holds the lock on WORKDIR; the first host does, for all."""
  with contextlib.ExitStack() as stack:
    with collective.raising_together():
      if collective.is_first_host():
        stack.enter_context(_hold_lock(workdir))
    yield


@contextlib.contextmanager
def _hold_lock(workdir):
  """A context that holds the lock on WORKDIR: one process trains in it.

  WORKDIR/run.lock only names the holder: the existence of the file is not the
  lock, see `files.open_locked`.
  """
  path = Path(workdir) / LOCK_FILE
  try:
    file = files.open_locked(path, parents=True)
  except BlockingIOError:
    raise InputError(
        f'{workdir}: {_lock_holder(path)} is training here: wait for its end, or use '
        'another --workdir'
    ) from None
  except (FileExistsError, NotADirectoryError):
    raise InputError(f'{workdir}: not a directory') from None
  except OSError as error:
    if error.errno not in files.NO_LOCKS:
      raise InputError(
          f'{workdir}: cannot be written: {error.strerror}'
      ) from None
    print(
        f'{workdir}: its file system has no locks: nothing prevents another '
        'process from training here',
        file=sys.stderr,
    )
    file = open(path, 'a+b', buffering=0)
  with file:
    file.truncate(0)
    file.write(f'{os.getpid()} {socket.gethostname()}'.encode())
    try:
      yield
    finally:
      path.unlink(missing_ok=True)


def _lock_holder(path):
  """Returns 'process PID on HOST' from the lock's file."""
  try:
    with open(path, encoding='utf-8', errors='replace') as file:
      pid, _, host = file.read(300).partition(' ')
  except OSError:  # the holder has ended
    return 'another process'
  known = pid.isdecimal() and host.isprintable()
  return f'process {pid} on {host}' if known else 'another process'
