"""Ctrl-C and SIGTERM while summaries are written."""

import contextlib
import os
import signal
import sys
import threading

from locost_jax.errors import visible


@contextlib.contextmanager
def end_at_once(progress, output):
  """In this context Ctrl-C and SIGTERM end the process at once.

  Python's own handlers run between bytecode instructions, and one layer over a
  book may take minutes. Finished summaries are already on disk (`results`).

  Args:
    output: the file of the summaries, to name it; None: stdout.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  # Keep ignored signals ignored: a shell's background job ignores SIGINT.
  wanted = [
      number
      for number in (signal.SIGINT, signal.SIGTERM)
      if signal.getsignal(number) != signal.SIG_IGN
  ]
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  before = [signal.signal(number, lambda *_: None) for number in wanted]
  signal.set_wakeup_fd(writer)
  thread = threading.Thread(
      target=_wait, args=(reader, progress, output), daemon=True
  )
  thread.start()
  try:
    yield
  finally:
    signal.set_wakeup_fd(-1)
    for number, handler in zip(wanted, before):
      signal.signal(number, handler)
    os.close(writer)
    thread.join()
    os.close(reader)


def _wait(reader, progress, output):
  """Ends the process on a signal's number; returns when the pipe is closed."""
  received = os.read(reader, 1)
  if not received:
    return
  progress.wipe()
  where = (
      f'; what is done is in {visible(output)}.partial, and the same command goes '
      'on from there'
  )
  print(
      f'interrupted{where if output else ""}',
      file=sys.stderr,
      flush=True,
  )
  os._exit(128 + received[0])
