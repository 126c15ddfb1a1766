"""What a run is put together from: vocabulary, model, batches, evaluation.

The command lines use it; every function takes a `workdir.Phase` or its config.
"""

import copy
import math
import os
import shutil
import sys

import jax
from jax.experimental import multihost_utils

from locost_jax import evaluate
from locost_jax import models
from locost_jax import pretrained
from locost_jax import sharding
from locost_jax import train
from locost_jax import workdir as runs
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.data import vocabulary as vocabularies
from locost_jax.errors import InputError


def find_vocabulary(phases, workdir):
  """Returns the vocabulary that is there, or None: it is to be trained.

  It is that of WORKDIR when the run goes on; else config.data.vocabulary; with
  'train', that of train.init_from.

  Raises:
    InputError: two of them differ.
  """
  names = sorted({phase.config.data.vocabulary for phase in phases})
  if len(names) > 1:
    raise InputError('config.data.vocabulary must be the same in all phases, '
                     f'not {" and ".join(names)}')
  found = {}
  begun = runs.read_config(workdir) is not None
  if begun:
    found[str(workdir)] = vocabularies.load_vocabulary(workdir / 'vocabulary')
  if names[0] != 'train':
    found[f'config.data.vocabulary={names[0]}'] = (
        vocabularies.load_vocabulary(names[0]))
  init_from = phases[0].config.train.init_from
  if init_from and not begun:
    home = find_origin(init_from)[0]
    found[f'config.train.init_from={init_from}'] = (
        vocabularies.load_vocabulary(os.path.join(home, 'vocabulary')))
  if not found:
    return None
  (first, vocabulary), *others = found.items()
  for where, other in others:
    if other.fingerprint != vocabulary.fingerprint:
      raise InputError(
          f'{where} has another vocabulary ({other.size} tokens) than {first} '
          f'({vocabulary.size} tokens): expected the same')
  return vocabulary


def fill_vocab_size(config, vocabulary):
  """Sets config.model.vocab_size to the vocabulary's size where it is 0.

  Raises:
    InputError: it is smaller.
  """
  if not config.model.vocab_size:
    config.model.vocab_size = vocabulary.size
  if config.model.vocab_size < vocabulary.size:
    raise InputError(
        f'config.model.vocab_size={config.model.vocab_size}: expected 0 or at '
        f'least {vocabulary.size}, the tokens of the vocabulary')


def build(config):
  return models.build(config.model, config.train.dtype, config.train.remat)


def find_origin(init_from):
  """Returns (home, checkpoint directory) of train.init_from.

  Raises:
    InputError: there is no checkpoint of a run.
  """
  if not os.path.isdir(init_from):
    raise InputError(f'config.train.init_from={init_from}: no such directory')
  run = pretrained.find_run(init_from)
  if run is None:
    raise InputError(f'config.train.init_from={init_from}: no config.json of a '
                     'run in this directory; expected a WORKDIR')
  return run[:2]


def with_init(phase):
  """The phase's config, train.init_from being a checkpoint's directory.

  Once the phase has a checkpoint of its own, that of its origin is not read.
  """
  config = copy.deepcopy(phase.config)
  if config.train.init_from and not runs.has_checkpoint(phase):
    config.train.init_from = str(find_origin(config.train.init_from)[1])
  return config


def check_init(phase, model):
  """Raises an InputError if train.init_from holds another model."""
  if phase.config.train.init_from and not runs.has_checkpoint(phase):
    train.load_init(with_init(phase).train.init_from,
                    pretrained.abstract_params(model))


def save_start(directory, config, vocabulary):
  """Writes vocabulary/ and then config.json, each whole or not at all."""
  if not (directory / 'vocabulary').exists() or (
      runs.read_config(directory) is None):
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f'vocabulary.tmp{os.getpid()}'
    vocabularies.save_vocabulary(vocabulary, temporary)
    shutil.rmtree(directory / 'vocabulary', ignore_errors=True)
    os.rename(temporary, directory / 'vocabulary')
  runs.write_config(directory, config)


def train_batches(cache, config, start_step):
  part = sharding.host_part(sharding.make_mesh(config.mesh))
  return pipeline.train_batches(
      cache, config, start_step, part.index, part.count)


def eval_batches(cache, config):
  part = sharding.host_part(sharding.make_mesh(config.mesh))
  return pipeline.eval_batches(cache, config, part.index, part.count)


def evaluate_phase(phase, vocabulary, cache, split, params, step):
  """Measures a phase's model on a split and keeps the predictions."""
  config, metrics = phase.config, {}
  for task, task_cache in by_task(phase, cache).items():
    metrics |= evaluate.evaluate(
        build(config), params, eval_batches(task_cache, config), vocabulary,
        config, sharding.make_mesh(config.mesh), task, split,
        phase.directory / 'predictions' / f'{task}-{split}-{step}.jsonl')
  return metrics


def task_name(phase):
  return tasks.name(phase.config)


def by_task(phase, cache):
  """{task: cache} of what `open_cache` gave for an evaluation split."""
  if cache is None:
    return {}
  return cache if isinstance(cache, dict) else {task_name(phase): cache}


def without_hidden(cache):
  """A test split, tasks whose summaries are hidden left out; None: all are.

  Args:
    cache: of `open_cache`: a Cache, a dict of them, or None.
  """
  if cache is None:
    return None
  several = cache if isinstance(cache, dict) else {'': cache}
  # An empty summary is an end mark.
  shown = {task: found for task, found in several.items()
           if (found.lengths[:, 1] > 1).any()}
  for task in several.keys() - shown.keys():
    tell(f'{task or "the task"}: the summaries of the test split are hidden')
  if not shown:
    tell('measuring on the validation split')
    return None
  return shown if isinstance(cache, dict) else cache


def count_parameters(model):
  leaves = jax.tree.leaves(pretrained.abstract_params(model))
  return sum(math.prod(leaf.shape) for leaf in leaves)


def is_first_host():
  return jax.process_index() == 0


def wait_for_hosts(name):
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)


def tell(text):
  if is_first_host():
    print(text, file=sys.stderr, flush=True)
