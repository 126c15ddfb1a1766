"""Before a long run: is everything there that it needs, on every host?

Hosts, versions, devices, a sum over all of them, what the config names, the
mesh, and files that the hosts write for each other into WORKDIR. Nothing is
trained and nothing stays; what does not answer ends with a sentence.
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

SECONDS = 60  # for each answer
_TEXT = 1000  # bytes of a host's report to the others


def run(phases, workdir, roll, seconds, file):
  """Looks at everything; returns it as a dict for JSON.

  Args:
    phases: from `phases.make_phases`.
    workdir: WORKDIR.
    roll: of `hosts.connect`.
    seconds: for each answer; above it the process ends with a sentence.
    file: where the first host writes each line as soon as it is known.

  Raises:
    InputError: something is not as it must be; on every host, with the name of
      the host that said so.
  """

  def say(title, text):
    if roll.me == 0:
      print(f'  {title:10}{text}', file=file, flush=True)

  there = roll.hosts
  found = dict(hosts=there, python=platform.python_version())
  say(
      'hosts',
      f'{len(there)} of {there[0]["hosts"]}: '
      + ', '.join(f"{row['host']} {row['name']}" for row in there),
  )
  say(
      'versions',
      ', '.join(
          f'{name} {version}' for name, version in there[0]['versions'].items()
      )
      + f", Python {found['python']}",
  )
  connect.check_srun(os.environ)
  with watchdog.ending_after(seconds, 'the devices of all hosts'):
    found['devices'] = look_at_devices()
  say('devices', describe_devices(**found['devices']))
  with watchdog.ending_after(seconds, 'a sum over all devices'):
    found['sum'] = add_up()
  say(
      'sum',
      'over all devices: right, '
      f"{1e3 * found['sum']['seconds']:.1f} ms after "
      f"{found['sum']['first_seconds']:.1f} s to compile",
  )
  with _telling(roll, seconds):
    setups = [assemble.Setup(phase) for phase in phases]
    checks.check_all(setups, workdir)
  found['mesh'] = dict(setups[0].mesh.shape)
  say('mesh', ' '.join(f'{axis}={n}' for axis, n in found['mesh'].items()))
  found['free_bytes'] = write_and_read(workdir, roll, seconds)
  others = ", and read each other's files" if len(there) > 1 else ''
  say(
      'workdir',
      f'{workdir}: written to{others}, '
      f'{memory.show(found["free_bytes"])} free',
  )
  return found


def format_text(**found):
  """The last line."""
  devices, there = found['devices']['count'], len(found['hosts'])
  return (
      f'ready: {devices} device{"s" * (devices > 1)} on {there} '
      f'host{"s" * (there > 1)}'
  )


def format_json(**found):
  """Returns the results of `--preflight --format=json`."""
  return json.dumps(found)


def look_at_devices():
  """{'platform', 'kind', 'count', 'local', 'free_bytes', 'unused'}."""
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
  """Returns an accelerator that JAX does not use, with its pip command."""
  for pattern, text in (
      ('dev/nvidia[0-9]*', "an NVIDIA GPU: pip install -U 'jax[cuda13]'"),
      ('dev/accel*', "a TPU: pip install -U 'jax[tpu]'"),
      ('dev/vfio/[0-9]*', "a TPU: pip install -U 'jax[tpu]'"),
  ):
    if glob.glob(os.path.join(root, pattern)):
      return text
  return None


def describe_devices(platform, kind, count, local, free_bytes, unused):
  """The line of `look_at_devices`."""
  name = platform if kind == platform else f'{platform} ({kind})'
  each = f', {local} on each host' if count > local else ''
  free = '' if free_bytes is None else f', {memory.show(free_bytes)} free'
  hint = f'; not used: {unused}' if unused else ''
  return f'{count} {name}{each}{free}{hint}'


def add_up():
  """Adds the numbers of all devices, twice; the seconds of both.

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
        f'the sum of 0 to {n - 1} over {n} devices came out as '
        f'{total}: expected {n * (n - 1) // 2}'
    )
  return dict(first_seconds=seconds[0], seconds=seconds[1])


def write_and_read(workdir, roll, seconds):
  """Every host writes a file into WORKDIR and reads those of all.

  Args:
    workdir: WORKDIR; made if missing, and then removed again.
    roll: of `hosts.connect`.
    seconds: for each answer.

  Returns:
    The bytes that are free there.

  Raises:
    InputError: one cannot write, or does not see what another has written.
  """
  # Before any host makes them: the last to leave removes them.
  made = [
      folder for folder in (workdir, *workdir.parents) if not folder.exists()
  ]
  with watchdog.ending_after(seconds, 'the hosts to begin with WORKDIR'):
    word = _of_first_host(secrets.randbelow(2**31))
  files = [workdir / f'.preflight-{word}-{row["host"]}' for row in roll.hosts]
  try:
    with _telling(roll, seconds), watchdog.ending_after(
        seconds, f'{workdir} to be written to'
    ), _disk_errors(workdir):
      workdir.mkdir(parents=True, exist_ok=True)
      with open(files[roll.me], 'x') as file:
        file.write(str(word))
        file.flush()
        os.fsync(file.fileno())
    with _telling(roll, seconds), watchdog.ending_after(
        seconds, f'{workdir} to be read'
    ), _disk_errors(workdir):
      for row, path in zip(roll.hosts, files, strict=True):
        if not _appears(path):
          raise InputError(
              f"--workdir={workdir}: what host {row['host']} ({row['name']}) "
              'wrote is not there: expected one directory that all hosts see'
          )
    return shutil.disk_usage(workdir).free
  finally:
    with contextlib.suppress(OSError):  # it was never written
      files[roll.me].unlink()
    for folder in made:
      with contextlib.suppress(OSError):  # another host's file is still in it
        folder.rmdir()


def _appears(path, seconds=5.0):
  """Whether a file is there; on a network disk it may take a moment."""
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
def _telling(roll, seconds):
  """An InputError of one host in this context is one of all hosts."""
  problem = ''
  try:
    yield
  except InputError as error:
    problem = str(error)
  with watchdog.ending_after(seconds, 'what the other hosts found'):
    problems = _of_all_hosts(problem)
  if len(set(problems)) == 1 and problem:
    raise InputError(problem)
  for row, said in zip(roll.hosts, problems, strict=True):
    if said:
      raise InputError(f"host {row['host']} ({row['name']}): {said}")


def _of_all_hosts(text):
  """Every host's text, in order."""
  line = np.zeros(_TEXT, np.uint8)
  encoded = text.encode()[:_TEXT]
  line[: len(encoded)] = np.frombuffer(encoded, np.uint8)
  return [
      bytes(row).rstrip(b'\0').decode(errors='ignore')
      for row in multihost_utils.process_allgather(line)
  ]


def _of_first_host(number):
  return int(multihost_utils.broadcast_one_to_all(np.int32(number)))
