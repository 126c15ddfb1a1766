"""SIGTERM and SIGINT end a run in order: the state is saved first.

Schedulers send SIGTERM some time before they kill, a terminal SIGINT on ctrl-C.
While a `Signals` is entered either is noted instead of obeyed, and the loop
asks for it where it can stop. A repeated SIGTERM changes nothing; a SIGINT
after another signal ends the process at once.

Several processes must stop after the same step: each adds its flag to a sum
over all of them, computed on the devices along with every step, so that all
read the same sum after the same step. (JAX's own service for this knows SIGTERM
only, and Orbax asks it at checkpoints alone.)
"""

import contextlib
import os
import signal
import threading

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
  """Raised by a signal where the loop allows it; no error, so no Exception."""


class Signals:
  """Notes SIGTERM and SIGINT in this context; does nothing in a side thread.

  Attributes:
    received: the first signal, or None.
  """

  def __init__(self):
    self.received = None
    self._may_raise = self._agreed = False
    self._sum = None

  def __enter__(self):
    self._active = threading.current_thread() is threading.main_thread()
    if self._active:
      # A handler in Python waits until the main thread is back from compiling
      # or computing; what reads from this pipe does not.
      read, self._write = os.pipe()
      os.set_blocking(self._write, False)
      self._wakeup = signal.set_wakeup_fd(
          self._write, warn_on_full_buffer=False
      )
      threading.Thread(target=_answer, args=(read,), daemon=True).start()
      # None stands for a handler that is not Python's: jax.distributed's.
      self._before = {
          number: signal.signal(number, self._handle) or signal.SIG_DFL
          for number in SIGNALS
          if signal.getsignal(number) != signal.SIG_IGN
      }  # as nohup has it
    return self

  def __exit__(self, kind, *_):
    if self._active:
      for number, handler in self._before.items():
        signal.signal(number, handler)
      signal.set_wakeup_fd(self._wakeup)
      os.close(self._write)
      if self.received and kind is None:  # too late for the loop: obey
        signal.raise_signal(self.received)

  def _handle(self, number, frame):
    del frame
    self.received = self.received or signal.Signals(number)
    if self._may_raise:
      self._may_raise = False
      raise Interrupted

  @contextlib.contextmanager
  def interrupting(self):
    """In this context a signal raises Interrupted, also one from before.

    Not with several processes: the others would wait for this one for ever.
    """
    if jax.process_count() > 1:
      yield
      return
    self._may_raise = True
    try:
      if self.received:
        raise Interrupted
      yield
    finally:
      self._may_raise = False

  def ask(self, mesh):
    """Starts the sum of all processes' flags; every process must call it.

    Args:
      mesh: of the run, of all devices of all processes.

    Returns:
      What `check` takes.
    """
    if jax.process_count() == 1:
      return None
    if self._sum is None:
      self._sum = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))
    flags = np.full(jax.local_device_count(), self.received is not None)
    return self._sum(
        jax.make_array_from_process_local_data(
            NamedSharding(mesh, P(mesh.axis_names)), flags.astype(np.int32)
        )
    )

  def check(self, asked):
    """Raises Interrupted if any process had a signal when it asked; once."""
    if asked is None or self._agreed or not int(jax.device_get(asked)):
      return
    self._agreed = True
    self.received = self.received or signal.SIGTERM
    raise Interrupted

  def stop_here(self, mesh):
    """Raises Interrupted if any process has a signal; all must call it."""
    self.check(self.ask(mesh))
    with self.interrupting():
      pass


def _answer(read):
  """Tells at once that a signal came, and ends the process at the second."""
  several = False
  with os.fdopen(read, 'rb', buffering=0) as pipe:
    while numbers := pipe.read(1):
      if numbers[0] not in SIGNALS:
        continue
      name = signal.Signals(numbers[0]).name
      if not several:
        _tell(
            f'{name}: the run stops where its state can be saved; '
            'ctrl-C (SIGINT) now ends it at once'
        )
      elif numbers[0] == signal.SIGINT:
        _tell('SIGINT: ended at once')
        os._exit(128 + signal.SIGINT)
      several = True


def _tell(text):
  try:
    os.write(2, f'\n{text}\n'.encode())
  except OSError:
    pass  # the terminal is gone: that may be why the signal came
