"""Chooses a run's vocabulary: its own, the config's, or its warm start's."""

import os

from locost_jax.errors import InputError
from locost_jax.hugging_face import hub
from locost_jax.models import parameters
from locost_jax.training import warm_start
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib

_WITHOUT_ROWS = (
    "config.train.init_map=(('(token_embedding|logits)/.*', ''),) to begin "
    'with new rows'
)


def choose_vocabulary(setups, workdir):
  """Returns the run's vocabulary, or None if it is to be trained.

  A continued run has the vocabulary in WORKDIR, a new one that of
  config.data.vocabulary or, if this is 'train', of train.init_from.

  Raises:
    InputError: two of these vocabularies differ, or train.init_from has none.
  """
  names = sorted({setup.config.data.vocabulary for setup in setups})
  if len(names) > 1:
    raise InputError(
        'config.data.vocabulary must be the same in all phases, '
        f'not {" and ".join(names)}'
    )
  found = {}
  begun = phases_lib.read_config(workdir) is not None
  if begun:
    found[str(workdir)] = vocabulary_lib.load_vocabulary(workdir / 'vocabulary')
  if names[0] != 'train':
    found[f'config.data.vocabulary={names[0]}'] = (
        vocabulary_lib.load_vocabulary(names[0])
    )
  first = setups[0]
  init_from = first.config.train.init_from
  if init_from and not begun and not (found and _leaves_embedding(first)):
    where = f'config.train.init_from={init_from}'
    found[where] = find.find_vocabulary(_find_home(init_from))
    if found[where] is None:
      raise InputError(
          f'{where}: has no vocabulary, so the tokens of its embedding are '
          'unknown; put its tokenizer files there, or give another '
          f'config.data.vocabulary and {_WITHOUT_ROWS}'
      )
  return _check_equal(found, '' if begun else f', or {_WITHOUT_ROWS}')


def _check_equal(found, alternative):
  """Returns the vocabulary of {where: vocabulary}; all must be equal."""
  if not found:
    return None
  (first, vocabulary), *others = found.items()
  for where, other in others:
    if other.fingerprint != vocabulary.fingerprint:
      raise InputError(
          f'{where} has another vocabulary ({other.size} tokens) than {first} '
          f'({vocabulary.size} tokens): expected the same{alternative}'
      )
  return vocabulary


def _leaves_embedding(setup):
  """Whether train.init_map excludes the embedding of train.init_from."""
  return not warm_start.takes_vocabulary(
      setup.config.train.init_map, parameters.flatten(setup.shapes)
  )


def _find_home(init_from):
  """Returns the directory of the vocabulary of train.init_from.

  A model on the Hugging Face Hub is downloaded unless it is cached.

  Raises:
    InputError: there is no model.
  """
  try:
    init_from = hub.find_directory(init_from)
  except InputError as error:
    raise InputError(f'config.train.init_from={error}') from None
  run = find.find_run(init_from)
  if run is not None:
    return run[0]
  if not os.path.exists(os.path.join(init_from, phases_lib.CONFIG_FILE)):
    raise InputError(
        f'config.train.init_from={init_from}: no config.json in this '
        'directory; expected a WORKDIR or a Hugging Face directory'
    )
  return init_from
