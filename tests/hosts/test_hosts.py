"""Runs on several hosts: flags, and two real processes over loopback."""

import functools
import json
import os
from pathlib import Path
import subprocess
import sys

from absl import flags
import jax
import numpy as np
import pytest

from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.hosts import connect
from locost_jax.workdir import checkpoint
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


def parse(*arguments):
  values = flags.FlagValues()
  connect.define_flags(values)
  values(['main', *arguments])
  return values


@pytest.mark.parametrize(
    'arguments, words',
    [
        (['--hosts=2'], '--coordinator and --host missing'),
        (['--coordinator=a:1', '--host=0'], '--hosts missing'),
        (
            ['--coordinator=a:1', '--hosts=2', '--host=2'],
            '--host=2: expected less than --hosts=2',
        ),
    ],
)
def test_bad_flags(arguments, words):
  with pytest.raises(InputError, match=words):
    connect.connect(parse(*arguments))


def test_is_cluster():
  assert connect.is_cluster({'SLURM_STEP_NUM_TASKS': '2'})
  assert not connect.is_cluster(
      {'SLURM_STEP_NUM_TASKS': '1', 'JAX_PLATFORMS': 'cpu'}
  )
  assert not connect.is_cluster({'JAX_PLATFORMS': 'cpu'})


class Mesh:
  """A fake mesh for `host_part`: the process of each device, in order."""

  def __init__(self, shape, processes):
    class Device:

      def __init__(self, process):
        self.process_index = process

    self.shape = dict(zip(('data', 'fsdp', 'tensor', 'sequence'), shape))
    self.devices = np.array([Device(p) for p in processes]).reshape(shape)


@pytest.mark.parametrize(
    'shape, processes, me, expected',
    [
        ((8, 1, 1, 1), [0] * 8, 0, (0, 1, True)),
        ((4, 2, 1, 1), [0, 0, 0, 0, 1, 1, 1, 1], 1, (1, 2, True)),
        ((2, 1, 2, 2), [0, 0, 0, 0, 1, 1, 1, 1], 1, (1, 2, True)),
        # A document is split across hosts: both read the same rows.
        ((1, 1, 1, 8), [0, 0, 0, 0, 1, 1, 1, 1], 1, (0, 1, False)),
        ((2, 1, 1, 4), [0, 0, 1, 1, 2, 2, 3, 3], 2, (1, 2, True)),
        ((2, 1, 1, 4), [0, 0, 1, 1, 2, 2, 3, 3], 3, (1, 2, False)),
    ],
)
def test_the_rows_of_a_host(monkeypatch, shape, processes, me, expected):
  monkeypatch.setattr(jax, 'process_index', lambda: me)
  assert sharding.host_part(Mesh(shape, processes)) == expected


def test_rows_that_are_not_contiguous(monkeypatch):
  monkeypatch.setattr(jax, 'process_index', lambda: 0)
  with pytest.raises(InputError, match='into whole parts for the 1 hosts'):
    sharding.host_part(Mesh((4, 1, 1, 1), [0, 1, 0, 1]))


SMALL = (
    '--config.train.steps=4',
    '--config.data.vocabulary=byte',
    '--config.train.batch_size=4',
    '--config.data.max_target_length=16',
    '--config.data.target_buckets=16',
    '--config.eval.batch_size=4',
    '--config.decode.max_length=4',
    '--config.train.log_every=1',
    '--config.model.d_model=16',
    '--config.model.d_ff=16',
    '--config.model.num_heads=2',
    '--config.model.num_layers=1',
    '--config.model.num_decoder_layers=1',
)
LOCOST = (
    '--config.data.max_input_length=64',
    '--config.data.input_buckets=64',
    '--config.model.d_state=4',
    '--config.model.d_kv=8',
)
PAGESUM = (
    '--config.data.num_pages=4',
    '--config.data.page_length=16',
    '--config.data.input_buckets=16',
    '--config.model.decoder_d_ff=16',
    '--config.model.max_positions=16',
    # Random dropout masks depend on the mesh.
    '--config.model.dropout_rate=0.0',
    '--config.model.attention_dropout_rate=0.0',
    '--config.model.activation_dropout_rate=0.0',
    # Their gradient is only rounding error, which the optimiser scales up.
    "--config.optim.groups=(('.*_attention/key/bias|confidence/bias', 0.0),)",
)
# Documents of 2 to 6 chunks; two phases, the second trains the selector.
SIMCAS = (
    *(flag for flag in PAGESUM if 'num_pages' not in flag),
    '--config.selector.every=2',
    '--config.selector.limit=20',
)


