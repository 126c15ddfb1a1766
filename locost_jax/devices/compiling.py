"""Reports that a program takes long to compile, while it is compiled.

Compiling a program for a new length takes seconds to minutes, in which nothing
else happens. Whoever computes with a new shape describes it (`describe`). JAX
says when it begins and ends to compile; a timer prints one line for each shape.
"""

import contextlib
import functools
import math
import threading
import time

import jax

from locost_jax.config import progress

SECONDS = 5.0  # of a compilation that is reported
INITIAL = 'the initial parameters'  # for `describe`
_LOWERED = '/jax/core/compile/jaxpr_to_mlir_module_duration'
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


@functools.cache  # one listener
def announce():
  """Reports long compilations of this thread from now on, on the first host."""
  watched, timer = threading.get_ident(), threading.Timer(0, _report)

  def listen(event, *_, **__):
    nonlocal timer
    if threading.get_ident() != watched or event not in (_LOWERED, _COMPILED):
      return
    timer.cancel()
    if event == _LOWERED:  # the compiler begins
      timer = threading.Timer(SECONDS, _report, _described[-1:])
      timer.daemon = True
      timer.start()

  jax.monitoring.register_event_duration_secs_listener(listen)


def _report(what):
  if what not in _reported:
    _reported.add(what)
    if jax.process_index() == 0:
      progress.note(f'compiling for {what}' if what else 'compiling a program')
