"""Makes the SeqIO task of a corpus: source, vocabulary, preprocessors.

The steps of a document, of which those in brackets are optional:

  [gap_sentences] -> [paginate] -> tokenise -> [corrupt_spans] -> [prepend bos]
  -> trim -> append eos

SeqIO itself tokenises, trims and appends eos: `append_eos_after_trim` keeps
max - 1 ids and appends eos, so the end mark is never cut. Sentence splitting,
gap sentences and vocabularies are plain Python (data/text.py, data/gsg.py,
vocabularies/) and run inside `tf.numpy_function`. data/blocks.py reads a task
once. The same tasks work in SeqIO's own pipelines and mixtures;
data/seqio_tasks.py registers them.

Only this module imports TensorFlow and SeqIO at the top level. Other modules
import it inside functions and before TensorFlow, because it silences TensorFlow
and keeps it off the accelerators.
"""

import contextlib
import functools
import itertools
import json
import os
import sys

import numpy as np


@contextlib.contextmanager
def _quiet():
  """Silences the stderr of TensorFlow's C++ code while it loads.

  Its line "GPU will not be used" does not apply to JAX, and no setting turns it
  off. Exceptions are still raised.
  """
  sys.stderr.flush()
  kept = os.dup(2)
  try:
    with open(os.devnull, 'wb') as nothing:
      os.dup2(nothing.fileno(), 2)
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)


os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # after loading
with _quiet():
  import seqio
  import tensorflow as tf

from locost_jax.data import corpus_rows
from locost_jax.data import gsg
from locost_jax.data import pages
from locost_jax.data import span_corruption
from locost_jax.errors import InputError

try:
  # TensorFlow would otherwise allocate the accelerators' memory.
  tf.config.set_visible_devices([], 'GPU')
  tf.config.set_visible_devices([], 'TPU')
except RuntimeError:
  pass  # TensorFlow is already initialised in this process


class Vocabulary(seqio.Vocabulary):
  """Wraps one of vocabularies/vocabulary.py as a seqio.Vocabulary."""

  def __init__(self, vocabulary):
    super().__init__(extra_ids=vocabulary.extra_ids)
    self.vocabulary = vocabulary

  @property
  def bos_id(self):
    """The id of the mark that begins a text, or None."""
    return self.vocabulary.bos_id

  @property
  def eos_id(self):
    """The id of the mark that ends a text."""
    return self.vocabulary.eos_id

  @property
  def unk_id(self):
    """The id of unknown pieces."""
    return self.vocabulary.unk_id

  @property
  def _base_vocab_size(self):
    return self.vocabulary.size - self.extra_ids

  def _encode(self, s):
    return self.vocabulary.encode(s)

  def _decode(self, ids):
    return self.vocabulary.decode(ids)

  def _encode_tf(self, s):
    def encode(text):
      return np.asarray(self.vocabulary.encode(_text(text)), np.int32)

    ids = tf.numpy_function(encode, [s], tf.int32, stateful=False)
    return tf.ensure_shape(ids, [None])

  def _decode_tf(self, ids):
    def decode(rows):
      rows = np.asarray(rows)
      texts = [
          self.vocabulary.decode(row)
          for row in rows.reshape(-1, rows.shape[-1])
      ]
      return np.array([text.encode() for text in texts], object).reshape(
          rows.shape[:-1]
      )

    texts = tf.numpy_function(decode, [ids], tf.string, stateful=False)
    return tf.ensure_shape(texts, ids.shape[:-1])

  def __eq__(self, other):
    return (
        isinstance(other, Vocabulary)
        and self.vocabulary.fingerprint == other.vocabulary.fingerprint
    )


def make_task(found, data, vocabulary, on_skip=None, block=None, counts=False):
  """Makes the seqio.Task of a Corpus; see `task_of`.

  Args:
    on_skip: called with the id of every document that gives no example.
    block: rows to read instead of the corpus; None: the corpus is read.
    counts: whether examples get the counts of `count_tokens`.
  """
  if block is not None:
    found = found._replace(
        splits=dict.fromkeys(found.splits, ['block']),
        read=lambda split, shard: iter(block),
    )
  source = RowSource(found.name, lambda: found, on_skip=on_skip)
  objective = found.gsg, found.span_corruption
  return task_of(source, objective, data, vocabulary, counts)


