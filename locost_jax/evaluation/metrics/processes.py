"""Spreads the scoring of many texts over processes.

rouge_score takes 13 ms for a pair of 250 words and 70 ms for one of 600, because
its loops over pairs of words are Python.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import types

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
  items, found = list(items), []
  processes = processes or os.cpu_count() or 1
  batches = [items[i : i + _BATCH] for i in range(0, len(items), _BATCH)]
  work = functools.partial(_run_batch, function)
  try:
    pickle.dumps(work)
  except (AttributeError, pickle.PicklingError):
    processes = 1
  if processes == 1 or len(items) <= _FEW or _words(items, sizes) <= _SMALL:
    return _collect(map(work, batches), found, len(items), show)
  with concurrent.futures.ProcessPoolExecutor(
      min(processes, len(batches)),
      multiprocessing.get_context('spawn'),  # a fork of JAX's threads may hang
      _prepare_process,
  ) as executor:
    try:
      with _without_main():
        results = executor.map(work, batches)
      return _collect(results, found, len(items), show)
    except BaseException:
      executor.shutdown(cancel_futures=True)
      raise


def _words(items, sizes):
  """Returns the approximate number of pairs of words to compare."""
  return sum(ours * theirs for ours, theirs in map(sizes, items)) / _WORD**2


def _run_batch(function, items):
  return [function(item) for item in items]


def _collect(batches, found, total, show):
  for batch in batches:
    found += batch
    if show is not None:
      show(len(found), total)
  return found


@contextlib.contextmanager
def _without_main():
  """Keeps new processes from importing the main module, and JAX with it."""
  main = sys.modules['__main__']
  sys.modules['__main__'] = types.ModuleType('__main__')
  try:
    yield
  finally:
    sys.modules['__main__'] = main


def _prepare_process():
  """Ignores signals, which the parent handles, and exits with the parent."""
  for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, signal.SIG_IGN)
  threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
  multiprocessing.parent_process().join()
  os._exit(1)  # does not wait for the main thread