def start(workdir, data, devices, *arguments, config='finetune.py'):
  environment = dict(
      os.environ,
      JAX_PLATFORMS='cpu',
      PYTHONPATH=str(ROOT),
      XLA_FLAGS=(
          os.environ['XLA_FLAGS']
          + f' --xla_force_host_platform_device_count={devices}'
      ),
  )
  return subprocess.Popen(
      [
          sys.executable,
          '-m',
          'locost_jax.main',
          f'--config={ROOT / "configs" / config}',
          f'--workdir={workdir}',
          f'--config.data.train_files={data}',
          f'--config.data.validation_files={data}',
          '--format=json',
          *SMALL,
          *arguments,
      ],
      cwd=ROOT,
      env=environment,
      text=True,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
  )


@pytest.mark.slow
@pytest.mark.parametrize(
    'config, model, mesh, alone',
    [
        ('finetune.py', LOCOST, dict(fsdp=2, sequence=2), 4),
        # Each host has some of a document's pages; compared with one device.
        ('finetune.py:pagesum', PAGESUM, dict(sequence=4), 1),
        ('finetune.py:simcas', SIMCAS, dict(sequence=4), 1),
    ],
)
def test_two_processes_train_as_one(tmp_path, config, model, mesh, alone):
  """Four devices in two processes give the results of one process.

  alone: devices of the one process; 1: the default mesh, else the same mesh.
  """
  mesh = [f'--config.mesh.{axis}={mesh[axis]}' for axis in mesh]
  data = tmp_path / 'rows.jsonl'
  data.write_text(
      ''.join(
          json.dumps(
              dict(
                  document=f'The {n} houses of the town. ' * (1 + n % 3),
                  summary=f'{n} houses.',
              )
          )
          + '\n'
          for n in range(12)
      )
  )
  port, begin = free_port(), functools.partial(start, config=config)
  own = mesh if alone > 1 else ()
  runs = [begin(tmp_path / 'one', data, alone, *model, *own)]
  runs += [
      begin(
          tmp_path / 'two',
          data,
          2,
          *model,
          *mesh,
          '--hosts=2',
          f'--host={i}',
          f'--coordinator=localhost:{port}',
      )
      for i in range(2)
  ]
  try:
    outputs = [run.communicate(timeout=400) for run in runs]
  finally:
    for run in runs:
      run.kill()
  for run, (_, err) in zip(runs, outputs):
    assert run.returncode == 0, err
  # Gloo, which connects CPU hosts, prints to stderr.
  one, two, second_host = (out.splitlines() for out, _ in outputs)
  assert '[Gloo]' in outputs[1][1]
  assert not second_host  # only the first host prints
  (one,), (two,) = one, two
  one, two = (json.loads(line)['tables'][0] for line in (one, two))
  assert len(one['rows']) == len(two['rows']) > 2
  for ours, theirs in zip(one['rows'], two['rows']):
    assert ours.keys() == theirs.keys()
    if 'another document' in ours['name']:
      continue  # each host exchanges documents among its own rows
    for key, value in ours.items():
      if not isinstance(value, str):
        value = pytest.approx(value, rel=1e-4)
      assert theirs[key] == value
  last = 'select' if 'simcas' in config else '.'  # the last phase
  same, other = (
      jax.tree.leaves(checkpoint.load_params(tmp_path / name / last))
      for name in ('one', 'two')
  )
  for a, b in zip(same, other, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
