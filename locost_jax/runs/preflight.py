"""Checks before a long run that every host is ready: `main --preflight`.

Checks versions, that JAX has found an accelerator, a sum over all devices, the
config and its files on every host, the mesh, that all hosts see one WORKDIR,
and the numbers of --expect_hosts and its like. Nothing is trained and no file
remains. If something does not answer in time, the process ends with a message.
"""

import contextlib
import json
import os
import shutil
import time

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

from locost_jax.config import object_store
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import tasks
from locost_jax.devices import collective
from locost_jax.devices import connect
from locost_jax.devices import memory
from locost_jax.devices import watchdog
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks


def run(phases, workdir, expected, seconds, file):
  """Runs all checks; expected: of `train_flags.expected`, None for any number."""

  def report(title, text):
    if collective.is_first_host():
      print(f'  {title:10}{text}', file=file, flush=True)

  connect.check_srun(os.environ)
  with watchdog.ending_after(seconds, 'the devices of all hosts'):
    hosts = connect.check_versions()
    kind = jax.local_devices()[0].device_kind
  count, local = jax.device_count(), jax.local_device_count()
  names = ', '.join(f'{i} {row["name"]}' for i, row in enumerate(hosts))
  report('hosts', f'{len(hosts)}: {names}')
  report('versions', ', '.join(map(' '.join, hosts[0]['versions'].items())))
  report('devices', f'{count} {kind}, {local} on this host')
  platform = jax.default_backend()
  text = f'JAX has {{}} ({platform})'
  check_expected(expected, text, hosts=len(hosts), devices=count)
  if platform == 'cpu' and 'cpu' not in os.environ.get('JAX_PLATFORMS', ''):
    raise InputError(
        "--preflight: JAX uses the CPU; install 'jax[tpu]' or 'jax[cuda13]', or "
        'set JAX_PLATFORMS=cpu'
    )
  with watchdog.ending_after(seconds, 'a sum over all devices'):
    sum_seconds = sum_over_devices()
  report('sum', f'over all devices: right, {1e3 * sum_seconds:.1f} ms')
  with _raising_together(seconds, 'the config and its files'):
    setups = [assemble.Setup(phase) for phase in phases]
    vocabulary = checks.check_all(setups, workdir)
    data = count_data(setups[0], vocabulary)
    check_expected(expected, 'found {:,}', **data)
  mesh = dict(setups[0].mesh.shape)
  report('files', 'the config and the files that it names: right')
  numbers = parameters.count(setups[0].shapes)
  report(
      'data',
      f'{data["files"]:,} training files, {data["vocabulary"]:,} tokens in the '
      f'vocabulary, {numbers:,} parameters',
  )
  report('mesh', ' '.join(f'{axis}={n}' for axis, n in mesh.items()))
  free = write_and_read(workdir, seconds)
  report('workdir', f'{workdir}: {memory.format_bytes(free)} free')
  return dict(
      hosts=hosts,
      devices=dict(kind=kind, count=count, local=local),
      sum_seconds=sum_seconds,
      **data,
      parameters=numbers,
      mesh=mesh,
      free_bytes=free,
  )


def format_text(hosts, devices, **_):
  """Returns the last line of the report."""
  counts = (devices['count'], 'device'), (len(hosts), 'host')
  return 'ready: ' + ' on '.join(
      f'{n} {name}{"s" * (n > 1)}' for n, name in counts
  )


def format_json(**found):
  """Returns the results of `--preflight --format=json`."""
  return json.dumps(found)


def check_expected(expected, text, **found):
  """Raises an InputError, text of the number found, if another is expected."""
  for name, count in found.items():
    if expected[name] not in (None, count):
      message = text.format(count)
      raise InputError(f'--expect_{name}={expected[name]}: {message}')


def count_data(setup, vocabulary):
  """Returns {'files', 'vocabulary': number}; gives the Setup the vocabulary.

  None stands for a vocabulary to be trained, of config.data.vocabulary_size.
  """
  config, size = setup.config, setup.config.data.vocabulary_size
  setup.expect_vocabulary(vocabulary)
  found = map(corpus_lib.corpus, tasks.members(config).values())
  return dict(
      files=sum(len(corpus.splits['train']) for corpus in found),
      vocabulary=vocabulary.size if vocabulary else size,
  )


def sum_over_devices():
  """Runs one all-reduce over all devices; returns its seconds once compiled."""
  n = jax.device_count()
  mesh = jax.make_mesh((n,), ('all',), (jax.sharding.AxisType.Auto,))
  numbers = jax.make_array_from_callback(
      (n,), NamedSharding(mesh, P('all')), lambda where: np.arange(n)[where]
  )
  add = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))
  total, start = int(add(numbers)), time.perf_counter()
  int(add(numbers))
  if total != n * (n - 1) // 2:
    raise InputError(
        f'the sum of 0 to {n - 1} over {n} devices is {total}: expected '
        f'{n * (n - 1) // 2}'
    )
  return time.perf_counter() - start


def write_and_read(workdir, seconds):
  """Every host writes a file into WORKDIR and looks for those of all hosts.

  A missing WORKDIR is made and removed again. Returns the free bytes on its
  disk.
  """
  # Listed before any host makes them; the last host removes them.
  made = [path for path in (workdir, *workdir.parents) if not path.exists()]
  with _raising_together(seconds, f'{workdir}'):
    pass  # all hosts have listed them
  files = [workdir / f'.preflight-{i}' for i in range(jax.process_count())]
  mine = files[jax.process_index()]
  if object_store.is_uri(object_store.original(f'{workdir}/')):
    files = [mine]  # `bucket_run.open_workdir` has written to the bucket
  try:
    with _raising_together(seconds, f'{workdir} to be written to'):
      workdir.mkdir(parents=True, exist_ok=True)
      mine.write_text('ready')
    with _raising_together(seconds, f'{workdir} to be read'):
      for _ in range(50):  # a network disk may take a moment
        if all(path.exists() for path in files):
          break
        time.sleep(0.1)
      else:
        raise InputError(
            f'--workdir={workdir}: host {jax.process_index()} sees no files of '
            'other hosts in it: expected one directory that all hosts see'
        )
    return shutil.disk_usage(workdir).free
  finally:
    for path in (mine, *made):  # others' files may still be in a directory
      with contextlib.suppress(OSError):
        path.unlink() if path == mine else path.rmdir()


@contextlib.contextmanager
def _raising_together(seconds, what):
  """Raises one host's error on all hosts; ends a process that waits for long."""
  with watchdog.ending_after(seconds, what), collective.raising_together():
    try:
      yield
    except OSError as error:
      raise InputError(f'{what}: {error.strerror}') from error
