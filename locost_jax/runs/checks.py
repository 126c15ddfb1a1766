"""Checks keys, files and vocabulary before a run writes anything."""

import importlib.util
import os

from locost_jax import files
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.config import object_store
from locost_jax.data import mixture
from locost_jax.data import tasks
from locost_jax.data.pages import CHUNKS
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.evaluation import evaluate
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import resume
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import warm_start
from locost_jax.vocabularies import sentencepiece_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib

_SIDES = ('inputs', 'max_input_length'), ('targets', 'max_target_length')
_WITHOUT_ROWS = (
    "config.train.init_map=(('(token_embedding|logits)/.*', ''),) to begin "
    'with new rows'
)


def check_configs(setups, workdir):
  """Checks keys, and that a run in WORKDIR can be continued with them."""
  files.check_directory('--workdir', workdir)
  for setup in setups:
    check_keys(setup, setups[0])
    cache_dir = setup.config.data.cache_dir
    if cache_dir and not object_store.is_uri(cache_dir):
      files.check_directory('data.cache_dir', cache_dir)
  resume.check_unchanged(setups, workdir)


def check_all(setups, workdir):
  """Checks keys, then files and fields, then the vocabulary."""
  check_configs(setups, workdir)
  require_train_extra()
  for setup in setups:
    tasks.check(setup.config)
    tasks.check_training(setup.config)
  vocabulary = choose_vocabulary(setups, workdir)
  to_be_trained = sentencepiece_vocabulary.SentencePieceVocabulary
  for setup in setups:
    tasks.check_starts(setup.config, vocabulary or to_be_trained)
    check_forced_tokens(setup.config, vocabulary)
  first = setups[0].config
  models.check_padding(
      assemble.model_facts(first),
      (vocabulary or to_be_trained).pad_id,
      f'config.data.vocabulary={first.data.vocabulary}',
  )
  return vocabulary


def check_keys(setup, first):
  """Raises an InputError for invalid values of the config."""
  config, mesh = setup.config, setup.mesh
  check_training_keys(config, mesh)
  check_evaluation_keys(setup)
  if config.optim.groups or config.train.lora.rank:
    objectives.make_optimizer(config, setup.shapes)
  for key in first.config.model:
    may_change = key in ('dropout_rate', 'select', 'selection')
    if config.model[key] != first.config.model[key] and not may_change:
      raise InputError(
          f'config.phases, {setup.name}: model.{key} cannot change from one '
          'phase to the next'
      )


def check_training_keys(config, mesh):
  """Raises an InputError for invalid values of keys that training reads."""
  optim.check(config.optim, config.train.steps)
  objectives.check(config)
  settings = config.train
  for key, value in (
      ('train.eval_every', settings.eval_every),
      ('checkpoint.keep_best', config.checkpoint.keep_best),
  ):
    if settings.patience and not value:
      raise InputError(
          f'train.patience={settings.patience} counts evaluations since '
          f'the best one: expected {key} above 0'
      )
  sharding.check_batch_size(settings.batch_size, mesh, 'train.batch_size')
  rows = settings.batch_size // sharding.batch_parts(mesh)
  if rows % settings.accumulate:
    raise InputError(
        f'train.accumulate={settings.accumulate}: expected a divisor of {rows},'
        ' the documents of a step on each device (train.batch_size='
        f'{settings.batch_size})'
    )


def check_evaluation_keys(setup):
  """Raises an InputError for invalid values of keys that evaluations read."""
  config, mesh = setup.config, setup.mesh
  evaluate.check(config)
  sharding.check_batch_size(config.eval.batch_size, mesh, 'eval.batch_size')
  sharding.check_model(config.model, mesh, pages_of(config))
  models.check_numerics(config.train.dtype, config.train.remat)
  check_reading(config)
  check_positions(config)


def check_forced_tokens(config, vocabulary):
  """Raises an InputError for forced tokens outside the vocabulary.

  None stands for a vocabulary to be trained, of config.data.vocabulary_size.
  """
  size = vocabulary.size if vocabulary else config.data.vocabulary_size
  try:
    decode_settings.check(decode_settings.of_run(config), size)
  except InputError as error:
    raise InputError(f'decode.{error}') from None


def pages_of(config):
  """Returns the argument `pages` of `sharding.check_model`."""
  if not assemble.model_facts(config).page_forms:
    return 0
  return None if config.data.pages in CHUNKS else config.data.num_pages


def check_reading(config):
  """Raises an InputError if the model does not read this form of input."""
  name, data = config.model.name, config.data
  model = assemble.model_facts(config)
  forms = model.page_forms
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
  if model.padding == 'release' and not data.empty_page:
    raise InputError(
        "config.data.empty_page='': with model.padding='release' a page "
        'without tokens counts like any other, and its states would depend on '
        "the padding of its batch; expected '.', or model.padding='tokens'"
    )


