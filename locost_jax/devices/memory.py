"""Available memory and peak memory use, of the device or the host.

If the first device reports its memory, as accelerators do, that counts.
Otherwise the host's memory counts, limited by this process's control groups
(set by containers and batch systems) and its address space (`ulimit -v`).
"""

from pathlib import Path
import re
import sys


def available_bytes(root='/', parts=1):
  """Returns the bytes that can still be allocated, or None if unknown.

  parts: the number of CPU devices that share the host's memory.
  """
  free = free_device_bytes()
  if free is None and (free := free_host_bytes(root)) is not None:
    free //= parts
  return free


def peak_bytes():
  """Returns the peak bytes used so far, of the device or the process."""
  return _device_stats().get('peak_bytes_in_use') or peak_host_bytes()


def free_device_bytes():
  """Returns the bytes free on the first device; None if unknown (a CPU)."""
  stats = _device_stats()
  if 'bytes_limit' not in stats:
    return None
  return stats['bytes_limit'] - stats.get('bytes_in_use', 0)


def free_host_bytes(root='/'):
  """Returns `available_bytes` of the host; does not import JAX."""
  root = Path(root)
  free = [_kilobytes(root / 'proc/meminfo', 'MemAvailable')]
  free += _control_groups(root)
  free.append(_addresses_left(root))
  return min((f for f in free if f is not None), default=None)


def host_bytes():
  """Returns the bytes of the host's memory, or None; does not import JAX."""
  return _kilobytes(Path('/proc/meminfo'), 'MemTotal')


def peak_host_bytes():
  """Returns the peak resident bytes (VmHWM); does not import JAX."""
  peak = _kilobytes(Path('/proc/self/status'), 'VmHWM')
  if peak is None:
    import resource  # missing on some systems, as /proc is

    unit = 1 if sys.platform == 'darwin' else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
  return peak


def resident_bytes(pid):
  """Returns the resident bytes (VmRSS) of a process; None if unreadable."""
  return _kilobytes(Path(f'/proc/{pid}/status'), 'VmRSS')


def is_out_of_memory(error):
  """Returns whether an exception means out of memory, on device or host."""
  words = 'RESOURCE_EXHAUSTED', 'Out of memory', 'out of memory', 'bad_alloc'
  return isinstance(error, MemoryError) or (
      isinstance(error, RuntimeError)
      and any(word in str(error) for word in words)
  )


def format_bytes(number):
  """Formats bytes as '7.9 GiB', or as '312 MiB' below 1 GiB."""
  if number < 2**30:
    return f'{number / 2**20:.0f} MiB'
  return f'{number / 2**30:.1f} GiB'


def _device_stats():
  """Returns the first device's statistics; {} if unknown (a CPU)."""
  import jax  # imported here: processes that measure others do not need JAX

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
    import resource  # missing on some systems
  except ImportError:
    return None
  limit, _ = resource.getrlimit(resource.RLIMIT_AS)
  taken = _kilobytes(root / 'proc/self/status', 'VmSize')
  if limit == resource.RLIM_INFINITY or taken is None:
    return None
  return max(limit - taken, 0)


def _control_groups(root):
  """Returns the free bytes of each control group that has a limit.

  A group's limit also holds for its children, so all parents are read too.
  `usage` includes inactive file pages, which the kernel reclaims first; they
  count as free here.
  """
  try:
    lines = (root / 'proc/self/cgroup').read_text().splitlines()
  except OSError:
    return []
  free = []
  for line in lines:
    _, controllers, name = line.split(':', 2)
    if not controllers:  # version 2
      base = root / 'sys/fs/cgroup'
      files = 'memory.max', 'memory.current', 'inactive_file'
    elif 'memory' in controllers.split(','):
      base = root / 'sys/fs/cgroup/memory'
      files = (
          'memory.limit_in_bytes',
          'memory.usage_in_bytes',
          'total_inactive_file',
      )
    else:
      continue
    group = base / name.strip('/')
    # In a container the name may be the host's; then only the root exists.
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
