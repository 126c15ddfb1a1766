"""Background processes that tokenise and end with their parent.

A worker unpickles a job from its stdin and calls a function with it. The
operating system closes that stdin when the parent dies, even if it is killed;
then the worker ends at once. A worker prints an InputError as the last line of
its stdout, and the parent raises it. The pools of the standard library have
workers that outlive a killed parent.
"""

import os
import pickle
import subprocess
import sys
import threading
import weakref

from locost_jax.errors import InputError


class Workers:
  """Processes that run one function on different jobs."""

  def __init__(self, function, jobs, logs):
    """Starts the processes."""
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
    statuses = [process.poll() for process in self._processes]
    for process, status in zip(self._processes, statuses):
      if status:
        raise _error(process)
    return None in statuses


def run():
  """Main function of a worker: reads its job and does it."""
  function, job = pickle.load(sys.stdin.buffer)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  os.nice(10)  # the training loop has priority
  try:
    function(job)
  except InputError as error:
    print(f'InputError: {error}', flush=True)
    sys.exit(1)


def _end_with_parent():
  # Not sys.stdin: holding its lock here would abort the interpreter's shutdown.
  while os.read(0, 1):
    pass
  os._exit(1)  # at once, even if the main thread is busy


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
    pass  # the process has already failed; `running` reports it
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
  """Returns the exception of a failed worker."""
  lines = process.stdout.read().decode('utf-8', 'replace').splitlines()
  if lines and lines[-1].startswith('InputError: '):
    return InputError(lines[-1].removeprefix('InputError: '))
  return RuntimeError(f'a process that tokenises failed: see {process.log}')
