"""Worker processes: each measurement runs in a process of its own.

Separate processes give each length and model its own peak memory. A process
above the memory limit can be stopped safely, and runs of two libraries can be
interleaved.

A worker reads one JSON object per line from stdin and answers each with one on
stdout: first the spec, then {} for each run. All other output goes to stderr.
"""

import json
import os
import select
import subprocess
import sys

from locost_jax.devices import memory
from locost_jax.errors import InputError

POLL_SECONDS = 0.05
# Error messages of XLA, PyTorch and Python for a failed allocation.
OUT_OF_MEMORY = (
    'RESOURCE_EXHAUSTED',
    'Out of memory',
    'out of memory',
    "can't allocate memory",
    'bad_alloc',
    'MemoryError',
)


class OutOfMemory(Exception):
  """A process exceeded its memory limit, or ran out of memory."""

  def __init__(self, held):
    super().__init__(f'out of memory at {held} bytes')
    self.held = held  # largest observed memory of the process, in bytes


class WorkerProcess:
  """A measurement in a process of its own; a context manager.

  Attributes:
    prepared: dict of the facts known before the first run, with `peak_bytes`.
  """

  def __init__(self, spec, limit=None, module='locost_jax.benchmarks.worker'):
    """Starts the process and waits until the measurement is prepared.

    Args:
      spec: a JSON object for `worker.prepare`.
      limit: most bytes of memory of the process; None: no limit.
      module: the module that the process runs.

    Raises:
      OutOfMemory, InputError: see `measure`.
    """
    self._limit, self._held, self._rest = limit, 0, b''
    self._process = subprocess.Popen(
        [sys.executable, '-m', module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
      self.prepared = self._request(spec)
    except BaseException:
      self.close()
      raise

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.close()

  def close(self):
    """Stops the process."""
    if self._process.poll() is None:
      self._process.kill()
    self._process.wait()
    self._process.stdin.close()
    self._process.stdout.close()

  def measure(self):
    """Runs the measurement once and returns its dict, with `peak_bytes`.

    Raises:
      OutOfMemory: the process was stopped because of its memory.
      InputError: the worker raised one.
    """
    return self._request({})

  def _request(self, message):
    """Sends a dict and returns the answer, a dict."""
    try:
      self._process.stdin.write(json.dumps(message).encode() + b'\n')
      self._process.stdin.flush()
    except BrokenPipeError:
      pass  # `_read_line` sees that the process has ended
    answer = json.loads(self._read_line())
    if 'memory_ended' in answer:
      raise OutOfMemory(max(self._held, answer['peak_bytes']))
    if 'refused' in answer:
      raise InputError(answer['refused'])
    return answer

  def _read_line(self):
    stdout = self._process.stdout.fileno()
    while b'\n' not in self._rest:
      ready, _, _ = select.select([stdout], [], [], POLL_SECONDS)
      held = memory.resident_bytes(self._process.pid) or 0
      self._held = max(self._held, held)
      if self._limit is not None and held > self._limit:
        self._process.kill()
        raise OutOfMemory(self._held)
      if not ready:
        continue
      part = os.read(stdout, 1 << 16)
      if not part:
        status = self._process.wait()
        if status == -9:  # SIGKILL, sent by the kernel when out of memory
          raise OutOfMemory(self._held)
        raise RuntimeError(
            f'a worker process ended with status {status}; '
            'its error is printed above'
        )
      self._rest += part
    line, self._rest = self._rest.split(b'\n', 1)
    return line


def serve(prepare):
  """Runs a worker: answers requests until stdin ends.

  Args:
    prepare: function spec -> (known, run): `known` is a dict of facts known
      before the first run, and run() returns a dict of measured numbers. An
      InputError in either is sent to the parent, and the process ends.
  """
  # If the machine runs out of memory, the kernel kills this process first.
  try:
    with open('/proc/self/oom_score_adj', 'w', encoding='ascii') as f:
      f.write('1000')
  except OSError:
    pass
  out = os.fdopen(os.dup(1), 'w', encoding='utf-8')
  os.dup2(2, 1)  # libraries may print to stdout

  def answer(values):
    values = dict(values, peak_bytes=memory.peak_host_bytes())
    out.write(json.dumps(values) + '\n')
    out.flush()

  run = None
  for line in sys.stdin:
    try:
      if run is None:
        known, run = prepare(json.loads(line))
        answer(known)
      else:
        answer(run())
    except InputError as error:
      answer({'refused': str(error)})
      return
    except (MemoryError, RuntimeError, ValueError) as error:
      text = f'{type(error).__name__}: {error}'
      if any(sign in text for sign in OUT_OF_MEMORY):
        answer({'memory_ended': text})
        return
      raise
