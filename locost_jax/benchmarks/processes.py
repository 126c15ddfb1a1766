"""Every measurement in a process of its own, watched by the one that asks.

So lengths and models do not hide each other's peak, a process that would need
more than it may is ended without harm, and two libraries can take turns.

A process reads one JSON object per line on stdin and answers each with one on
stdout: first what to prepare, then {} for every run of it. Everything else
that is printed goes to stderr.
"""

import json
import os
import select
import subprocess
import sys

from locost_jax import memory
from locost_jax.errors import InputError

SECONDS_BETWEEN_LOOKS = 0.05
# What XLA, PyTorch and Python say when an allocation fails.
OUT_OF_MEMORY = ('RESOURCE_EXHAUSTED', 'Out of memory', 'out of memory',
                 "can't allocate memory", 'bad_alloc', 'MemoryError')


class MemoryEnded(Exception):
  """A process held more than it may, or was refused or killed for memory."""

  def __init__(self, held):
    super().__init__(f'memory ended at {held} bytes')
    self.held = held  # bytes, the most that was seen


class Process:
  """A subject in its own process: `ask()` runs it once; use it in `with`."""

  def __init__(self, spec, limit=None, module='locost_jax.benchmarks.child'):
    """Starts the process and waits until its subject is prepared.

    Args:
      spec: what to prepare, JSON; `child.prepare` reads it.
      limit: most bytes it may hold; None: no limit.
      module: what runs there.

    Raises:
      MemoryEnded, InputError: as `ask`.
    """
    self._limit, self._held, self._rest = limit, 0, b''
    self._process = subprocess.Popen(
        [sys.executable, '-m', module], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE)
    try:
      self.prepared = self.ask(spec)
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

  def ask(self, message=None):
    """Sends a message and returns the answer, a dict with `peak_bytes`.

    Raises:
      MemoryEnded: the process was ended for its memory.
      InputError: what the process refused.
    """
    try:
      self._process.stdin.write(json.dumps(message or {}).encode() + b'\n')
      self._process.stdin.flush()
    except BrokenPipeError:
      pass  # its end is seen below
    answer = json.loads(self._read_line())
    if 'memory_ended' in answer:
      raise MemoryEnded(max(self._held, answer['peak_bytes']))
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
        raise MemoryEnded(self._held)
      if not ready:
        continue
      part = os.read(stdout, 1 << 16)
      if not part:
        status = self._process.wait()
        if status == -9:  # what the kernel does when memory ends
          raise MemoryEnded(self._held)
        raise RuntimeError(f'a measuring process ended with status {status}; '
                           'it says why above')
      self._rest += part
    line, self._rest = self._rest.split(b'\n', 1)
    return line


def serve(prepare):
  """The other side: answers until stdin ends.

  Args:
    prepare: spec -> (what is told of it, run); run() -> what it measured.
      Both are dicts. An InputError in them is told and ends the process.
  """
  # Should the machine's memory end, this process goes first.
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
        told, run = prepare(json.loads(line))
        answer(told)
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
