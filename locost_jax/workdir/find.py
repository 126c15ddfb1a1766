"""Finds a run's checkpoint and vocabulary in a directory, and loads them."""

import functools
import math
import os
from pathlib import Path
import re
import sys

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
  """Finds a run's checkpoint.

  Args:
    directory: a WORKDIR, a checkpoint in one, or the directory of a model that
      comes with the package. A WORKDIR with phases means its last finished
      phase or, if none is finished, the last one with a checkpoint; a WORKDIR
      with several seeds means its best seed (`best_seed`).

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
  if config is None and (best := best_seed(given)):
    return find_run(best)
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


def seeds(directory):
  """Returns {seed: path} of the runs in WORKDIR/seed-SEED, ascending.

  Args:
    directory: a WORKDIR; {} if it is a single run.
  """
  directory = Path(directory)
  # os.path, because Path raises an error for an invalid path.
  if (
      not os.path.isdir(directory)
      or (directory / phases_lib.CONFIG_FILE).exists()
  ):
    return {}
  found = {
      int(path.parent.name.removeprefix('seed-')): path.parent
      for path in directory.glob(f'seed-*/{phases_lib.CONFIG_FILE}')
      if re.fullmatch(r'seed-\d+', path.parent.name)
  }
  return dict(sorted(found.items()))


def best_seed(directory):
  """Returns the best run of a WORKDIR of several seeds, and logs it on stderr.

  Compares the best checkpoints of the finished runs or, if none is finished, of
  the runs that have a checkpoint.

  Args:
    directory: a WORKDIR.

  Returns:
    The path of the seed's directory; None if there are no seeds.

  Raises:
    InputError: no seed has a checkpoint, or their metrics differ.
  """
  begun = {}
  for path in seeds(directory).values():
    try:
      begun[path] = find_run(path)
    except InputError:  # no checkpoint yet
      continue
  if not begun:
    if seeds(directory):
      raise InputError(f'{directory}: none of its seeds has a checkpoint yet')
    return None
  finished = {path: run for path, run in begun.items() if _is_finished(path)}
  chosen_by, scores = set(), {}
  for path, (_, step_directory, _) in (finished or begun).items():
    metrics = checkpoint.read_metrics(step_directory)
    scores[path] = metrics.get(checkpoint.SCORE, -math.inf)
    if checkpoint.SCORE in metrics:
      chosen_by.add(metrics.get(checkpoint.SCORE_OF, 'score'))
  if len(chosen_by) > 1:
    raise InputError(
        f'{directory}: its seeds have different checkpoint metrics: '
        f'{", ".join(sorted(map(str, chosen_by)))}; expected one of '
        f'{directory}/seed-N'
    )
  best = max(scores, key=scores.get)
  # The score is negative for metrics that are better when lower.
  by = [f'{name} {abs(scores[best]):.4g}' for name in chosen_by]
  by = by[0] if by else 'the first, as none was evaluated'
  _log_once(f'{directory}: {best.name}, the best of {len(scores)} seeds ({by})')
  return best


def _is_finished(directory):
  """Whether the last phase of a run is finished."""
  config = phases_lib.read_config(directory)
  if config.get('phases'):
    directory = directory / config['phases'][-1][0]
    config = phases_lib.read_config(directory)
  return config is not None and checkpoint.is_finished(
      directory / 'checkpoints', config['train']
  )


@functools.lru_cache  # once per line
def _log_once(line):
  print(line, file=sys.stderr, flush=True)


def load_run_params(directory, config):
  """Loads a checkpoint's model parameters as numpy arrays, adapters merged.

  Args:
    config: the run's config, as nested dicts.
  """
  if find_builtin.has_parameters(directory):
    return parameters.unflatten(find_builtin.load_parameters(directory))
  # Runs of versions without adapters lack the key.
  settings = config['train'].get('lora', {'alpha': 1.0})
  params = lora.merge(checkpoint.load_params(directory), settings['alpha'])
  return jax.tree.map(np.asarray, params)


def find_vocabulary(home):
  """Returns the vocabulary of a run or a Hugging Face directory, or None."""
  for directory in (os.path.join(home, 'vocabulary'), home):
    if vocabulary_lib.is_in(directory):
      return vocabulary_lib.load_vocabulary(directory)
  return None


def check_vocabulary(home, vocabulary, config):
  """Raises an InputError if the embedding has fewer rows than tokens.

  It may have more, because releases round the number up.

  Args:
    home: their directory, for the message.
    vocabulary: a vocabulary, or None.
  """
  if vocabulary is not None and vocabulary.size > config['vocab_size']:
    raise InputError(
        f'{home}: its vocabulary has {vocabulary.size} tokens, its model only '
        f'{config["vocab_size"]}: they do not belong together'
    )
