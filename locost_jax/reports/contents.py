"""Computes the contents of a results page, without HTML.

The score of an example is the mean of its kinds of ROUGE (`protocols.MEAN`).
"""

from typing import Any, NamedTuple

import numpy as np

from locost_jax.evaluation.metrics import intervals
from locost_jax.evaluation.metrics import protocols
from locost_jax.figures import curves
from locost_jax.figures import finished_runs
from locost_jax.figures import kernels
from locost_jax.reports import source_texts
from locost_jax.summarizing import pretrained
from locost_jax.telemetry import metrics_log
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib

MISSING = '(missing)'
_BINS = 5  # largest number of bins of the length profile
_LEAST = 4  # smallest number of documents in a bin


class Contents(NamedTuple):
  """The contents of a results page for one run.

  Attributes:
    run: a `finished_runs.Run`.
    config: {'train.steps': 100, ...}.
    curves: {name of a number: (steps, values)}.
    scored: list of `finished_runs.Scored`, one per task.
    sources: list of {id: source_texts.Source}, one per task.
    context: of a LOCOST, (effective contexts int [layers, C, D], list of
      (distances, mean weights), one per layer); None: the model has no kernels.
  """

  run: Any
  config: dict
  curves: dict
  scored: list
  sources: list
  context: Any


class Profile(NamedTuple):
  """Score by input length: lists with an entry per bin."""

  lengths: list  # the median of the bin, in tokens
  means: list
  low: list  # ends of the 95% interval
  high: list
  counts: list


def collect(
    run, split='', protocol='locost', lags=2048, processes=1, show=None
):
  """Computes the contents of a run.

  Args:
    run: a `finished_runs.Run`.
    split, protocol, processes, show: see `finished_runs.score`.
    lags: length of the kernels in tokens.

  Returns:
    Contents.
  """
  scored = finished_runs.score(run, split, protocol, processes, show)
  vocabulary = find.find_vocabulary(str(run.home))
  return Contents(
      run,
      {
          key: value
          for key, value in phases_lib.flatten(run.config).items()
          # Leave out the shares from which numbers of steps were computed.
          if not key.startswith(f'{phases_lib.SHARES}.')
      },
      _curves(run),
      scored,
      [
          source_texts.find(run, one.task, one.split, ids_of(one), vocabulary)
          for one in scored
      ],
      _context(run, lags),
  )


def tasks(all_contents):
  """Returns {(task, split): [(contents, Scored, sources), ...]}."""
  found = {}
  for one in all_contents:
    for scored, sources in zip(one.scored, one.sources):
      found.setdefault((scored.task, scored.split), []).append(
          (one, scored, sources)
      )
  return found


def ids_of(scored):
  """Returns the ids of the documents; a row without an id gets its index."""
  return [str(row.get('id', i)) for i, row in enumerate(scored.rows)]


def _curves(run):
  path = run.home / 'metrics.jsonl'
  if not path.exists():
    return {}
  known = metrics_log.keys(path)
  found = {}
  for key in known:
    if curves.matches(key):
      steps, values = metrics_log.read_curve(path, key)
      found[key] = steps, values
  return found


def _context(run, lags):
  """Returns Contents.context."""
  if run.config['model']['name'] != 'locost':
    return None
  summarizer = pretrained.load(str(run.workdir))
  ranges, decays = [], []
  for layer, _ in kernels.of_layers(summarizer, lags):
    ranges.append(kernels.context_range(layer))
    means = [kernels.decay(kernel) for kernel in layer.reshape(-1, lags)]
    edges = means[0][0]
    weights = np.mean([mean for _, mean in means], axis=0)
    decays.append((edges[:-1].tolist(), (weights / weights.max()).tolist()))
  return np.stack(ranges), decays


def differences(all_contents, defaults):
  """Returns the keys of configs that differ from the default in some run.

  Args:
    all_contents: list of Contents.
    defaults: for each run {key: default}.

  Returns:
    Sorted list of (key, default, [value in each run]); MISSING if a run or the
    default has no such key. If models have different defaults, the default is
    that of the first run with a changed value.
  """
  keys = sorted({key for one in all_contents for key in one.config})
  found = []
  for key in keys:
    values = [one.config.get(key, MISSING) for one in all_contents]
    own = [default.get(key, MISSING) for default in defaults]
    changed = [
        default
        for value, default in zip(values, own)
        if value is not MISSING and not _is_same(value, default)
    ]
    if changed:
      found.append((key, changed[0], values))
  return found


def _is_same(value, default):
  """Returns whether two values are equal in JSON, where () is []."""
  plain = lambda x: list(x) if isinstance(x, tuple) else x
  return plain(value) == plain(default)


def profile(scored, sources, bins=_BINS):
  """Returns the Profile of a run on a task; None if lengths are unknown.

  Bins have about equal numbers of documents.

  Args:
    scored: a `finished_runs.Scored`.
    sources: {id: source_texts.Source}.
    bins: the largest number of bins.
  """
  if not sources:
    return None
  lengths = np.array([sources[name].tokens for name in ids_of(scored)])
  scores = np.array([row[protocols.MEAN] for row in scored.scores])
  order = np.argsort(lengths, kind='stable')
  count = max(1, min(bins, len(order) // _LEAST))
  rows = []
  for part in np.array_split(order, count):
    drawn = intervals.bootstrap(scores[part][:, None])[:, 0]
    rows.append(
        (
            float(np.median(lengths[part])),
            float(scores[part].mean()),
            *intervals.interval(drawn, documents=len(part)),
            len(part),
        )
    )
  return Profile(*map(list, zip(*rows)))


def choose_examples(all_scored, count):
  """Chooses the documents with the best and worst summaries.

  Args:
    all_scored: list of `finished_runs.Scored` of one task. A document's rank is
      by its mean score over the runs; documents that a run lacks are left out.
    count: number of best documents, and of worst ones; fewer if there are not
      enough documents.

  Returns:
    (ids of the best, best first; ids of the worst, worst first); no id is in
    both.
  """
  of_runs = [
      dict(zip(ids_of(one), (row[protocols.MEAN] for row in one.scores)))
      for one in all_scored
  ]
  shared = [name for name in of_runs[0] if all(name in run for run in of_runs)]
  mean = {
      name: float(np.mean([run[name] for run in of_runs])) for name in shared
  }
  ranked = sorted(shared, key=lambda name: -mean[name])
  count = min(count, -(-len(ranked) // 2))
  best = ranked[:count]
  worst = [name for name in ranked[::-1][:count] if name not in best]
  return best, worst
