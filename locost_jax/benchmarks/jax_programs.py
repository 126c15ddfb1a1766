"""Compiles and times JAX programs, and measures their memory.

Programs are compiled before they are timed. Temporary memory is XLA's number
for a compiled program, without results. The peak of a process comes from the
operating system (VmHWM), the peak of a device from its allocator.
"""

import jax
import jax.numpy as jnp

from locost_jax.benchmarks import timing
from locost_jax.devices import memory

# A program is timed only if it needs less than this share of the free memory.
SHARE_OF_FREE_MEMORY = 0.9


def describe_device():
  """Returns platform, kind and peak memory of the first device, for a row."""
  first = jax.local_devices()[0]
  return dict(
      platform=first.platform,
      device=first.device_kind,
      device_peak_bytes=memory.peak_device_bytes(),
  )


def compile_program(function, *args):
  """Returns the compiled program of function(*args)."""
  return jax.jit(function).lower(*args).compile()


def timed_call(program, *args):
  """Returns a function () -> seconds until program(*args) is ready."""
  return lambda: timing.timed(lambda: jax.block_until_ready(program(*args)))


def time_programs(calls, spec, report):
  """Times calls in interleaved rounds.

  Args:
    calls: {name: function () -> seconds}.
    spec: see `spec.make_spec`.
    report: function (line) that shows progress.

  Returns:
    dict(times={name: list of seconds}, seconds={name: median}).
  """
  times = timing.time_interleaved(
      calls, spec['repeats'], spec['seconds'], report
  )
  return dict(times=times, seconds=timing.medians(times))


def temp_bytes(compiled):
  """Returns the temporary memory of a compiled program, without its results."""
  return int(compiled.memory_analysis().temp_size_in_bytes)


def float_bytes(tree):
  """Returns the bytes of the floating-point arrays (or shapes) of a tree."""
  return sum(
      leaf.size * leaf.dtype.itemsize
      for leaf in jax.tree.leaves(tree)
      if jnp.issubdtype(leaf.dtype, jnp.inexact)
  )


def free_bytes(spec):
  """Returns the bytes that can still be allocated; infinity if unknown."""
  on_device = memory.free_device_bytes()
  if on_device is not None:
    return on_device
  known = [free for free in (spec['limit'], memory.free_host_bytes()) if free]
  return min(known, default=float('inf'))


def fits(size, spec):
  """Whether a program with this much temporary memory may be timed."""
  return size < SHARE_OF_FREE_MEMORY * free_bytes(spec)
