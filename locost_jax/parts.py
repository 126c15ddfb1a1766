"""What a run is put together from: vocabulary, model, batches, evaluation.

The command lines use it; every function takes a `workdir.Phase` or its config.
"""

import math
import os
import shutil
import sys

import jax
from jax.experimental import multihost_utils

from locost_jax import evaluate
from locost_jax import models
from locost_jax import origin
from locost_jax import pretrained
from locost_jax import sharding
from locost_jax import warm_start
from locost_jax import workdir as runs
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.data import vocabulary as vocabularies
from locost_jax.errors import InputError
from locost_jax.hugging_face import hub

_WITHOUT_ROWS = (
    "config.train.init_map=(('(token_embedding|logits)/.*', ''),) to begin "
    'with new rows')


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
  config = phases[0].config
  if config.train.init_from and not begun and not (
      found and _leaves_vocabulary(config)):
    home = find_origin(config.train.init_from)
    where = f'config.train.init_from={config.train.init_from}'
    found[where] = pretrained.find_vocabulary(home)
    if found[where] is None:
      raise InputError(
          f'{where}: has no vocabulary, so nobody knows which token a row of '
          'its embedding is; put its tokenizer files there, or give another '
          f'config.data.vocabulary and {_WITHOUT_ROWS}')
  if not found:
    return None
  (first, vocabulary), *others = found.items()
  for where, other in others:
    if other.fingerprint != vocabulary.fingerprint:
      raise InputError(
          f'{where} has another vocabulary ({other.size} tokens) than {first} '
          f'({vocabulary.size} tokens): expected the same'
          + ('' if begun else f', or {_WITHOUT_ROWS}'))
  return vocabulary


def _leaves_vocabulary(config):
  """Whether train.init_map takes no embedding from train.init_from."""
  model = models.build(with_vocabulary(config.model))
  return not warm_start.takes_vocabulary(
      config.train.init_map,
      pretrained.flatten(pretrained.abstract_params(model)))


def with_vocabulary(model_config):
  """config.model as a dict, the size of its vocabulary filled in.

  Where it is not known yet it is the smallest that has the token of padding.
  """
  size = model_config.vocab_size or models.pad_id(model_config) + 1
  return dict(model_config, vocab_size=size)


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
  """Returns where the vocabulary of train.init_from is to be found.

  A name on the Hugging Face Hub is downloaded, unless it is here already.

  Raises:
    InputError: there is no model.
  """
  if not os.path.isdir(init_from) and not hub.is_name(init_from):
    raise InputError(f'config.train.init_from={init_from}: no such directory')
  init_from = hub.find_directory(init_from)
  run = pretrained.find_run(init_from)
  if run is not None:
    return run[0]
  if not os.path.exists(os.path.join(init_from, runs.CONFIG_FILE)):
    raise InputError(
        f'config.train.init_from={init_from}: no config.json in this '
        'directory; expected a WORKDIR or a Hugging Face directory')
  return init_from


def check_init(phase, model):
  """Returns what will be taken from train.init_from, in a line, or None.

  Raises:
    InputError: it does not fit.
  """
  if not phase.config.train.init_from or runs.has_checkpoint(phase):
    return None
  return origin.load(phase.config, pretrained.abstract_params(model))[1]


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


def train_batches(cache, vocabulary, config, start_step):
  part = sharding.host_part(sharding.make_mesh(config.mesh))
  return pipeline.train_batches(
      cache, vocabulary, config, start_step, part.index, part.count)


def eval_batches(cache, vocabulary, config):
  part = sharding.host_part(sharding.make_mesh(config.mesh))
  return pipeline.eval_batches(
      cache, vocabulary, config, part.index, part.count)


def evaluate_phase(phase, vocabulary, cache, split, params, step):
  """Measures a phase's model on a split and keeps the predictions."""
  config, metrics = phase.config, {}
  for task, task_cache in by_task(phase, cache).items():
    metrics |= evaluate.evaluate(
        build(config), params, eval_batches(task_cache, vocabulary, config),
        vocabulary, config, sharding.make_mesh(config.mesh), task, split,
        phase.directory / 'predictions' / f'{task}-{split}-{step}.jsonl')
  return metrics


def task_name(phase):
  return tasks.name(phase.config)


def by_task(phase, cache):
  """{task: cache} of what `open_cache` gave for an evaluation split."""
  if cache is None:
    return {}
  return cache if isinstance(cache, dict) else {task_name(phase): cache}


def without_hidden(cache, vocabulary):
  """A test split, tasks whose summaries are hidden left out; None: all are.

  Args:
    cache: of `open_cache`: a Cache, a dict of them, or None.
    vocabulary: whose tokens its records hold.
  """
  if cache is None:
    return None
  several = cache if isinstance(cache, dict) else {'': cache}
  empty = len(vocabularies.surround(vocabulary, []))
  shown = {task: found for task, found in several.items()
           if (found.lengths[:, 1] > empty).any()}
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
