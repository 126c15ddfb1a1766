"""Long compilations are reported, once for each shape."""

import threading
import types

import pytest

from locost_jax.devices import compiling
from tests import python

# Compiles twice for each of two shapes; what compiles takes as long as a sleep.
PROGRAM = """
import sys, time
import jax
import jax.numpy as jnp
from jax._src import compiler
from locost_jax.devices import compiling

seconds, shortest = map(float, sys.argv[1:])
compiling.SECONDS = shortest
compiling.announce()
# In compiler.py, as XLA is.
exec(compile(f'def slow(f, *a, **k): time.sleep({seconds}); return f(*a, **k)',
             compiler.__file__, 'exec'))
real = compiler.backend_compile_and_load
compiler.backend_compile_and_load = lambda *a, **k: slow(real, *a, **k)
for length in 4096, 2048:
  x = jnp.ones((8, length))
  with compiling.describe(compiling.shape_of(x)):
    jax.jit(lambda x: x + 1)(x)
    jax.jit(lambda x: x + 2)(x)
with compiling.describe('shown', is_reported=True):
  jax.jit(lambda x: x + 3)(x)
jax.jit(lambda x: x + 4)(x)
time.sleep(3 * shortest)  # without compiling
"""


def compile_in_process(seconds, shortest):
  """Returns the lines of stderr."""
  done = python.run('-c', PROGRAM, seconds, shortest, JAX_PLATFORMS='cpu')
  return done.stderr.splitlines()


def test_a_long_compilation_is_reported_once_for_each_shape():
  assert compile_in_process(1.0, 0.3) == [
      'compiling a program',  # jnp.ones, described by nobody
      'compiling for 8 x 4,096 tokens',
      'compiling for 8 x 2,048 tokens',
  ]


def test_short_compilations_are_not_reported():
  """Also not if many of them follow each other."""
  assert compile_in_process(0.3, 1.0) == []


def test_seconds_are_shown_until_the_end():
  """Also if what is compiled fails; then the line is wiped."""
  lines, enough = [], threading.Event()

  def write(parts):
    lines.append(parts)
    if len(lines) == 2:
      enough.set()

  line = types.SimpleNamespace(write=write, wipe=lambda: lines.append('wiped'))
  before = set(threading.enumerate())
  with pytest.raises(ZeroDivisionError):
    with compiling.show_seconds('the step', line, every=0.01):
      assert enough.wait(60)
      raise ZeroDivisionError
  assert lines[:2] == [['the step', '0 s']] * 2 and lines[-1] == 'wiped'
  assert set(threading.enumerate()) <= before
