"""Scores many pairs by a protocol, in several processes, with intervals."""

import concurrent.futures
import functools
import multiprocessing
import os
import signal
import threading

from locost_jax.command_line import versions
from locost_jax.evaluation.metrics import intervals
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols

_BATCH = 16  # pairs per task of a process
_FEW = 64  # scoring up to this many pairs is faster than starting processes
_PACKAGES = ('locost_jax', 'nltk', 'numpy')


def score_pairs(pairs, protocol, processes=1, show=None):
  """Scores pairs one by one.

  Args:
    pairs: list of `predictions.Pair`.
    protocol: a `protocols.Protocol`.
    processes: number of processes.
    show: function (pairs done, pairs) that shows progress, or None.

  Returns:
    List of n dicts, {kind of ROUGE: F1 x 100}.
  """
  batches = [pairs[i : i + _BATCH] for i in range(0, len(pairs), _BATCH)]
  score = functools.partial(_score_batch, protocol.name)
  scores = []
  if processes == 1 or len(pairs) <= _FEW:
    found = map(score, batches)
    return _collect(found, scores, len(pairs), show)
  with concurrent.futures.ProcessPoolExecutor(
      min(processes, len(batches)),
      multiprocessing.get_context('spawn'),
      _prepare_process,
  ) as executor:
    try:
      return _collect(executor.map(score, batches), scores, len(pairs), show)
    except BaseException:
      executor.shutdown(cancel_futures=True)
      raise


def _collect(batches, scores, total, show):
  for batch in batches:
    scores += batch
    if show is not None:
      show(len(scores), total)
  return scores


def _score_batch(name, pairs):
  protocol = protocols.find(name)  # only its name is sent
  return [
      protocols.score(protocol, pair.prediction, pair.references)
      for pair in pairs
  ]


def _prepare_process():
  """Ignores Ctrl-C, which the parent handles, and exits with the parent."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
  multiprocessing.parent_process().join()
  os._exit(1)  # does not wait for the main thread


def summarize(scores, protocol):
  """Returns the mean scores of a set of documents, and how they were computed.

  Args:
    scores: from `score_pairs`.
    protocol: a `protocols.Protocol`.

  Returns:
    dict of each mean (rouge1, rouge2, rougeL, rougeLsum, rouge_mean and, where
    the protocol has it, rouge_geometric_mean), protocol, pairs, mean_of,
    intervals ({key: [low, high]}), signature and versions.
  """
  keys = [*protocols.TYPES, protocols.MEAN]
  means = metric.means(
      [{key: (row[key], 1.0) for key in keys} for row in scores]
  )
  drawn = intervals.bootstrap([[row[key] for key in keys] for row in scores])
  columns = dict(zip(keys, drawn.T))
  if protocol.geometric:
    for numbers in means, columns:
      numbers[protocols.GEOMETRIC] = protocols.geometric_mean(protocol, numbers)
  return dict(
      means,
      protocol=protocol.name,
      pairs=len(scores),
      mean_of=list(protocol.mean_of),
      intervals={
          key: list(intervals.interval(column, documents=len(scores)))
          for key, column in columns.items()
      },
      signature=protocols.signature(protocol, len(scores)),
      versions=versions.installed(_PACKAGES),
  )


def count_empty(pairs, scores, protocol):
  """Counts the pairs whose references have no words to score.

  Returns:
    (pairs whose references are all blank, pairs whose references have text but
    no words of the protocol).
  """
  blank = wordless = 0
  for pair, row in zip(pairs, scores, strict=True):
    if not any(reference.strip() for reference in pair.references):
      blank += 1
    elif not row['rouge1'] and not any(
        protocols.has_words(protocol, reference)
        for reference in pair.references
    ):
      wordless += 1
  return blank, wordless