def limits(config):
  """Yields (section, key, maximum) of the lengths that positions limit."""
  facts = assemble.model_facts(config)
  read = 'page_length' if config.data.pages else 'max_input_length'
  for section, key, own in (
      ('data', read, facts),
      ('data', 'max_target_length', facts.of_targets()),
      ('decode', 'max_length', facts.of_targets()),
  ):
    if own.max_positions is not None:
      yield section, key, own.max_positions


def check_positions(config):
  """Raises an InputError for lengths above the model's positions."""
  for section, key, limit in limits(config):
    if config[section][key] > limit:
      raise InputError(
          f'config.{section}.{key}={config[section][key]}: expected at most '
          f'model.max_positions={limit}, the most that '
          f'{config.model.name} reads or writes'
      )


def require_train_extra():
  """Raises an InputError with the pip command if caches cannot be read."""
  if importlib.util.find_spec('array_record') is None:
    raise InputError(
        'training needs array_record: pip install "locost_jax[train]"'
    )


def choose_vocabulary(setups, workdir):
  """Returns the run's vocabulary, or None if it is to be trained.

  A continued run has the vocabulary in WORKDIR, a new one that of
  config.data.vocabulary or, if this is 'train', of train.init_from.

  Raises:
    InputError: two of these vocabularies differ, train.init_from has none, or
      they lack config.data.language.
  """
  for key in 'language', 'vocabulary':
    name, *more = sorted({setup.config.data[key] for setup in setups})
    if more:
      raise InputError(
          f'config.data.{key} must be the same in all phases, '
          f'not {" and ".join([name, *more])}'
      )
  found, load = {}, vocabulary_lib.load_vocabulary
  begun = phases_lib.read_config(workdir) is not None
  if begun:
    found[str(workdir)] = load(workdir / 'vocabulary')
  if name != 'train':
    found[f'config.data.vocabulary={name}'] = load(name)
  settings = setups[0].config.train
  init_from = settings.init_from
  # train.init_map may exclude the embedding.
  takes_rows = lambda: not found or warm_start.takes_vocabulary(
      settings.init_map, parameters.flatten(setups[0].shapes)
  )
  if init_from and not begun and takes_rows():
    where = f'config.train.init_from={init_from}'
    found[where] = find.find_vocabulary(_find_home(init_from))
    if found[where] is None:
      raise InputError(
          f'{where}: has no vocabulary, so the tokens of its embedding are '
          'unknown; put its tokenizer files there, or give another '
          f'config.data.vocabulary and {_WITHOUT_ROWS}'
      )
  for where, other in found.items() or [('', None)]:
    found[where] = tasks.in_language(other, setups[0].config.data)
  (first, vocabulary), *others = found.items()
  for where, other in others:
    if other.fingerprint != vocabulary.fingerprint:
      alternative = '' if begun else f', or {_WITHOUT_ROWS}'
      raise InputError(
          f'{where} has another vocabulary ({other.size} tokens) than {first} '
          f'({vocabulary.size} tokens): expected the same{alternative}'
      )
  return vocabulary


def _find_home(init_from):
  """Returns the directory of the vocabulary of train.init_from."""
  init_from = warm_start.find_directory(init_from)
  run = find.find_run(init_from)
  if run is not None:
    return run[0]
  if not os.path.exists(os.path.join(init_from, phases_lib.CONFIG_FILE)):
    raise InputError(
        f'config.train.init_from={init_from}: no config.json in this '
        'directory; expected a WORKDIR or a Hugging Face directory'
    )
  return init_from


def describe_cut(setup):
  """Yields a line for each split with documents cut at the maximum lengths.

  The counts are stored in the token caches, so they cost nothing here.
  """
  for split in 'train', 'validation':
    found = setup.eval_caches(split)
    if isinstance(cache := found.get(setup.task), mixture.Mixture):
      found = cache.tasks
    for task, cache in found.items():
      if parts := '; '.join(_parts_cut(cache, setup.config.data)):
        yield f'{task}, {split}: {parts}'


def _parts_cut(cache, data):
  """Yields 'data.max_input_length=512 cuts 3 of 9 inputs, ...'."""
  # A cache that is filled while the run trains has neither.
  stats, lengths = getattr(cache, 'stats', {}), getattr(cache, 'lengths', ())
  for i, (side, key) in enumerate(_SIDES):
    if not len(lengths) or (side == 'inputs' and data.pages):
      continue
    most, count, share = data[key], stats.get(f'{side}_cut'), ''
    if count is None:  # a cache of an older version, or a part of a cache
      count = int((lengths[:, i] >= most).sum())
    else:
      lost = stats[f'{side}_lost']
      whole = lost + stats[f'{side[:-1]}_tokens']
      share = f', {lost / max(whole, 1):.1%} of their tokens'
    if count:
      yield f'data.{key}={most} cuts {count:,} of {len(lengths):,} {side}{share}'
