"""Processes that measure: each model and each length runs in its own.

So each has its own peak memory, one above the memory limit can be stopped, and
runs of two libraries can be interleaved.
"""

import importlib
import multiprocessing
import os
import sys
import time
from unittest import mock

from locost_jax.config import speed
from locost_jax.devices import memory
from locost_jax.errors import InputError

POLL_SECONDS = 0.05
# Environment of a process whose allocator keeps what it has once got from the
# kernel: LongT5 in PyTorch takes half the time at 16K, LOCOST gains nothing.
KEPT = ', memory kept'
KEPT_TUNABLES = (
    'glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736:'
    'glibc.malloc.hugetlb=1'
)


class OutOfMemory(Exception):
  """A process exceeded its memory limit; the argument is its peak in bytes."""


class Measurement:
  """The calls of a spec (see `programs`), in this process.

  Attributes:
    facts: {name: dict}, what is known of each call before it first runs.
    names: of the calls that can be timed.
    device: kind of the device that they run on.
  """

  def __init__(self, spec):
    """Compiles the calls."""
    calls = importlib.import_module(spec['module']).prepare(spec)
    self.facts = {name: facts for name, (_, facts) in calls.items()}
    self._calls = {name: call for name, (call, _) in calls.items() if call}
    self.names = list(self._calls)
    self.device, self._peak = 'cpu', memory.peak_host_bytes
    if 'jax' in sys.modules:
      self.device = sys.modules['jax'].local_devices()[0].device_kind
      self._peak = memory.peak_bytes  # of a device with its own memory

  def run(self, name):
    """Times a call: dict(seconds, cpu_seconds of all threads, peak_bytes)."""
    wall, cpu = time.perf_counter(), time.process_time()
    self._calls[name]()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return dict(seconds=wall, cpu_seconds=cpu, peak_bytes=self._peak())


class Worker:
  """A `Measurement` in a process of its own; a context manager."""

  def __init__(self, spec):
    """Starts the process and waits until the calls are compiled.

    Raises OutOfMemory above spec['limit'] bytes, and the process's InputError.
    """
    spawn = multiprocessing.get_context('spawn')
    self._limit, self._held = spec['limit'], 0
    self._pipe, theirs = spawn.Pipe()
    self._process = spawn.Process(
        target=_serve, args=(theirs, spec), daemon=True
    )
    tunables = {speed.TUNABLES: KEPT_TUNABLES} if KEPT in spec['part'] else {}
    with mock.patch.dict(os.environ, tunables):
      self._process.start()
    theirs.close()
    try:
      self.facts, self.names, self.device = self._receive()
    except BaseException:
      self.__exit__()
      raise

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._process.kill()
    self._process.join()
    self._pipe.close()

  def run(self, name):
    """See `Measurement.run`."""
    try:
      self._pipe.send(name)
    except OSError:
      pass  # `_receive` sees that the process has ended
    return self._receive()

  def _receive(self):
    while not self._pipe.poll(POLL_SECONDS):
      held = memory.resident_bytes(self._process.pid) or 0
      self._held = max(self._held, held)
      if self._limit is not None and held > self._limit:
        self._process.kill()
        raise OutOfMemory(self._held)
    try:
      answer = self._pipe.recv()
    except (EOFError, OSError):
      self._process.join()
      if self._process.exitcode == -9:  # killed by the kernel: out of memory
        raise OutOfMemory(self._held) from None
      raise RuntimeError(
          'a worker process ended; its error is printed above'
      ) from None
    if isinstance(answer, Exception):
      raise answer
    return answer


def _serve(pipe, spec):
  """Answers a `Worker` until it ends this process."""
  try:  # the kernel kills this process first when memory runs out
    with open('/proc/self/oom_score_adj', 'w', encoding='ascii') as f:
      f.write('1000')
  except OSError:
    pass
  try:
    measurement = Measurement(spec)
    pipe.send((measurement.facts, measurement.names, measurement.device))
    while True:
      pipe.send(measurement.run(pipe.recv()))
  except EOFError:
    pass  # the parent has ended
  except InputError as error:
    pipe.send(error)
  except (MemoryError, RuntimeError) as error:
    # The second phrase is PyTorch's.
    if not memory.is_out_of_memory(error) and (
        "can't allocate memory" not in str(error)
    ):
      raise
    pipe.send(OutOfMemory(memory.peak_host_bytes()))
