"""Processes that tokenise or score, and end with their parent.

They are spawned, because a fork of JAX's threads may hang. Even if the parent is
killed, its end of a pipe closes, and they end at once; the pools of the standard
library have processes that outlive a killed parent.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import types
import weakref

from locost_jax.errors import InputError

CONTEXT = multiprocessing.get_context('spawn')
_ERROR = 'InputError: '  # begins the last line of a log
_BATCH = 16  # items per task of a process that scores
_FEW = 64  # up to this many items, starting processes never pays
# Pairs of words that one process compares in about 4 seconds: rouge_score takes
# 13 ms for a pair of 250 words and 70 ms for one of 600, in loops of Python.
_SMALL = 2e7
_WORD = 6  # characters, a space included


class Workers:
  """Processes that run one function on different jobs."""

  def __init__(self, function, jobs, logs):
    """Starts the processes; each writes to its log."""
    self._processes = []
    # Also called when the interpreter ends.
    self.close = weakref.finalize(self, _stop, self._processes)
    for job, log in zip(jobs, logs, strict=True):
      self._processes.append(_start(function, job, log))

  def running(self):
    """Whether a process is still running.

    Raises:
      InputError: a process failed because of the user's data.
      RuntimeError: a process failed otherwise; the message names its log.
    """
    statuses = [process.exitcode for process in self._processes]
    for process, status in zip(self._processes, statuses):
      if status:
        raise _error(process.name)
    return None in statuses


def map_texts(function, items, sizes, processes=None, show=None):
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
      min(processes, -(-len(items) // _BATCH)), CONTEXT, _prepare
  ) as executor:
    try:
      with without_main():
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
  end_with_parent()


def end_with_parent():
  """Ends this process at once when its parent ends."""

  def wait():
    multiprocessing.parent_process().join()
    os._exit(1)  # even if the main thread is busy

  threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def without_main():
  """Keeps new processes from importing the main module, and JAX with it."""
  main = sys.modules['__main__']
  sys.modules['__main__'] = types.ModuleType('__main__')
  try:
    yield
  finally:
    sys.modules['__main__'] = main


def _start(function, job, log):
  open(log, 'wb').close()  # also if the process dies at once
  # Pickled here, so that a process imports the function when it is prepared.
  process = CONTEXT.Process(
      target=_run, args=(pickle.dumps((function, job)), log), name=str(log)
  )
  process.daemon = True
  with without_main():
    process.start()
  return process


def _run(pickled, log):
  """Does a job in a process of its own."""
  end_with_parent()
  with open(log, 'ab') as file:
    for stream in 1, 2:
      os.dup2(file.fileno(), stream)
  os.environ.update(
      JAX_PLATFORMS='cpu', CUDA_VISIBLE_DEVICES='', TF_CPP_MIN_LOG_LEVEL='3'
  )
  os.nice(10)  # the training loop has priority
  function, job = pickle.loads(pickled)
  try:
    function(job)
  except InputError as error:
    sys.exit(f'{_ERROR}{error}')


def _stop(processes):
  for process in processes:
    process.kill()
    process.join()


def _error(log):
  """Returns the exception of a process that failed."""
  with open(log, encoding='utf-8', errors='replace') as file:
    last = file.read().splitlines()[-1:]
  if last and last[0].startswith(_ERROR):
    return InputError(last[0].removeprefix(_ERROR))
  return RuntimeError(f'a process that tokenises failed: see {log}')
