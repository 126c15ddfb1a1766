"""A task's rows of text to tokens, as a seqio.Task.

A task works in SeqIO's own pipelines and mixtures too (data/seqio_tasks.py has
them by their names); inside locost_jax it is read once, by data/blocks.py.
SeqIO and TensorFlow are imported when it is made.
"""

import functools

from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows


def make_task(config, vocabulary, on_skip=None, block=None, counts=False):
  """Makes the run's task as a seqio.Task; see `task_of`.

  Args:
    config: the run's config, of one task.
    vocabulary: one of vocabularies/vocabulary.py.
    on_skip: called with the id of every document that gives no example.
    block: rows that are read in the corpus's place; None: it is read itself.
    counts: whether examples also have what `preprocessors.count_tokens` gives.

  Returns:
    A seqio.Task. Not registered.

  Raises:
    InputError: see `corpus.corpus`.
  """
  found = corpus_lib.corpus(config)
  if block is not None:
    found = found._replace(
        splits=dict.fromkeys(found.splits, ['block']),
        read=lambda split, shard: iter(block),
    )
  return task_of(
      found.name,
      lambda: found,
      found.gsg,
      config.data,
      vocabulary,
      spans=found.span_corruption,
      on_skip=on_skip,
      counts=counts,
  )


def task_of(
    name,
    find,
    settings,
    data,
    vocabulary,
    spans=None,
    check=None,
    on_skip=None,
    counts=False,
):
  """Makes a seqio.Task of a corpus that is looked for when it is first read.

  Its examples have id, inputs and targets (int32, with the vocabulary's marks
  at their ends, trimmed to the sequence_length given to get_dataset),
  inputs_pretokenized, targets_pretokenized and references. With
  config.data.pages inputs are all pages one after the other, and pages (int32)
  has the length of each.

  Args:
    name: of the task.
    find: function () -> its Corpus.
    settings: of gap sentences, or None: those of the corpus.
    data: config.data.
    vocabulary: one of vocabularies/vocabulary.py.
    spans: of `span_corruption.settings`, or None: those of the corpus.
    check: function (Corpus, split), called before a split is read.
    on_skip: called with the id of every document that gives no example.
    counts: whether examples also have what `preprocessors.count_tokens` gives.
  """
  from locost_jax.data import preprocessors  # isort: skip; loads seqio quietly
  import seqio

  def skip(split, row):
    # An empty summary teaches nothing; in the other splits every row counts.
    return (
        settings is None
        and split == 'train'
        and not corpus_rows.is_usable(row, None)
    )

  source = preprocessors.RowSource(find, check, skip, on_skip)
  on_error = functools.partial(setattr, source, 'error')
  steps = _steps(data, vocabulary, settings, spans, on_skip, on_error)
  if counts:
    steps.insert(-1, preprocessors.count_tokens)  # before they are cut
  return seqio.Task(
      name,
      source=source,
      preprocessors=steps,
      output_features=_features(data, vocabulary),
  )


def _features(data, vocabulary):
  """Returns SeqIO's description of inputs and targets."""
  from locost_jax.data import preprocessors  # isort: skip; loads seqio quietly
  import seqio

  feature = seqio.Feature(preprocessors.Vocabulary(vocabulary), add_eos=True)
  features = dict(inputs=feature, targets=feature)
  if data.pages:  # they are tokens with their marks already
    features['inputs'] = seqio.Feature(
        seqio.PassThroughVocabulary(vocabulary.size), add_eos=False
    )
  return features


def _steps(data, vocabulary, settings, spans, on_skip, on_error):
  """Returns the preprocessors that make examples from rows, in order.

  Args:
    data: config.data.
    vocabulary: one of vocabularies/vocabulary.py.
    settings: of gap sentences, or None.
    spans: of span corruption, or None.
    on_skip: called with the id of every document that gives no example.
    on_error: called with an exception that TensorFlow would hide.
  """
  from locost_jax.data import preprocessors  # isort: skip; loads seqio quietly
  import seqio

  steps = []
  if settings is not None:
    steps.append(
        functools.partial(
            preprocessors.gap_sentences,
            on_skip=on_skip,
            spans=spans,
            **settings,
        )
    )
  if data.pages:
    steps.append(
        functools.partial(
            preprocessors.paginate,
            data=data,
            vocabulary=vocabulary,
            on_error=on_error,
        )
    )
  steps.append(seqio.preprocessors.tokenize)
  if spans is not None:
    steps.append(
        functools.partial(
            preprocessors.corrupt_spans,
            vocabulary=vocabulary,
            data=data,
            spans=spans,
        )
    )
  if vocabulary.bos_id is not None:  # pages have it already
    steps.append(
        functools.partial(
            preprocessors.prepend,
            bos_id=vocabulary.bos_id,
            keys=('targets',) if data.pages else ('inputs', 'targets'),
        )
    )
  steps.append(seqio.preprocessors.append_eos_after_trim)
  return steps
