"""Registers every corpus and mixture of data/corpora.py in SeqIO.

  from locost_jax.data import seqio_tasks
  import seqio

  dataset = seqio.get_mixture_or_task('c4_gsg').get_dataset(
      dict(inputs=4096, targets=910), split='train')

Importing this module registers them with the byte vocabulary; `register`
chooses another one. Data is searched for only when it is read. The examples are
token for token those that a run of the same config trains on. The rate of a
corpus in a mixture is its number of rows, at most config.data.mixture_cap.

This module loads TensorFlow, so no other module of locost_jax imports it.
"""

import functools

from ml_collections import ConfigDict

from locost_jax.config import schema
from locost_jax.data import corpora
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import preprocessors
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.vocabularies import vocabulary as vocabulary_lib

seqio = preprocessors.seqio  # imported there, quietly

# The keys that are read.
DEFAULTS = ConfigDict(
    dict(data=schema.defaults('data'), gsg=None, span_corruption=None)
)

_registered = {}  # name -> our seqio.Task or seqio.Mixture
_made_of = None  # (name of the vocabulary, its fingerprint, the config)
_is_chosen = False  # whether `register` was called after the import


def register(vocabulary='byte', config=None):
  """Registers every corpus and mixture in SeqIO, all or none.

  The first call replaces what importing this module registered. Later calls
  must repeat it, because the tasks may be in use.

  Args:
    vocabulary: a path (T5's or BART's files, or what a run saved), or 'byte'.
    config: a run's config; its data (without task and files), gsg and
      span_corruption are read. None: the defaults.

  Raises:
    InputError: the vocabulary does not exist; another library has registered
      one of the names; an earlier call chose another vocabulary or config.
  """
  global _made_of, _is_chosen
  tokens = vocabulary_lib.load_vocabulary(vocabulary)
  config = DEFAULTS if config is None else config
  read = {key: config.get(key) for key in DEFAULTS}
  made_of = str(vocabulary), tokens.fingerprint, str(ConfigDict(read))
  is_same = _made_of is not None and made_of[1:] == _made_of[1:]
  if _is_chosen and not is_same:
    raise InputError(
        f'vocabulary={str(vocabulary)!r}: the tasks of locost_jax are '
        f'registered already, with vocabulary={_made_of[0]!r} or another '
        'config, and may be in use: expected the same again; start another '
        'process for other settings'
    )
  _check_names()
  if not is_same:
    _registered.update(_make(config, tokens))
  for name, provider in _registered.items():
    seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(name)
    is_mixture = name in corpora.MIXTURES
    registry = seqio.MixtureRegistry if is_mixture else seqio.TaskRegistry
    registry.add_provider(name, provider)
  _made_of, _is_chosen = made_of, True


def _check_names():
  """Raises an InputError if another library has registered a name."""
  for kind, registry in (
      ('task', seqio.TaskRegistry),
      ('mixture', seqio.MixtureRegistry),
  ):
    taken = [
        name
        for name in corpus_lib.names()
        if name in registry.names()
        and registry.get(name) is not _registered.get(name)
    ]
    if taken:
      raise InputError(
          f'another library has registered the SeqIO {kind} '
          f'{", ".join(taken)}, a name of locost_jax: expected another name '
          'there'
      )


def _make(config, vocabulary):
  """Returns {name: seqio.Task or seqio.Mixture} of all corpora."""
  names = [name for name in corpus_lib.names() if name not in corpora.MIXTURES]
  found = {name: _make_task(config, name, vocabulary) for name in names}
  rate = functools.partial(_rate, config.data)
  for name, members in corpora.MIXTURES.items():
    found[name] = seqio.Mixture(
        name, [(found[member], rate) for member in members]
    )
  return found


def _make_task(config, name, vocabulary):
  """Makes the seqio.Task of a corpus."""
  config = config.copy_and_resolve_references()
  data = config.data
  data.task = name
  data.train_files = data.validation_files = data.test_files = ''
  if corpus_lib.is_gsg(name):
    data.pages = ''  # gap sentences are not cut into pages
  else:
    config.gsg = config.span_corruption = None
  objective = (
      corpus_lib.settings_of(config, name),
      corpus_lib.span_settings(config, corpus_lib.is_gsg(name), name),
  )
  source = preprocessors.RowSource(
      name,
      functools.partial(corpus_lib.corpus, config),
      functools.partial(tasks.check_size, config),
  )
  return preprocessors.task_of(source, objective, data, vocabulary)


def _rate(data, task):
  """Returns the rate of a task in a mixture; see data/mixture.py."""
  found = task.source.corpus
  rows = None if data.check_sizes else found.count('train')
  if rows is None:  # its size is checked, or TFDS is mocked
    rows = found.sizes['train']
  return float(min(rows, data.mixture_cap))


register()
_is_chosen = False  # the first call chooses
