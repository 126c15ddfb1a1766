"""Processes that tokenise in the background, and end with their parent.

A worker runs a function of a module with a job that came through its stdin,
pickled. The system closes that stdin when the parent dies, whatever kills it;
the worker sees it and ends at once. What a worker cannot read of the user's
data it prints as the last line of its stdout, and the parent raises it.
"""

import os
import pickle
import subprocess
import sys
import threading
import weakref

from locost_jax.errors import InputError


class Workers:
  """Some processes that do the same kind of job."""

  def __init__(self, function, jobs, logs):
    """Starts the processes.

    Args:
      function: 'module:name' of what each runs; it takes the job.
      jobs: what each is given; any object that pickles.
      logs: a path for what each prints on stderr.
    """
    self._processes = []
    # Also when the interpreter ends.
    self.close = weakref.finalize(self, _stop, self._processes)
    for job, log in zip(jobs, logs, strict=True):
      self._processes.append(_start(function, job, log))

  def pids(self):
    """The process ids."""
    return [process.pid for process in self._processes]

  def poll(self):
    """The exit status of each, None of those that still work."""
    return [process.poll() for process in self._processes]

  def running(self, statuses=None):
    """Whether one of them still works.

    Args:
      statuses: of an earlier `poll`; None: as it is now.

    Raises:
      InputError: one has failed for what was wrong with the user's data.
      RuntimeError: one has failed otherwise; says where its log is.
    """
    statuses = self.poll() if statuses is None else statuses
    for process, status in zip(self._processes, statuses):
      if status:
        raise _error(process)
    return None in statuses


def run():
  """Main function of a worker: reads its job and does it."""
  function, job = pickle.load(sys.stdin.buffer)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  os.nice(10)  # a training loop comes first
  module, _, name = function.partition(':')
  try:
    getattr(__import__(module, fromlist=[name]), name)(job)
  except InputError as error:
    print(f'InputError: {error}', flush=True)
    sys.exit(1)


def _end_with_parent():
  # Not sys.stdin: its lock, held here, would abort the end of the interpreter.
  while os.read(0, 1):
    pass
  os._exit(1)  # at once, whatever the main thread does


def _start(function, job, log):
  environment = dict(
      os.environ,
      JAX_PLATFORMS='cpu',
      CUDA_VISIBLE_DEVICES='',
      TF_CPP_MIN_LOG_LEVEL='3',
      PYTHONPATH=os.pathsep.join(os.path.abspath(p) for p in sys.path),
  )
  with open(log, 'wb') as stderr:
    process = subprocess.Popen(
        [sys.executable, '-c', f'from {__name__} import run; run()'],
        env=environment,
        stderr=stderr,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
  process.log = log
  try:
    process.stdin.write(pickle.dumps((function, job)))
    process.stdin.flush()
  except BrokenPipeError:
    pass  # it has failed already; `running` reports it
  return process


def _stop(processes):
  for process in processes:
    process.kill()
    process.wait()
    process.stdout.close()
    try:
      process.stdin.close()
    except BrokenPipeError:
      pass


def _error(process):
  """Returns a failed worker's error as the exception to raise here."""
  lines = process.stdout.read().decode('utf-8', 'replace').splitlines()
  if lines and lines[-1].startswith('InputError: '):
    return InputError(lines[-1].removeprefix('InputError: '))
  return RuntimeError(f'a process that tokenises failed: see {process.log}')