def task_of(source, objective, data, vocabulary, counts=False):
  """Makes the seqio.Task of a corpus, which is not registered.

  Its examples have id, inputs and targets (int32, with the vocabulary's marks
  at their ends, trimmed to the sequence_length given to get_dataset),
  inputs_pretokenized, targets_pretokenized and references. With
  config.data.pages, inputs are the concatenated pages, and pages (int32 [P])
  has the length of each.

  Args:
    source: a RowSource.
    objective: (keyword arguments of `gsg.gap_sentences`; None: summarising,
      `span_corruption.settings`; None: no span corruption).
    counts: whether examples get the counts of `count_tokens`.
  """
  (gaps, spans), steps, sides = objective, [], ('inputs', 'targets')
  feature = seqio.Feature(Vocabulary(vocabulary), add_eos=True)
  features = dict(inputs=feature, targets=feature)
  if gaps is not None:
    steps.append(lambda rows: gap_sentences(rows, gaps, source.on_skip, spans))
  if data.pages:  # inputs are then tokens with marks
    steps.append(lambda rows: paginate(rows, data, vocabulary, source))
    features['inputs'] = seqio.Feature(
        seqio.PassThroughVocabulary(vocabulary.size), add_eos=False
    )
    sides = ('targets',)
  steps.append(seqio.preprocessors.tokenize)
  if spans is not None:
    steps.append(lambda rows: corrupt_spans(rows, vocabulary, data, spans))
  if vocabulary.bos_id is not None:
    steps.append(lambda rows: prepend(rows, vocabulary.bos_id, sides))
  if counts:
    steps.append(count_tokens)  # before they are cut
  steps.append(seqio.preprocessors.append_eos_after_trim)
  return seqio.Task(
      source.name, source=source, preprocessors=steps, output_features=features
  )


class RowSource(seqio.DataSource):
  """A seqio.DataSource of rows that Python reads shard by shard.

  Rows of a training split without input or target are left out; in the other
  splits every row counts.

  Attributes:
    name: of the corpus.
    corpus: the Corpus.
    on_skip: called with the id of every document that gives no example.
    error: the last InputError, because TensorFlow wraps exceptions of the
      reader and of `paginate` into its own.
  """

  def __init__(self, name, find, check=None, on_skip=None):
    """Makes the source; reads nothing yet.

    Args:
      find: function () -> the Corpus; called once, at the first use.
      check: function (Corpus, split), called before a split is read.
    """
    super().__init__(splits=())
    self.name, self.on_skip, self.error = name, on_skip, None
    self._find, self._check = find, check

  @functools.cached_property
  def corpus(self):
    """The Corpus to read."""
    return self._find()

  @property
  def splits(self):
    """The names of the splits."""
    return tuple(self.corpus.splits)

  @property
  def supports_arbitrary_sharding(self):
    """False, because a shard is a file."""
    return False

  def list_shards(self, split):
    """Returns the files of a split."""
    return self.corpus.splits[split]

  def get_dataset(
      self,
      split='train',
      shuffle=True,
      seed=None,
      shard_info=None,
      *,
      sequence_length=None,
      use_cached=False,
      num_epochs=1,
  ):
    """Returns the rows of a split, or of every num_shards-th of its shards."""
    del sequence_length, use_cached, num_epochs
    if self._check:
      self._check(self.corpus, split)
    names = self.corpus.splits[split]
    if shard_info:
      names = names[shard_info.index :: shard_info.num_shards]
    if shuffle:
      names = np.random.default_rng(seed).permutation(names).tolist()
    fields = self.corpus.fields

    def chunks():
      # A call from TensorFlow into Python costs as much as encoding a row.
      left = self._rows(split, names)
      while chunk := list(itertools.islice(left, 32)):
        yield dict(zip(fields, zip(*chunk)))

    spec = {field: tf.TensorSpec([None], tf.string) for field in fields}
    return tf.data.Dataset.from_generator(
        chunks, output_signature=spec
    ).unbatch()

  def _rows(self, split, names):
    """Yields the encoded fields of the rows of some shards."""
    found = self.corpus
    may_skip = split == 'train' and found.gsg is None
    try:
      for name in names:
        for row in found.read(split, name):
          if not may_skip or corpus_rows.is_usable(row, None):
            yield [row[key].encode('utf-8', 'replace') for key in found.fields]
          elif self.on_skip:
            self.on_skip(row['id'])
    except InputError as error:
      self.error = error
      raise


def read_tfds(name, split, tfds_dir='', shard=None):
  """Reads the rows of a corpus that TFDS has prepared; downloads nothing.

  Args:
    name: 'dataset/config:version', complete. Call `find_tfds` of
      data/prepared_corpora.py first to check that it exists; TFDS itself takes
      minutes for that.
    tfds_dir: data directory of TFDS; '': its default.
    shard: number of one of the split's files; None: all.
  """
  import tensorflow_datasets as tfds

  part = split if shard is None else f'{split}[{shard}shard:{shard + 1}shard]'
  rows = tfds.load(
      name,
      split=part,
      download=False,
      shuffle_files=False,
      data_dir=os.path.expanduser(tfds_dir) or None,
  )
  for row in tfds.as_numpy(rows):
    yield {
        key: _text(value)
        for key, value in row.items()
        if isinstance(value, bytes)
    }


