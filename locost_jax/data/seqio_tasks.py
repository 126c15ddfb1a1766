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

from locost_jax.data import corpora
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import tasks
from locost_jax.data import text_to_tokens
from locost_jax.errors import InputError
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# The keys that are read, with the values of configs/default.py.
DEFAULTS = ConfigDict(
    dict(
        data=dict(
            task='',
            train_files='',
            validation_files='',
            test_files='',
            corpora_dir='corpora',
            tfds_dir='',
            check_sizes=True,
            mixture_cap=100_000,
            pages='',
        ),
        gsg=None,
        span_corruption=None,
    )
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
  made_of = str(vocabulary), tokens.fingerprint, _text_of(config)
  is_same = _made_of is not None and made_of[1:] == _made_of[1:]
  if _is_chosen and not is_same:
    raise InputError(
        f'vocabulary={str(vocabulary)!r}: the tasks of locost_jax are '
        f'registered already, with vocabulary={_made_of[0]!r} or another '
        'config, and may be in use: expected the same again; start another '
        'process for other settings'
    )
  registries = _registries()
  _check_names(registries)
  if not is_same:
    _registered.update(_make(config, tokens))
  for name, provider in _registered.items():
    for registry in registries:
      registry.remove(name)
    registries[name in corpora.MIXTURES].add_provider(name, provider)
  _made_of, _is_chosen = made_of, True


def _registries():
  """Returns SeqIO's registries, of tasks and of mixtures."""
  from locost_jax.data import preprocessors  # isort: skip; loads seqio quietly
  import seqio

  del preprocessors
  return seqio.TaskRegistry, seqio.MixtureRegistry


def _check_names(registries):
  """Raises an InputError if another library has registered a name."""
  for kind, registry in zip(('task', 'mixture'), registries):
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
  import seqio

  config = config.copy_and_resolve_references()
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
  return text_to_tokens.task_of(
      name,
      functools.partial(corpus_lib.corpus, config),
      corpus_lib.settings_of(config, name),
      data,
      vocabulary,
      spans=corpus_lib.span_settings(config, corpus_lib.is_gsg(name), name),
      check=functools.partial(tasks.check_size, config),
  )


def _rate(data, task):
  """Returns the rate of a task in a mixture; see data/mixture.py."""
  found = task.source.corpus
  rows = None if data.check_sizes else found.count('train')
  if rows is None:  # its size is checked, or TFDS is mocked
    rows = found.sizes['train']
  return float(min(rows, data.mixture_cap))


def _text_of(config):
  """Returns the keys that are read of a config as JSON."""
  return ConfigDict(
      dict(
          data=config.data,
          gsg=config.gsg,
          span_corruption=config.get('span_corruption'),
      )
  ).to_json_best_effort()


register()
_is_chosen = False  # the first call chooses
