"""A clean and fast memory for a command that computes on a CPU.

XLA frees its temporary memory after every call, and the kernel then hands it
out again page by page: 53,000 page faults of 4 KiB in one step of the
quickstart, a fifth of its time. With transparent huge pages it is 500 faults of
2 MiB. glibc (2.35 and later) asks for them if a variable is set when a process
starts, and only then: hence a new start.

After TensorFlow has read and tokenised a corpus in the same process, a step of
the quickstart took 1.4 times as long again, for a reason that was not found:
hence another.

glibc keeps what XLA's compiler frees, so it counts during the first step:
0.4 GiB of 3.7 with 2 + 2 layers of base width and 16,384 tokens in float32, 0.5
of 3.8 in bfloat16. Hence what is trimmed.
"""

import ctypes
import functools
import os
import sys

_TUNABLES = 'GLIBC_TUNABLES'
_DATA_READ = 'LOCOST_JAX_DATA_READ'
_COMPILED = '/jax/core/compile/backend_compile_duration'


def restart_with_huge_pages():
  """Starts this very command again with huge pages; the process id stays.

  To be called before anything heavy is imported. Does nothing off Linux, or
  where GLIBC_TUNABLES is set already, empty or not.
  """
  if sys.platform == 'linux' and _TUNABLES not in os.environ:
    _restart({_TUNABLES: 'glibc.malloc.hugetlb=1'})


def restart_after_reading():
  """Starts this very command again, if it has read data with SeqIO; once.

  To be called when what was read is on disk. The process id stays.
  """
  if 'seqio' in sys.modules and _DATA_READ not in os.environ:
    _restart({_DATA_READ: '1'})


@functools.cache
def trim_after_compiling(shortest=0.5):
  """From now on the system gets back what a compilation has freed.

  Before the program first runs. Does nothing without glibc, or a second time.

  Args:
    shortest: seconds; what compiles faster leaves little behind.
  """
  libc = ctypes.CDLL(None) if sys.platform == 'linux' else None
  if not hasattr(libc, 'malloc_trim'):
    return
  import jax  # not before the process has started again

  def trim(event, seconds, **_):
    if event == _COMPILED and seconds >= shortest:
      libc.malloc_trim(0)

  jax.monitoring.register_event_duration_secs_listener(trim)


def _restart(environment):
  sys.stdout.flush()
  sys.stderr.flush()
  os.execve(
      sys.executable,
      [sys.executable, *sys.orig_argv[1:]],
      {**os.environ, **environment},
  )