def gap_sentences(dataset, settings, on_skip=None, spans=None):
  """Makes gap-sentence pairs of documents (LOCOST, equation 4; data/gsg.py).

  Args:
    dataset: tf.data.Dataset of dicts with the strings id and text.
    on_skip: called with the id of every document that is too short.
    spans: see `span_corruption.settings`. Documents drawn for span corruption
      keep their whole text as inputs, for `corrupt_spans`. None: none is drawn.

  Returns:
    A dataset of dicts with the strings id, inputs and targets.
  """

  def pair(name, text):
    name, text = _text(name), _text(text)
    made = gsg.gap_sentences(text, **settings)
    if made is None:
      if on_skip:
        on_skip(name)
      return b'', b''
    source, target = made
    if spans and span_corruption.is_drawn(name, spans['share'], spans['seed']):
      source = text
    return source.encode(), target.encode()

  def split(row):
    inputs, targets = tf.numpy_function(
        pair, [row['id'], row['text']], [tf.string, tf.string]
    )
    return dict(
        id=row['id'],
        inputs=tf.ensure_shape(inputs, []),
        targets=tf.ensure_shape(targets, []),
    )

  return _map(dataset, split).filter(
      lambda row: tf.strings.length(row['targets']) > 0
  )


def corrupt_spans(dataset, vocabulary, data, spans):
  """Replaces the examples of documents drawn for span corruption.

  Args:
    dataset: of dicts with id, and with inputs and targets as ids without marks.

  Returns:
    The dataset with inputs and targets of data/span_corruption.py for these
    documents.
  """
  make = span_corruption.maker(vocabulary, data, spans)
  keys = 'inputs', 'targets'

  def corrupt(name, *row):
    """Returns ids and texts of both sides, corrupted if the row is drawn."""
    made = make(row[0], _text(name))
    if made is None:
      return row
    texts = (vocabulary.decode(side, keep_sentinels=True) for side in made)
    return *made, *(text.encode() for text in texts)

  def replace(row):
    names = *keys, *(f'{key}_pretokenized' for key in keys)
    made = tf.numpy_function(
        corrupt,
        [row['id'], *(row[name] for name in names)],
        [row[name].dtype for name in names],
        stateful=False,
    )
    shaped = zip(names, made)
    return {
        **row,
        **{name: tf.ensure_shape(x, row[name].shape) for name, x in shaped},
    }

  return _map(dataset, replace)


def prepend(dataset, bos_id, keys):
  """Prepends a token to the ids (int32 [tokens]) of some keys."""
  return _map(
      dataset,
      lambda row: {
          **row,
          **{key: tf.concat([[bos_id], row[key]], 0) for key in keys},
      },
  )


def count_tokens(dataset):
  """Adds `whole`, int32 [2]: tokens of input and target before the cut."""

  def count(row):
    sizes = [tf.size(row['inputs']), tf.size(row['targets'])]
    return {**row, 'whole': tf.stack(sizes)}

  return _map(dataset, count)


def paginate(dataset, data, vocabulary, source):
  """Cuts documents into pages or chunks of tokens (data/pages.py).

  Args:
    dataset: of dicts whose inputs are JSON of the query and the fields that
      `pages.pieces` reads.
    source: the RowSource, whose `error` becomes the InputError of a row that
      cannot be cut.

  Returns:
    A dataset with inputs (int32 [tokens], all pages concatenated) and pages
    (int32 [P], the length of each).
  """

  def cut(inputs):
    row = json.loads(_text(inputs) or pages.NOTHING)
    try:
      made = pages.of_row(row, data, vocabulary)
    except InputError as error:
      source.error = error
      raise
    ids = list(itertools.chain.from_iterable(made))
    return np.asarray(ids, np.int32), np.asarray(list(map(len, made)), np.int32)

  def split(row):
    ids, lengths = tf.numpy_function(
        cut, [row['inputs']], [tf.int32, tf.int32], stateful=False
    )
    return dict(
        row,
        inputs=tf.ensure_shape(ids, [None]),
        pages=tf.ensure_shape(lengths, [None]),
    )

  return _map(dataset, split)


def _map(dataset, function):
  return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)


def _text(data):
  # numpy_function passes a scalar array in eager mode, bytes in a graph.
  data = data.item() if isinstance(data, np.ndarray) else data
  return data.decode('utf-8', 'replace')
