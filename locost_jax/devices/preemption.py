"""SIGTERM and SIGINT: a run saves its state first, a summary ends at once.

Schedulers send SIGTERM some time before they kill a process; ctrl-C in a
terminal sends SIGINT. Inside a `Signals` context either one is only recorded,
and the training loop checks for it where it can stop. A second SIGTERM changes
nothing; a SIGINT after another signal ends the process at once.

Several processes must stop after the same step: each adds its flag to a sum
over all of them, computed on the devices with every step, so that all read the
same sum after the same step. (JAX's own service for this handles only SIGTERM,
and Orbax checks it only at checkpoints.)
"""

import contextlib
import os
import signal
import sys
import threading

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.errors import visible

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
  """Raised by a signal where the loop can stop; not an error."""


class Signals:
  """Context that records SIGTERM and SIGINT; only in the main thread."""

  def __init__(self):
    self.received = None
    self._may_raise = self._agreed = False
    self._sum = None

  def __enter__(self):
    self._watched = _watched(self._handle, _report_signals)
    self._watched.__enter__()
    return self

  def __exit__(self, kind, *_):
    self._watched.__exit__(None, None, None)
    # The loop has not handled a signal that came after its last check.
    if self.received and kind is None:
      signal.raise_signal(self.received)

  def _handle(self, number, frame):
    del frame
    self.received = self.received or signal.Signals(number)
    if self._may_raise:
      self._may_raise = False
      raise Interrupted

  @contextlib.contextmanager
  def interrupting(self):
    """Context in which a signal raises Interrupted, even an earlier one.

    Does nothing with several processes: the others would wait forever.
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

  @contextlib.contextmanager
  def stopping_all(self):
    """Context whose error on one of several hosts stops all at one step.

    Each then waits for the last save, which raises the error on all.
    """
    try:
      yield
    except (InputError, Stopped):
      if jax.process_count() == 1:
        raise
      self.received = self.received or signal.SIGTERM

  def start_sum(self, mesh):
    """Starts the sum of all processes' flags; every process must call it."""
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

  def check(self, flags):
    """Raises Interrupted, once, if any process had received a signal."""
    if flags is None or self._agreed or not int(jax.device_get(flags)):
      return
    self._agreed = True
    self.received = self.received or signal.SIGTERM
    raise Interrupted

  def stop_here(self, mesh):
    """Raises Interrupted if any process got a signal; all must call it."""
    self.check(self.start_sum(mesh))
    with self.interrupting():
      pass


@contextlib.contextmanager
def _watched(handle, respond):
  """Context in which a signal calls `handle`, and a thread responds at once.

  A Python handler runs only after the main thread returns from compiling or
  computing; a thread that reads a pipe does not wait. Outside the main thread
  the context does nothing.

  Args:
    respond: takes an iterator of signals as they come, which ends with the
      context.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  read, write = os.pipe()
  os.set_blocking(write, False)
  wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
  thread = threading.Thread(
      target=lambda: respond(_read_signals(read)), daemon=True
  )
  thread.start()
  # signal() returns None for a handler that Python did not install, as
  # jax.distributed's.
  before = {
      number: signal.signal(number, handle) or signal.SIG_DFL
      for number in SIGNALS
      if signal.getsignal(number) != signal.SIG_IGN
  }  # signals that the caller ignores stay ignored, as with nohup
  try:
    yield
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
    signal.set_wakeup_fd(wakeup)
    os.close(write)
    thread.join()


def _read_signals(read):
  """Yields SIGTERM and SIGINT as they come; ends when the pipe is closed."""
  with os.fdopen(read, 'rb', buffering=0) as pipe:
    while numbers := pipe.read(1):
      if numbers[0] in SIGNALS:
        yield signal.Signals(numbers[0])


def _report_signals(signals):
  """Reports the first signal at once; ends the process at a later SIGINT."""
  first = next(signals, None)
  if first is None:
    return
  _write_to_stderr(
      f'{first.name}: the run will save its state and stop; press ctrl-C '
      '(SIGINT) to end it at once'
  )
  for number in signals:
    if number == signal.SIGINT:
      _write_to_stderr('SIGINT: ended at once')
      os._exit(128 + number)


def _write_to_stderr(text):
  try:
    os.write(2, f'\n{text}\n'.encode())
  except OSError:
    pass  # a closed terminal may have caused the signal


def end_at_once(progress, output):
  """Returns a context in which Ctrl-C and SIGTERM end the process at once.

  One layer over a book may take minutes. Finished summaries are already on
  disk.

  Args:
    progress: the `Progress` whose line is wiped.
    output: the file of the summaries, to name it; None: stdout.
  """

  def end(signals):
    for number in signals:
      progress.wipe()
      where = output and (
          f'; what is done is in {visible(output)}.partial, and the same '
          'command goes on from there'
      )
      print(f'interrupted{where or ""}', file=sys.stderr, flush=True)
      os._exit(128 + number)

  return _watched(lambda *_: None, end)
