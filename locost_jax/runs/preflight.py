"""Checks before a long run that every host is ready: `main --preflight`.

Checks hosts, versions, devices, an all-reduce over all devices, the config and
its files, the mesh, and that each host can read the others' files in WORKDIR.
Nothing is trained and no file remains. If something does not answer in time,
the process ends with a message.
"""

import contextlib
import glob
import json
import os
import platform
import secrets
import shutil
import time

import jax
from jax.experimental import multihost_utils
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.hosts import connect
from locost_jax.hosts import watchdog
from locost_jax.runs import assemble
from locost_jax.runs import checks

SECONDS = 60  # time limit of each answer
_TEXT = 1000  # bytes of a host's message to the others


def run(phases, workdir, roll, seconds, file):
  """Runs all checks.

  Args:
    phases: from `phases.make_phases`.
    workdir: WORKDIR.
    roll: from `connect.connect`.
    seconds: time limit of each answer; the process ends with a message after
      it.
    file: where the first host writes the result of each check.

  Returns:
    dict of the results, for JSON.

  Raises:
    InputError: a check failed on any host; raised on every host, with the name
      of the host that failed.
  """

  def report(title, text):
    if roll.me == 0:
      print(f'  {title:10}{text}', file=file, flush=True)

  hosts = roll.hosts
  found = dict(hosts=hosts, python=platform.python_version())
  report(
      'hosts',
      f'{len(hosts)} of {hosts[0]["hosts"]}: '
      + ', '.join(f"{row['host']} {row['name']}" for row in hosts),
  )
  report(
      'versions',
      ', '.join(
          f'{name} {version}' for name, version in hosts[0]['versions'].items()
      )
      + f", Python {found['python']}",
  )
  connect.check_srun(os.environ)
  with watchdog.ending_after(seconds, 'the devices of all hosts'):
    found['devices'] = inspect_devices()
  report('devices', describe_devices(**found['devices']))
  with watchdog.ending_after(seconds, 'a sum over all devices'):
    found['sum'] = sum_over_devices()
  report(
      'sum',
      'over all devices: right, '
      f"{1e3 * found['sum']['seconds']:.1f} ms after "
      f"{found['sum']['first_seconds']:.1f} s to compile",
  )
  with _shared_errors(roll, seconds):
    setups = [assemble.Setup(phase) for phase in phases]
    checks.check_all(setups, workdir)
  found['mesh'] = dict(setups[0].mesh.shape)
  report('mesh', ' '.join(f'{axis}={n}' for axis, n in found['mesh'].items()))
  found['free_bytes'] = write_and_read(workdir, roll, seconds)
  others = ", and read each other's files" if len(hosts) > 1 else ''
  report(
      'workdir',
      f'{workdir}: written to{others}, '
      f'{memory.format_bytes(found["free_bytes"])} free',
  )
  return found


def format_text(**found):
  """Returns the last line of the report."""
  devices, hosts = found['devices']['count'], len(found['hosts'])
  return (
      f'ready: {devices} device{"s" * (devices > 1)} on {hosts} '
      f'host{"s" * (hosts > 1)}'
  )


def format_json(**found):
  """Returns the results of `--preflight --format=json`."""
  return json.dumps(found)


def inspect_devices():
  """Returns a dict: platform, kind, count, local, free_bytes, unused."""
  first = jax.local_devices()[0]
  return dict(
      platform=first.platform,
      kind=first.device_kind,
      count=jax.device_count(),
      local=jax.local_device_count(),
      free_bytes=memory.available_bytes(),
      unused=unused_accelerator() if first.platform == 'cpu' else None,
  )


def unused_accelerator(root='/'):
  """Returns an accelerator that JAX does not use and its pip command, or None."""
  for pattern, text in (
      ('dev/nvidia[0-9]*', "an NVIDIA GPU: pip install -U 'jax[cuda13]'"),
      ('dev/accel*', "a TPU: pip install -U 'jax[tpu]'"),
      ('dev/vfio/[0-9]*', "a TPU: pip install -U 'jax[tpu]'"),
  ):
    if glob.glob(os.path.join(root, pattern)):
      return text
  return None


def describe_devices(platform, kind, count, local, free_bytes, unused):
  """Returns the results of `inspect_devices` as a line."""
  name = platform if kind == platform else f'{platform} ({kind})'
  each = f', {local} on each host' if count > local else ''
  free = (
      '' if free_bytes is None else f', {memory.format_bytes(free_bytes)} free'
  )
  hint = f'; not used: {unused}' if unused else ''
  return f'{count} {name}{each}{free}{hint}'


