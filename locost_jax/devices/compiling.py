"""Reports that a program takes long to compile, while it is compiled.

Compiling a program for a new length takes seconds to minutes, in which nothing
else happens. Whoever computes with a new shape describes it (`describe`). A
thread watches the main thread and prints one line for each shape.
"""

import contextlib
import functools
import math
import threading
import time

import jax

from locost_jax.config import progress
from locost_jax.devices import watchdog

SECONDS = 5.0  # of a compilation that is reported
INITIAL = 'the initial parameters'  # for `describe`
_COMPILED = '/jax/core/compile/backend_compile_duration'

_described = ['']  # the last one is what the main thread computes
_reported = set()


@contextlib.contextmanager
def describe(what, is_reported=False):
  """A context that names what programs compiled inside it are for.

  Args:
    is_reported: whether the user has already seen that it is compiled.
  """
  _described.append(what)
  if is_reported:
    _reported.add(what)
  try:
    yield
  finally:
    _described.pop()


@contextlib.contextmanager
def show_seconds(what, line=None, every=1.0):
  """A context that shows its seconds in a progress.Progress, on stderr."""
  line = line or progress.Progress()
  ended, start = threading.Event(), time.time()

  def show():
    while not ended.wait(every):
      line.write([what, progress.duration(time.time() - start)])

  thread = threading.Thread(target=show, name='seconds', daemon=True)
  thread.start()
  try:
    yield
  finally:
    ended.set()
    thread.join()
    line.wipe()


def shape_of(inputs):
  """Returns '8 x 4,096 tokens' for inputs [8, L], or [8, P, L]."""
  rows, *lengths = inputs.shape
  return f'{rows} x {math.prod(lengths):,} tokens'


@functools.cache  # one thread
def announce():
  """Reports long compilations of this thread from now on, on the first host."""
  watched, since, seconds = threading.get_ident(), [None], SECONDS

  def end(event, *_, **__):
    if event == _COMPILED:
      since[0] = None

  def watch():
    while True:
      time.sleep(seconds / 10)
      if not watchdog.is_compiling(watched):
        since[0] = None
      elif since[0] is None:
        since[0] = time.monotonic()
      elif time.monotonic() - since[0] >= seconds:
        _report(_described[-1])

  jax.monitoring.register_event_duration_secs_listener(end)
  threading.Thread(target=watch, name='compiling', daemon=True).start()


def _report(what):
  if what not in _reported:
    _reported.add(what)
    if jax.process_index() == 0:
      progress.note(f'compiling for {what}' if what else 'compiling a program')
