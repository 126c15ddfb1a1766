"""Checks a run for a machine that is not here: keys, values, mesh, its files.

  python launch/check_run.py --topology=v5litepod-16 --config=FILE [FLAG ...]

The flags are those of locost_jax.main. It opens none of the run's files: it
prints a line `needs KEY=PATH` for each, then `slice NAME DEVICES HOSTS`. Bad
input is one line on stderr, and status 2, as in the run itself.
"""

import glob
import math
import os
from pathlib import Path
import re
import sys

# The checkout's package, as on the workers.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ['JAX_PLATFORMS'] = 'cpu'

# pylint: disable=g-import-not-at-top
import jax

from locost_jax import main as main_lib
from locost_jax.config import commands
from locost_jax.config import train_flags
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import tasks
from locost_jax.devices import topology
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.runs import preflight
from locost_jax.vocabularies import vocabulary
from locost_jax.workdir import phases as phases_lib


def main(values, arguments):
  """Prints what a run needs; raises an InputError for what it would refuse."""
  commands.expect_flags_only(arguments)
  config, overrides = commands.get_config(values)
  name, devices, hosts = find_slice(values.topology)
  expected = train_flags.expected(values)
  preflight.check_expected(
      expected, f'{values.topology} has {{}}', devices=devices, hosts=hosts
  )
  # A mesh of one device many times: nothing will be computed on it.
  mesh_devices = jax.local_devices()[:1] * devices
  setups = [
      assemble.Setup(phase, mesh_devices)
      for phase in phases_lib.make_phases(config, overrides, values.workdir)
  ]
  needs = {}
  for setup in setups:
    checks.check_keys(setup, setups[0])
    tasks.check_settings(setup.config)
    needs.update(dict.fromkeys(list_files(setup.config)))
  if os.path.exists(path := setups[0].config.data.vocabulary):
    size = vocabulary.load_vocabulary(path).size
    preflight.check_expected(expected, f'{path} has {{:,}}', vocabulary=size)
  for key, path in needs:
    if '://' not in path:  # the workers fetch it
      print(f'needs {key}={path}')
  print(f'slice {name} {devices} {hosts}')


def find_slice(name):
  """Returns (libtpu's name, devices, hosts) of an accelerator type."""
  found = topology.name_slice(name or '')
  sides = [int(side) for side in re.findall(r'\d+', found.partition(':')[2])]
  chips = math.prod(sides)
  # A host has four chips, or the eight of a small slice of two axes.
  hosts = 1 if chips <= 8 and len(sides) == 2 else max(chips // 4, 1)
  return found, chips, hosts


def list_files(config):
  """Yields (key, path) of what a run reads besides its code and WORKDIR."""
  data, texts = config.data, ('train_files', 'validation_files', 'test_files')
  if data.cache_dir:  # the texts need not be there
    yield 'data.cache_dir', data.cache_dir
    texts = ()
  for key in texts:
    if isinstance(data[key], str):  # not a Function
      for pattern in filter(None, map(str.strip, data[key].split(','))):
        for path in sorted(glob.glob(pattern, recursive=True)) or [pattern]:
          yield f'data.{key}', path
  if data.vocabulary not in ('train', 'byte'):
    yield 'data.vocabulary', data.vocabulary
  if config.train.init_from:
    yield 'train.init_from', config.train.init_from
  for task in tasks.members(config) if texts and not data.tfds_dir else ():
    if task not in (*corpus_lib.BUILT_IN, 'jsonl'):
      yield 'data.corpora_dir', os.path.join(data.corpora_dir, task)


if __name__ == '__main__':
  commands.run(main, main_lib.define_flags, __doc__)
