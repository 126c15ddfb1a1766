"""Large pages for the arrays of a command that computes on a CPU.

XLA frees its temporary memory after every call, and the kernel then hands it
out again page by page: 53,000 page faults of 4 KiB in one step of the
quickstart, a fifth of its time. With transparent huge pages it is 500 faults of
2 MiB. glibc (2.35 and later) asks for them if it is told so when a process
starts, and only then: hence a new start.
"""

import os
import sys

_TUNABLES = 'GLIBC_TUNABLES'


def restart_with_huge_pages():
  """Starts this very command again with huge pages; the process id stays.

  To be called before anything heavy is imported. Does nothing off Linux, or
  where GLIBC_TUNABLES is set already, empty or not.
  """
  if sys.platform != 'linux' or _TUNABLES in os.environ:
    return
  environment = dict(os.environ, **{_TUNABLES: 'glibc.malloc.hugetlb=1'})
  os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
