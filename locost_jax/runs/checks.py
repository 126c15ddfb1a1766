"""Checks keys, files and vocabulary before a run makes anything."""

import importlib.util

from locost_jax import models
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.data.pages import CHUNKS
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.evaluation import evaluate
from locost_jax.generation import decode_settings
from locost_jax.runs import assemble
from locost_jax.runs import choose_vocabulary
from locost_jax.runs import resume
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import train
from locost_jax.values import directories
from locost_jax.vocabularies import sentencepiece_vocabulary

# What training needs beyond the base dependencies; `setup.cfg` has the same.
_TRAIN_EXTRA = (
    'tensorflow',
    'tensorflow_datasets',
    'seqio',
    'array_record',
    'msgpack',
)


def check_all(setups, workdir):
  """Checks keys, then files and fields, then the vocabulary.

  Args:
    setups: assemble.Setups of all phases.
    workdir: WORKDIR.

  Returns:
    The vocabulary, or None: it is to be trained.

  Raises:
    InputError: something is wrong.
  """
  directories.check('--workdir', workdir)
  for setup in setups:
    check_keys(setup, setups[0])
    objectives.check(setup.config)
    if setup.config.data.cache_dir:
      directories.check('data.cache_dir', setup.config.data.cache_dir)
  resume.check_unchanged(setups, workdir)
  require_train_extra()
  for setup in setups:
    tasks.check(setup.config)
  vocabulary = choose_vocabulary.choose_vocabulary(setups, workdir)
  to_be_trained = sentencepiece_vocabulary.SentencePieceVocabulary
  for setup in setups:
    tasks.check_starts(setup.config, vocabulary or to_be_trained)
    check_forced_tokens(setup.config, vocabulary)
  first = setups[0].config
  models.check_padding(
      first.model,
      (vocabulary or to_be_trained).pad_id,
      f'config.data.vocabulary={first.data.vocabulary}',
  )
  return vocabulary


def check_keys(setup, first):
  """Raises an InputError for values that no run can have; makes nothing.

  Args:
    setup: an assemble.Setup.
    first: that of the first phase.
  """
  config, mesh = setup.config, setup.mesh
  train.check(config)
  optim.make_schedule(config.optim, config.train.steps)
  check_evaluation_keys(setup)
  train.check_batch(config.train, mesh)
  pipeline.check(config, sharding.batch_parts(mesh) * config.train.accumulate)
  if config.optim.groups or config.train.lora.rank:
    objectives.make_optimizer(config, setup.shapes)
  for key in first.config.model:
    may_change = key in ('dropout_rate', 'select', 'selection')
    if config.model[key] != first.config.model[key] and not may_change:
      raise InputError(
          f'config.phases, {setup.name}: model.{key} cannot change from one '
          'phase to the next'
      )


def check_evaluation_keys(setup):
  """Raises an InputError for values that no evaluation can have.

  Keys that matter only in training are not looked at.

  Args:
    setup: an assemble.Setup.
  """
  config, mesh = setup.config, setup.mesh
  evaluate.check(config)
  sharding.check_batch_size(config.eval.batch_size, mesh, 'eval.batch_size')
  sharding.check_model(config.model, mesh, pages_of(config))
  models.make_config(assemble.with_vocabulary(config.model))
  models.check_numerics(config.train.dtype, config.train.remat)
  check_reading(config)
  check_positions(config)


def check_forced_tokens(config, vocabulary):
  """Raises an InputError for forced tokens that the vocabulary does not have.

  Args:
    config: the whole config.
    vocabulary: None: one of config.data.vocabulary_size is to be trained.
  """
  size = vocabulary.size if vocabulary else config.data.vocabulary_size
  try:
    decode_settings.check(evaluate.settings_of(config), size)
  except InputError as error:
    raise InputError(f'decode.{error}') from None


def pages_of(config):
  """The argument `pages` of `sharding.check_model`."""
  if not models.page_forms(config.model):
    return 0
  return None if config.data.pages in CHUNKS else config.data.num_pages


def check_reading(config):
  """Raises an InputError for inputs that the model does not read."""
  name, data = config.model.name, config.data
  forms = models.page_forms(config.model)
  if data.pages and not forms:
    raise InputError(
        f'config.data.pages={data.pages!r}: {name} reads a '
        "document as one sequence: expected ''"
    )
  if forms and data.pages not in forms:
    raise InputError(
        f'config.data.pages={data.pages!r}: {name} reads pages: expected '
        f'{" or ".join(map(repr, forms))}'
    )
  if config.model.get('padding') == 'release' and not data.empty_page:
    raise InputError(
        "config.data.empty_page='': with model.padding='release' a page "
        'without tokens counts as another, and what is read of it would depend '
        "on the padding of its batch; expected '.', or model.padding='tokens'"
    )


def check_positions(config):
  """Raises an InputError for lengths that the model has no positions for."""
  most, data = models.max_positions(config.model), config.data
  read = 'page_length' if data.pages else 'max_input_length'
  for key, length in (
      (f'data.{read}', data[read]),
      ('data.max_target_length', data.max_target_length),
      ('decode.max_length', config.decode.max_length),
  ):
    if most is not None and length > most:
      raise InputError(
          f'config.{key}={length}: expected at most '
          f'model.max_positions={most}, which is all that '
          f'{config.model.name} reads or writes'
      )


def require_train_extra():
  """Raises an InputError that names the pip line unless all is installed."""
  missing = [
      name for name in _TRAIN_EXTRA if importlib.util.find_spec(name) is None
  ]
  if missing:
    raise InputError(
        f'training needs {", ".join(missing)}: pip install "locost_jax[train]"'
    )
