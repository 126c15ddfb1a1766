"""Finds a run's checkpoint and vocabulary in a directory, and loads them."""

import os

import jax
import numpy as np

from locost_jax.builtin import find_builtin
from locost_jax.errors import InputError
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import phases as phases_lib


def find_run(directory):
  """Where a run's checkpoint lies.

  Args:
    directory: a WORKDIR (with phases it stands for the last finished one; while
      none is, for the last that has a checkpoint), a checkpoint in one, or the
      directory of a model that comes with the package.

  Returns:
    (home, checkpoint, config as nested dicts), home being where config.json and
    vocabulary/ are; None when no run wrote the directory.
  """
  directory = os.path.abspath(directory)
  parent, name = os.path.split(directory)
  if name.isdigit() and os.path.basename(parent) == 'checkpoints':
    home, step_directory = os.path.dirname(parent), directory
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
  """The model's parameters in a checkpoint, adapters merged, as numpy.

  Args:
    directory: of the checkpoint.
    config: the run's, as nested dicts.
  """
  if find_builtin.has_parameters(directory):
    return parameters.unflatten(find_builtin.load_parameters(directory))
  # Runs begun before there were adapters say nothing of them, and have none.
  settings = config['train'].get('lora', {'alpha': 1.0})
  params = lora.merge(checkpoint.load_params(directory), settings['alpha'])
  return jax.tree.map(np.asarray, params)


def find_vocabulary(home):
  """The vocabulary of a run or a Hugging Face directory, or None."""
  for directory in (os.path.join(home, 'vocabulary'), home):
    if vocabulary_lib.is_in(directory):
      return vocabulary_lib.load_vocabulary(directory)
  return None


def check_vocabulary(home, vocabulary, config):
  """Raises an InputError if the embedding has fewer rows than tokens.

  More it may have: releases round it up.

  Args:
    home: where both are, to name it.
    vocabulary: or None.
    config: `config.model` as a mapping.
  """
  if vocabulary is not None and vocabulary.size > config['vocab_size']:
    raise InputError(
        f'{home}: its vocabulary has {vocabulary.size} tokens, its model only '
        f'{config["vocab_size"]}: they do not belong together'
    )