def sum_over_devices():
  """Runs one all-reduce over all devices, twice.

  Returns:
    dict: first_seconds (including compilation), seconds.

  Raises:
    InputError: the sum is wrong.
  """
  n = jax.device_count()
  mesh = jax.make_mesh((n,), ('all',), (jax.sharding.AxisType.Auto,))
  numbers = jax.make_array_from_callback(
      (n,), NamedSharding(mesh, P('all')), lambda where: np.arange(n)[where]
  )
  add = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))
  seconds = []
  for _ in range(2):
    start = time.perf_counter()
    total = int(add(numbers))
    seconds.append(time.perf_counter() - start)
  if total != n * (n - 1) // 2:
    raise InputError(
        f'the sum of 0 to {n - 1} over {n} devices is {total}: expected '
        f'{n * (n - 1) // 2}'
    )
  return dict(first_seconds=seconds[0], seconds=seconds[1])


def write_and_read(workdir, roll, seconds):
  """Every host writes a file into WORKDIR and waits for those of all hosts.

  Args:
    workdir: WORKDIR; made if missing, and removed again in this case.
    roll: from `connect.connect`.
    seconds: time limit of each answer.

  Returns:
    The free bytes on WORKDIR's disk.

  Raises:
    InputError: a host cannot write, or does not see another host's file.
  """
  # Listed before any host makes them; the last host removes them.
  made = [
      folder for folder in (workdir, *workdir.parents) if not folder.exists()
  ]
  with watchdog.ending_after(seconds, 'the hosts to begin with WORKDIR'):
    word = _broadcast(secrets.randbelow(2**31))
  files = [workdir / f'.preflight-{word}-{row["host"]}' for row in roll.hosts]
  try:
    with _shared_errors(roll, seconds), watchdog.ending_after(
        seconds, f'{workdir} to be written to'
    ), _disk_errors(workdir):
      workdir.mkdir(parents=True, exist_ok=True)
      with open(files[roll.me], 'x') as file:
        file.write(str(word))
        file.flush()
        os.fsync(file.fileno())
    with _shared_errors(roll, seconds), watchdog.ending_after(
        seconds, f'{workdir} to be read'
    ), _disk_errors(workdir):
      for row, path in zip(roll.hosts, files, strict=True):
        if not _appears(path):
          raise InputError(
              f"--workdir={workdir}: the file of host {row['host']} "
              f"({row['name']}) is missing: expected one directory that all "
              'hosts see'
          )
    return shutil.disk_usage(workdir).free
  finally:
    with contextlib.suppress(OSError):  # it may not have been written
      files[roll.me].unlink()
    for folder in made:
      with contextlib.suppress(OSError):  # another host's file is still in it
        folder.rmdir()


def _appears(path, seconds=5.0):
  """Whether a file appears; on a network disk this may take a moment."""
  end = time.monotonic() + seconds
  while not path.exists():
    if time.monotonic() > end:
      return False
    time.sleep(0.1)
  return True


@contextlib.contextmanager
def _disk_errors(workdir):
  try:
    yield
  except OSError as error:
    raise InputError(
        f'--workdir={workdir}: {error.strerror}: expected a '
        'directory to write to'
    ) from error


@contextlib.contextmanager
def _shared_errors(roll, seconds):
  """Raises one host's InputError on all hosts."""
  problem = ''
  try:
    yield
  except InputError as error:
    problem = str(error)
  with watchdog.ending_after(seconds, 'what the other hosts found'):
    problems = _gather(problem)
  if len(set(problems)) == 1 and problem:
    raise InputError(problem)
  for row, message in zip(roll.hosts, problems, strict=True):
    if message:
      raise InputError(f"host {row['host']} ({row['name']}): {message}")


def _gather(text):
  """Returns the texts of all hosts, in order."""
  line = np.zeros(_TEXT, np.uint8)
  encoded = text.encode()[:_TEXT]
  line[: len(encoded)] = np.frombuffer(encoded, np.uint8)
  return [
      bytes(row).rstrip(b'\0').decode(errors='ignore')
      for row in multihost_utils.process_allgather(line)
  ]


def _broadcast(number):
  """Returns the first host's number on every host."""
  return int(multihost_utils.broadcast_one_to_all(np.int32(number)))
