"""Finds a run's checkpoint, vocabulary and predictions in a directory."""

import os
from pathlib import Path

import jax
import numpy as np

from locost_jax.errors import InputError
from locost_jax.errors import not_finite
from locost_jax.hugging_face import find_builtin
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import phases as phases_lib


def find_run(directory):
  """Finds a run's checkpoint.

  Args:
    directory: a WORKDIR, a checkpoint in one, or the directory of a model that
      comes with the package. A WORKDIR with phases means its last finished
      phase or, if none is finished, the last one with a checkpoint.

  Returns:
    (home, checkpoint, config as nested dicts), where home is the directory of
    config.json and vocabulary/; None if no run wrote the directory.
  """
  given, directory = directory, os.path.abspath(directory)
  if checkpoint.step_of(directory) is not None:
    if not os.path.isdir(directory):
      raise InputError(f'{given}: no such directory')
    home, step_directory = (
        os.path.dirname(os.path.dirname(directory)),
        directory,
    )
  else:
    home, step_directory = directory, None
  config = phases_lib.read_config(home)
  if config is None or 'train' not in config:
    return None
  if find_builtin.has_parameters(home):
    return home, home, config
  if config.get('phases'):
    phases = [os.path.join(home, phase) for phase, _ in config['phases']]
    steps_of = lambda phase: os.path.join(phase, 'checkpoints')
    begun = [
        (phase, phases_lib.read_config(phase))
        for phase in reversed(phases)
        if checkpoint.latest_step(steps_of(phase)) is not None
    ]
    finished = [
        (phase, settings)
        for phase, settings in begun
        if checkpoint.is_finished(steps_of(phase), settings['train'])
    ]
    home, config = (finished or begun or [(home, config)])[0]
  return home, step_directory or checkpoint.find(home), config


def load_run_params(directory, config):
  """Loads a checkpoint's model parameters as numpy arrays, adapters merged."""
  if find_builtin.has_parameters(directory):
    return parameters.unflatten(find_builtin.load_parameters(directory))
  # Runs of versions without adapters lack the key.
  settings = config['train'].get('lora', {'alpha': 1.0})
  params = lora.merge(checkpoint.load_params(directory), settings['alpha'])
  params = jax.tree.map(np.asarray, params)
  for name, array in parameters.flatten(params).items():
    if not np.isfinite(array).all():
      raise not_finite(directory, name)
  return params


def find_vocabulary(home):
  """Returns the vocabulary of a run or a Hugging Face directory, or None."""
  for directory in (os.path.join(home, 'vocabulary'), home):
    if vocabulary_lib.is_in(directory):
      return vocabulary_lib.load_vocabulary(directory)
  return None


def with_separator(config, vocabulary):
  """Returns a released config.model, with PRIMERA's <doc-sep> if it is one."""
  i = getattr(vocabulary, 'separator_id', None)
  is_primera = config['name'] == 'led' and i is not None
  return config | {'separator_id': i} if is_primera else config


def check_vocabulary(home, vocabulary, config):
  """Raises an InputError if the embedding has fewer rows than tokens.

  It may have more, because releases round the number up.
  """
  if vocabulary is not None and vocabulary.size > config['vocab_size']:
    raise InputError(
        f'{home}: its vocabulary has {vocabulary.size} tokens, its model only '
        f'{config["vocab_size"]}: they do not belong together'
    )


def newest_predictions(directory, split=None):
  """Returns the newest predictions of a run's best checkpoint on a split."""
  run = find_run(directory)
  if run is None:
    raise InputError(
        f'{directory}: no config.json of a run in it; expected a file of '
        'predictions or a WORKDIR'
    )
  home, step_directory, _ = run
  step = Path(step_directory).name
  name = f'*-{split or "*"}-{step}'
  folder = Path(home) / 'predictions'
  found = sorted(
      [*folder.glob(f'{name}.jsonl'), *folder.glob(f'{name}.settings-*.jsonl')],
      key=lambda path: (path.stat().st_mtime_ns, path.name),
  )
  if not found:
    raise InputError(
        f'{directory}: no predictions of its best checkpoint, step {step} '
        f'({folder}/{name}.jsonl): main --evaluate writes them'
    )
  return os.path.relpath(found[-1])
