"""Worker processes: every measurement runs in its own, watched from here.

So lengths and models do not hide each other's peak, a process that would need
more than it may is ended without harm, and the runs of two libraries can be
interleaved.

A worker reads one JSON object per line on stdin and answers each with one on
stdout: first the spec, then {} for every run of it. Everything else that is
printed goes to stderr.
"""

import json
import os
import select
import subprocess
import sys

from locost_jax.devices import memory
from locost_jax.errors import InputError

SECONDS_BETWEEN_LOOKS = 0.05
# What XLA, PyTorch and Python say when an allocation fails.
OUT_OF_MEMORY = (
    'RESOURCE_EXHAUSTED',
    'Out of memory',
    'out of memory',
    "can't allocate memory",
    'bad_alloc',
    'MemoryError',
)


class OutOfMemory(Exception):
  """A process held more than it may, or was refused or killed for memory."""

  def __init__(self, held):
    super().__init__(f'out of memory at {held} bytes')
    self.held = held  # bytes, the most that was seen


class WorkerProcess:
  """A measurement prepared in its own process; use it in `with`.

  Attributes:
    prepared: what is known of the measurement before its first run, a dict with
      `peak_bytes`.
  """

  def __init__(self, spec, limit=None, module='locost_jax.benchmarks.worker'):
    """Starts the process and waits until the measurement is prepared.

    Args:
      spec: what to prepare, JSON; `worker.prepare` reads it.
      limit: most bytes it may hold; None: no limit.
      module: what runs there.

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
    """Ends the process."""
    if self._process.poll() is None:
      self._process.kill()
    self._process.wait()
    self._process.stdin.close()
    self._process.stdout.close()

  def measure(self):
    """Runs the measurement once and returns its dict, with `peak_bytes`.

    Raises:
      OutOfMemory: the process was ended for its memory.
      InputError: the process refused.
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
      ready, _, _ = select.select([stdout], [], [], SECONDS_BETWEEN_LOOKS)
      held = memory.held_bytes(self._process.pid) or 0
      self._held = max(self._held, held)
      if self._limit is not None and held > self._limit:
        self._process.kill()
        raise OutOfMemory(self._held)
      if not ready:
        continue
      part = os.read(stdout, 1 << 16)
      if not part:
        status = self._process.wait()
        if status == -9:  # the kernel's signal when it runs out of memory
          raise OutOfMemory(self._held)
        raise RuntimeError(
            f'a measuring process ended with status {status}; '
            'it says why above'
        )
      self._rest += part
    line, self._rest = self._rest.split(b'\n', 1)
    return line


def serve(prepare):
  """Runs a worker: answers until stdin ends.

  Args:
    prepare: spec -> (what is known of it, run); run() -> what it measured. Both
      are dicts. An InputError in them is answered and ends the process.
  """
  # Should the machine run out of memory, this process goes first.
  try:
    with open('/proc/self/oom_score_adj', 'w', encoding='ascii') as f:
      f.write('1000')
  except OSError:
    pass
  out = os.fdopen(os.dup(1), 'w', encoding='utf-8')
  os.dup2(2, 1)  # libraries print

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
