"""Time, memory and growth: what every benchmark measures with.

Times are wall-clock seconds of whole calls. Things that are compared take turns
in the same process, because a machine's speed drifts. Temporary memory is XLA's
own number for a compiled program, results not counted; the peak of a process is
the operating system's (VmHWM), that of a device the allocator's.
"""

import math
import os
from pathlib import Path
import platform
import statistics
import time

from locost_jax import memory
from locost_jax import versions as versions_lib

PACKAGES = ('locost_jax', 'jax', 'jaxlib', 'flax', 'numpy', 'torch',
            'transformers')
# What changes a machine's speed from outside.
VARIABLES = ('XLA_FLAGS', 'JAX_PLATFORMS', 'OMP_', 'MALLOC_', 'LD_PRELOAD',
             'XLA_PYTHON_CLIENT')


def take_turns(calls, repeats, seconds, tell=lambda text: None):
  """Times several things in turn: a, b, c, a, b, c, ...

  The first round warms up and does not count, unless it alone took longer than
  `seconds`: then it is all there is.

  Args:
    calls: name -> () -> seconds that it took. A call that returns None is not
      asked again.
    repeats: rounds that count.
    seconds: no round begins after that many; one always counts.
    tell: takes a line of progress.

  Returns:
    name -> seconds of each counted round, [] for what returned None at once.
  """
  calls, start = dict(calls), time.perf_counter()
  times = {name: [] for name in calls}
  for turn in range(repeats + 1):
    for name, call in list(calls.items()):
      tell(f'{name}, ' + (f'{turn} of {repeats}' if turn else 'warming up'))
      took = call()
      if took is None:
        del calls[name]
      else:
        times[name].append(took)
    late = time.perf_counter() - start > seconds
    if late:
      break
    if turn == 0:
      times = {name: [] for name in times}
  return times


def timed(run, *args):
  """Returns the seconds of run(*args), which returns when its work is done."""
  start = time.perf_counter()
  run(*args)
  return time.perf_counter() - start


def medians(times):
  """name -> list of seconds to name -> their median; empty lists fall out."""
  return {name: statistics.median(row) for name, row in times.items() if row}


def fit_exponent(lengths, seconds):
  """The p of seconds = c length^p, by least squares of the logarithms.

  Returns None with fewer than two different lengths.
  """
  points = [(math.log(x), math.log(y)) for x, y in zip(lengths, seconds)
            if y > 0]
  if len({x for x, _ in points}) < 2:
    return None
  mean_x = statistics.fmean(x for x, _ in points)
  mean_y = statistics.fmean(y for _, y in points)
  return (sum((x - mean_x) * (y - mean_y) for x, y in points)
          / sum((x - mean_x) ** 2 for x, _ in points))


def temp_bytes(compiled):
  """Temporary memory of a compiled program, its results not counted."""
  return int(compiled.memory_analysis().temp_size_in_bytes)


def cores():
  """CPU cores this process may use."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def describe_machine():
  """CPU, cores, memory, system, and variables that change the speed."""
  cpu = platform.processor() or platform.machine()
  try:
    for line in Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith('model name'):
        cpu = line.split(':', 1)[1].strip()
        break
  except OSError:
    pass
  variables = {key: value for key, value in sorted(os.environ.items())
               if key.startswith(VARIABLES)}
  return dict(cpu=cpu, cores=cores(), memory_bytes=memory.host_bytes(),
              system=f'{platform.system()} {platform.release()}',
              variables=variables)


def versions():
  """Python and the packages that are installed, by name."""
  return {'python': platform.python_version(),
          **versions_lib.installed(PACKAGES)}
