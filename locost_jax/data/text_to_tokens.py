"""Makes a seqio.Task that tokenises the rows of a corpus.

data/blocks.py reads the task once. The same tasks work in SeqIO's own pipelines
and mixtures; data/seqio_tasks.py registers them. SeqIO and TensorFlow are
imported only when a task is made.
"""

import functools

from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows


def make_task(config, vocabulary, on_skip=None, block=None, counts=False):
  """Makes the seqio.Task of a config; see `task_of`.

  Args:
    on_skip: called with the id of every document that gives no example.
    block: rows to read instead of the corpus; None: the corpus is read.
    counts: whether examples get the counts of `preprocessors.count_tokens`.

  Returns:
    A seqio.Task, not registered.

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
  """Makes a seqio.Task of a corpus that is found when it is first read.

  Its examples have id, inputs and targets (int32, with the vocabulary's marks
  at their ends, trimmed to the sequence_length given to get_dataset),
  inputs_pretokenized, targets_pretokenized and references. With
  config.data.pages, inputs are the concatenated pages, and pages (int32 [P])
  has the length of each.

  Args:
    find: function () -> its Corpus.
    settings: keyword arguments of gap_sentences; None: summarising.
    spans: see `span_corruption.settings`; None: no span corruption.
    check: function (Corpus, split), called before a split is read.
    on_skip: called with the id of every document that gives no example.
    counts: whether examples get the counts of `preprocessors.count_tokens`.
  """
  from locost_jax.data import preprocessors  # isort: skip; loads seqio quietly
  import seqio

  def skip(split, row):
    # Only training skips empty rows; in the other splits every row counts.
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
  """Returns the SeqIO features of inputs and targets."""
  from locost_jax.data import preprocessors  # isort: skip; loads seqio quietly
  import seqio

  feature = seqio.Feature(preprocessors.Vocabulary(vocabulary), add_eos=True)
  features = dict(inputs=feature, targets=feature)
  if data.pages:  # inputs are already tokens with marks
    features['inputs'] = seqio.Feature(
        seqio.PassThroughVocabulary(vocabulary.size), add_eos=False
    )
  return features


def _steps(data, vocabulary, settings, spans, on_skip, on_error):
  """Returns the preprocessors that make examples from rows, in order.

  Args:
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
  if vocabulary.bos_id is not None:  # pages already have it
    steps.append(
        functools.partial(
            preprocessors.prepend,
            bos_id=vocabulary.bos_id,
            keys=('targets',) if data.pages else ('inputs', 'targets'),
        )
    )
  steps.append(seqio.preprocessors.append_eos_after_trim)
  return steps
