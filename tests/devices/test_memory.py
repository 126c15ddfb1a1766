"""Available memory, read from fake /proc and /sys files; peak memory."""

from locost_jax.devices import memory

GIB = 2**30


def machine(root, files):
  for name, text in files.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  return root


MEMINFO = 'MemTotal:  16777216 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\n'


def test_free_and_peak_memory_are_below_the_total():
  assert (
      memory.peak_host_bytes() < memory.host_bytes() >= memory.free_host_bytes()
  )


def test_a_machine_without_control_groups(tmp_path):
  assert memory.available_bytes(tmp_path) is None
  machine(tmp_path, {'proc/meminfo': MEMINFO, 'proc/self/cgroup': '0::/\n'})
  assert memory.available_bytes(tmp_path) == 8 * GIB


def test_control_groups_version_2(tmp_path):
  """A parent's limit counts; 'max' is no limit; cached files are free."""
  group = 'sys/fs/cgroup/batch/job'
  machine(
      tmp_path,
      {
          'proc/meminfo': MEMINFO,
          'proc/self/cgroup': '0::/batch/job\n',
          f'{group}/memory.max': 'max\n',
          f'{group}/memory.current': f'{GIB}\n',
          f'{group}/memory.stat': 'inactive_file 0\n',
          f'{group}/../memory.max': f'{4 * GIB}\n',
          f'{group}/../memory.current': f'{3 * GIB}\n',
          f'{group}/../memory.stat': f'anon 5\ninactive_file {GIB}\n',
      },
  )
  assert memory.available_bytes(tmp_path) == 2 * GIB


def test_control_groups_version_1_in_a_container(tmp_path):
  """The group has the host's name; its files are at the root."""
  base = 'sys/fs/cgroup/memory'
  machine(
      tmp_path,
      {
          'proc/meminfo': MEMINFO,
          'proc/self/cgroup': '5:cpu:/x\n4:memory:/docker/abc\n0::/\n',
          f'{base}/memory.limit_in_bytes': f'{3 * GIB}\n',
          f'{base}/memory.usage_in_bytes': f'{2 * GIB}\n',
          f'{base}/memory.stat': f'inactive_file 7\ntotal_inactive_file {GIB}\n',
      },
  )
  assert memory.available_bytes(tmp_path) == 2 * GIB


def test_a_device_that_reports_its_memory(tmp_path, monkeypatch):
  monkeypatch.setattr(
      memory,
      '_device_stats',
      lambda: dict(bytes_limit=10, bytes_in_use=4, peak_bytes_in_use=7),
  )
  assert (memory.available_bytes(tmp_path), memory.peak_bytes()) == (6, 7)


def test_the_peak_grows_and_stays():
  before = memory.peak_bytes()
  held = bytearray(b'x') * (before + 2**26)
  assert memory.peak_bytes() >= len(held) > before
  del held
  assert memory.peak_bytes() > before


def test_format_bytes():
  assert [memory.format_bytes(n) for n in (0, 5 * 2**20, int(7.9 * GIB))] == [
      '0 MiB',
      '5 MiB',
      '7.9 GiB',
  ]
