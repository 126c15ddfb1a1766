"""How much memory there is and how much has been taken.

On an accelerator that reports it, its own memory counts; elsewhere the machine's,
the limits of the control groups that this process is in (containers and batch
systems set them), and that of its addresses (`ulimit -v`).
"""

from pathlib import Path
import re
import sys


def available_bytes(root='/'):
  """Returns the bytes that may still be taken, or None if unknown.

  Args:
    root: directory in which /proc and /sys are looked for.
  """
  free = free_device_bytes()
  return free_host_bytes(root) if free is None else free


def peak_bytes():
  """Returns the most bytes taken so far: the device's or the process's."""
  peak = peak_device_bytes()
  return peak_host_bytes() if peak is None else peak


def free_device_bytes():
  """Bytes left on the first device; None if it does not report them (a CPU)."""
  stats = _device_stats()
  if 'bytes_limit' not in stats:
    return None
  return stats['bytes_limit'] - stats.get('bytes_in_use', 0)


def peak_device_bytes():
  """The most that was given out of the first device's memory, or None."""
  return _device_stats().get('peak_bytes_in_use')


def free_host_bytes(root='/'):
  """As `available_bytes`, of the machine; JAX is not imported."""
  root = Path(root)
  free = [_kilobytes(root / 'proc/meminfo', 'MemAvailable')]
  free += _control_groups(root)
  free.append(_addresses_left(root))
  return min((f for f in free if f is not None), default=None)


def host_bytes():
  """The machine's memory, or None; JAX is not imported."""
  return _kilobytes(Path('/proc/meminfo'), 'MemTotal')


def peak_host_bytes():
  """The most bytes this process has held (VmHWM); JAX is not imported."""
  peak = _kilobytes(Path('/proc/self/status'), 'VmHWM')
  if peak is None:
    import resource  # absent from some systems; so is /proc

    unit = 1 if sys.platform == 'darwin' else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
  return peak


def held_bytes(pid):
  """The bytes a process holds now (VmRSS); None where it cannot be read."""
  return _kilobytes(Path(f'/proc/{pid}/status'), 'VmRSS')


def ran_out(error):
  """Whether an exception means out of memory, on the device or the host."""
  words = 'RESOURCE_EXHAUSTED', 'Out of memory', 'out of memory', 'bad_alloc'
  return isinstance(error, MemoryError) or (
      isinstance(error, RuntimeError)
      and any(word in str(error) for word in words)
  )


def show(number):
  """Bytes as '7.9 GiB', or '312 MiB' below one."""
  if number < 2**30:
    return f'{number / 2**20:.0f} MiB'
  return f'{number / 2**30:.1f} GiB'


def _device_stats():
  """{} if the backend reports nothing (a CPU)."""
  import jax  # a process that measures others has no use for it

  return jax.local_devices()[0].memory_stats() or {}


def _kilobytes(path, name):
  try:
    found = re.search(rf'^{name}:\s*(\d+) kB', path.read_text(), re.MULTILINE)
  except OSError:
    return None
  return int(found[1]) * 1024 if found else None


def _addresses_left(root):
  """Returns the bytes that RLIMIT_AS still allows; None: no limit."""
  try:
    import resource  # absent from some systems
  except ImportError:
    return None
  limit, _ = resource.getrlimit(resource.RLIMIT_AS)
  taken = _kilobytes(root / 'proc/self/status', 'VmSize')
  if limit == resource.RLIM_INFINITY or taken is None:
    return None
  return max(limit - taken, 0)


def _control_groups(root):
  """Returns the free bytes of each control group that has a limit.

  A group's limit holds for its children too, so all the way up is looked at.
  Pages of files that nobody has used for a while count as taken in `usage`;
  the kernel gives them back first.
  """
  try:
    lines = (root / 'proc/self/cgroup').read_text().splitlines()
  except OSError:
    return []
  free = []
  for line in lines:
    _, controllers, name = line.split(':', 2)
    if not controllers:  # version 2
      base, files = root / 'sys/fs/cgroup', (
          'memory.max',
          'memory.current',
          'inactive_file',
      )
    elif 'memory' in controllers.split(','):
      base, files = root / 'sys/fs/cgroup/memory', (
          'memory.limit_in_bytes',
          'memory.usage_in_bytes',
          'total_inactive_file',
      )
    else:
      continue
    group = base / name.strip('/')
    # In a container the name may be the host's: then only the root is there.
    for folder in (group, *group.parents):
      if folder.is_relative_to(base):
        free.append(_left_in_group(folder, *files))
  return free


def _left_in_group(folder, limit, usage, inactive):
  try:
    limit = int((folder / limit).read_text())  # 'max': no limit
    usage = int((folder / usage).read_text())
    statistics = (folder / 'memory.stat').read_text()
  except (OSError, ValueError):
    return None
  reclaimable = re.search(rf'^{inactive} (\d+)', statistics, re.MULTILINE)
  return max(limit - usage + int(reclaimable[1] if reclaimable else 0), 0)
