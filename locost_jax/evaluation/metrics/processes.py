"""Spreads the scoring of many texts over processes.

rouge_score takes 13 ms for a pair of 250 words and 70 ms for one of 600, because
its loops over pairs of words are Python.
"""

import concurrent.futures
import os
import pickle
import signal

from locost_jax.data import workers

_BATCH = 16  # items per task of a process
_FEW = 64  # up to this many items, starting processes never pays
_SMALL = 2e7  # pairs of words that one process compares in about 4 seconds
_WORD = 6  # characters, a space included


def run(function, items, sizes, processes=None, show=None):
  """Returns [function(item) for item in items], in order.

  Args:
    function: one of a config, which cannot be pickled, runs in this process.
    sizes: function item -> (characters of the prediction, of the references);
      processes start only if there is much to compare.
    show: function (items done, items) that shows progress, or None.
  """
  items, processes = list(items), processes or os.cpu_count() or 1
  compared = sum(ours * theirs for ours, theirs in map(sizes, items))
  try:
    pickle.dumps(function)
  except (AttributeError, pickle.PicklingError):  # one of a config
    processes = 1
  if processes == 1 or len(items) <= _FEW or compared <= _SMALL * _WORD**2:
    return _collect(map(function, items), len(items), show)
  with concurrent.futures.ProcessPoolExecutor(
      min(processes, -(-len(items) // _BATCH)), workers.CONTEXT, _prepare
  ) as executor:
    try:
      with workers.without_main():
        results = executor.map(function, items, chunksize=_BATCH)
      return _collect(results, len(items), show)
    except BaseException:
      executor.shutdown(cancel_futures=True)
      raise


def _collect(results, total, show):
  found = []
  for one in results:
    found.append(one)
    if show is not None:
      show(len(found), total)
  return found


def _prepare():
  """Ignores signals, which the parent handles, and ends with the parent."""
  for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, signal.SIG_IGN)
  workers.end_with_parent()
