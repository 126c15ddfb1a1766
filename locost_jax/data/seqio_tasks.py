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
import numpy as np

from locost_jax.config import schema
from locost_jax.data import corpora
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import prepared_corpora
from locost_jax.data import preprocessors
from locost_jax.data import tasks
from locost_jax.vocabularies import vocabulary as vocabulary_lib

tf = prepared_corpora.load_tensorflow()
import seqio  # after TensorFlow, which is loaded quietly

# The keys that are read.
DEFAULTS = ConfigDict(dict(data=schema.defaults('data'), gsg=None))

_registered = {}  # name -> our seqio.Task or seqio.Mixture


def register(vocabulary='byte', config=None):
  """Registers every corpus and mixture in SeqIO, in place of an earlier call.

  Args:
    vocabulary: a path (T5's or BART's files, or what a run saved), or 'byte'.
    config: a run's config; its data (without task and files) and gsg
      are read. None: the defaults.

  Raises:
    InputError: the vocabulary does not exist.
    ValueError: another library has registered one of the names.
  """
  config = DEFAULTS if config is None else config
  tokens = vocabulary_lib.load_vocabulary(vocabulary)
  rate = functools.partial(_rate, config.data)
  registry_of = lambda name: (
      seqio.MixtureRegistry if name in corpora.MIXTURES else seqio.TaskRegistry
  )
  for name in _registered:
    registry_of(name).remove(name)
  _registered.clear()
  for name in corpus_lib.names():  # mixtures come last
    if name in corpora.MIXTURES:
      members = [(_registered[task], rate) for task in corpora.MIXTURES[name]]
      made = seqio.Mixture(name, members)
    else:
      made = _make_task(config, name, tokens)
    registry_of(name).add_provider(name, made)
    _registered[name] = made


class Vocabulary(seqio.Vocabulary):
  """Wraps one of vocabularies/vocabulary.py as a seqio.Vocabulary."""

  def __init__(self, vocabulary):
    super().__init__(extra_ids=vocabulary.extra_ids)
    self.vocabulary = vocabulary

  bos_id = property(lambda self: self.vocabulary.bos_id)
  eos_id = property(lambda self: self.vocabulary.eos_id)
  unk_id = property(lambda self: self.vocabulary.unk_id)

  @property
  def _base_vocab_size(self):
    return self.vocabulary.size - self.extra_ids

  def _encode(self, s):
    return self.vocabulary.encode(s)

  def _decode(self, ids):
    return self.vocabulary.decode(ids)

  def _encode_tf(self, s):
    def encode(text):
      # A scalar array in eager mode, bytes in a graph.
      text = text.item() if isinstance(text, np.ndarray) else text
      return np.asarray(self.vocabulary.encode(text.decode()), np.int32)

    ids = tf.numpy_function(encode, [s], tf.int32, stateful=False)
    return tf.ensure_shape(ids, [None])

  def _decode_tf(self, ids):
    def decode(rows):
      rows = np.asarray(rows)
      texts = map(self.vocabulary.decode, rows.reshape(-1, rows.shape[-1]))
      texts = np.array([text.encode() for text in texts], object)
      return texts.reshape(rows.shape[:-1])

    texts = tf.numpy_function(decode, [ids], tf.string, stateful=False)
    return tf.ensure_shape(texts, ids.shape[:-1])

  def __eq__(self, other):
    return (
        isinstance(other, Vocabulary)
        and self.vocabulary.fingerprint == other.vocabulary.fingerprint
    )


class Source(seqio.DataSource):
  """The examples of a corpus, as Python makes them shard by shard.

  They have id, inputs and targets (int32, with bos, if any), `_pretokenized` of
  both, and for summarising references (JSON). With config.data.pages, inputs
  are the concatenated pages, and pages (int32 [P]) has the length of each.
  """

  def __init__(self, config, vocabulary):
    """Makes the source; reads nothing yet."""
    super().__init__(splits=())
    self._config, self._vocabulary = config, vocabulary

  @functools.cached_property
  def corpus(self):
    """The Corpus to read."""
    return corpus_lib.corpus(self._config)

  splits = property(lambda self: tuple(self.corpus.splits))
  supports_arbitrary_sharding = False  # a shard is a file

  def list_shards(self, split):
    """Returns the files of a split."""
    return self.corpus.splits[split]

  def get_dataset(
      self, split='train', shuffle=True, seed=None, shard_info=None, **unused
  ):
    """Returns a split, or the part in every num_shards-th of its shards."""
    del unused
    found, data = self.corpus, self._config.data
    tasks.check_size(self._config, found, split)
    names = found.splits[split]
    if shard_info:
      names = names[shard_info.index :: shard_info.num_shards]
    if shuffle:
      order = np.random.default_rng(seed).permutation(len(names))
      names = [names[i] for i in order]  # also those in TFDS, which are tuples
    make = preprocessors.maker(found, data, self._vocabulary)
    spec = dict(
        id=tf.TensorSpec([], tf.string),
        inputs=tf.TensorSpec([None], tf.int32),
        targets=tf.TensorSpec([None], tf.int32),
        targets_pretokenized=tf.TensorSpec([], tf.string),
    )
    spec['inputs_pretokenized'] = spec['inputs' if data.pages else 'id']
    if data.pages:
      spec['pages'] = spec['inputs']
    if found.gsg is None:
      spec['references'] = spec['id']

    def examples():
      for row in (row for name in names for row in found.read(split, name)):
        made = make(row, keep_empty=split != 'train')
        if made is not None:
          made['inputs_pretokenized'] = made['inputs' if data.pages else 'text']
          made['targets_pretokenized'] = made['reference']
          made['references'] = row.get('references')
          yield {key: made[key] for key in spec}

    return tf.data.Dataset.from_generator(examples, output_signature=spec)


def _make_task(config, name, vocabulary):
  """Makes the seqio.Task of a corpus."""
  config = config.copy_and_resolve_references()
  data = config.data
  data.task = name
  data.train_files = data.validation_files = data.test_files = ''
  if corpus_lib.is_gsg(name):
    data.pages = ''  # gap sentences are not cut into pages
  else:
    config.gsg = None
  return task_of(config, name, vocabulary)


def task_of(config, name, vocabulary):
  """Makes the seqio.Task of a corpus, which is not registered."""
  feature = seqio.Feature(Vocabulary(vocabulary), add_eos=True)
  features = dict(inputs=feature, targets=feature)
  if config.data.pages:  # inputs are then tokens with marks
    features['inputs'] = seqio.Feature(
        seqio.PassThroughVocabulary(vocabulary.size), add_eos=False
    )
  return seqio.Task(
      name,
      source=Source(config, vocabulary),
      preprocessors=[seqio.preprocessors.append_eos_after_trim],
      output_features=features,
  )


def _rate(data, task):
  """Returns the rate of a task in a mixture; see data/mixture.py."""
  found = task.source.corpus
  is_known = data.check_sizes  # reading it then checks its size
  rows = found.sizes['train'] if is_known else found.count('train')
  return float(min(rows, data.mixture_cap))


register()
