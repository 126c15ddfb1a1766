"""Runs on several hosts: finding them, and two real processes on loopback."""

import functools
import json
import os
import socket
import subprocess
import sys
import types

from absl import flags
import jax
import numpy as np
import pytest

from locost_jax.config import train_flags
from locost_jax.devices import connect
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.workdir import checkpoint
from tests import products
from tests.ports import free_port
from tests.python import ROOT
from tests.runs import test_main


def parse(*arguments):
  values = flags.FlagValues()
  train_flags.define(values)
  values(['main', *arguments])
  return values


@pytest.mark.parametrize(
    'arguments, words',
    [
        ('--hosts=2', '--coordinator and --host missing'),
        ('--coordinator=a:1 --host=0', '--hosts missing'),
        ('--coordinator=a:1 --hosts=2 --host=2', '--host=2: expected less'),
    ]
    + [
        (f'--coordinator={address} --hosts=2 --host=0', 'expected HOST:PORT')
        for address in ('gpu1', 'gpu1:', ':1', 'gpu1:x', 'gpu1:0', 'gpu1:65536')
    ],
)
def test_bad_flags(arguments, words):
  with pytest.raises(InputError, match=words):
    connect.find_host_config(parse(*arguments.split()), {})


def test_is_cluster():
  assert connect.is_cluster({'SLURM_STEP_NUM_TASKS': '2'})
  assert not connect.is_cluster(
      {'SLURM_STEP_NUM_TASKS': '1', 'JAX_PLATFORMS': 'cpu'}
  )
  assert not connect.is_cluster({'JAX_PLATFORMS': 'cpu'})


def test_versions_of_all_hosts(monkeypatch):
  (row,) = connect.check_versions()
  assert row['name'] == socket.gethostname()
  assert {'locost_jax', 'jax', 'jaxlib'} <= row['versions'].keys()
  other = dict(name='b', versions=dict(row['versions'], jax='0.1.2'))
  monkeypatch.setattr(connect.collective, 'gather_rows', lambda _: [row, row])
  assert connect.check_versions() == [row, row]
  for rows in ([row, other], [other, row]):
    monkeypatch.setattr(connect.collective, 'gather_rows', lambda _: rows)
    with pytest.raises(InputError, match=r'host 1 \(.*has jax .*expected the'):
      connect.check_versions()


SLURM = {
    'SLURM_JOB_ID': '4097',
    'SLURM_STEP_NODELIST': 'gpu[3-4],x',
    'SLURM_NTASKS': '4',
    'SLURM_PROCID': '3',
    'SLURM_LOCALID': '1',
    'SLURM_STEP_NUM_TASKS': '4',
    'SLURM_STEP_NUM_NODES': '2',
}


@pytest.mark.parametrize(
    'changes, expected',
    [
        ({}, (4, 3, (1,))),  # two tasks on a node: one device each
        ({'SLURM_STEP_NUM_NODES': '4', 'SLURM_LOCALID': '0'}, (4, 3, None)),
    ],
)
def test_the_config_from_slurm(monkeypatch, changes, expected):
  environment = {**SLURM, **changes}
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  config = connect.find_host_config(parse(), environment)
  assert config == ('gpu3:61441', *expected)


def test_configs_without_a_cluster():
  assert connect.find_host_config(parse(), {'JAX_PLATFORMS': 'cpu'}).hosts == 1
  assert connect.find_host_config(
      parse('--coordinator=gpu1:8476', '--hosts=3', '--host=2'), {}
  ) == ('gpu1:8476', 3, 2, None)


def test_a_slurm_job_without_srun():
  connect.check_srun({})
  connect.check_srun({'SLURM_NTASKS': '1'})
  connect.check_srun(SLURM)
  job = {'SLURM_NTASKS': '4'}
  with pytest.raises(InputError, match='this is one host of 4: SLURM gave'):
    connect.check_srun(job)


def fake_mesh(shape, processes):
  """A mesh for `host_part`: the process of each device, in order."""
  devices = [types.SimpleNamespace(process_index=x) for x in processes]
  return types.SimpleNamespace(
      shape=dict(zip(('data', 'fsdp', 'tensor', 'sequence'), shape)),
      devices=np.array(devices).reshape(shape),
  )


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
  assert sharding.host_part(fake_mesh(shape, processes)) == expected


def test_rows_that_are_not_contiguous(monkeypatch):
  monkeypatch.setattr(jax, 'process_index', lambda: 0)
  with pytest.raises(InputError, match='into whole parts for the 1 hosts'):
    sharding.host_part(fake_mesh((4, 1, 1, 1), [0, 1, 0, 1]))


SMALL = (
    'train.steps=4 data.vocabulary=byte train.batch_size=4 '
    'data.max_target_length=16 data.target_buckets=16 eval.batch_size=4 '
    'decode.max_length=4 train.log_every=1 model.d_model=16 model.d_ff=16 '
    'model.num_heads=2 model.num_layers=1 model.num_decoder_layers=1'
)
LOCOST = (
    'data.max_input_length=64 data.input_buckets=64 model.d_state=4 '
    'model.d_kv=8'
)
# Random dropout masks depend on the mesh. The gradients of some biases are only
# rounding error, which the optimiser scales up.
OF_PAGES = (
    'data.page_length=16 data.input_buckets=16 model.decoder_d_ff=16 '
    'model.max_positions=16 model.dropout_rate=0.0 '
    'model.attention_dropout_rate=0.0 model.activation_dropout_rate=0.0 '
    "optim.groups=(('.*_attention/key/bias|confidence/bias',0.0),)"
)
PAGESUM = f'{OF_PAGES} data.num_pages=4'
# Documents of 2 to 6 chunks; two phases, the second trains the selector.
SIMCAS = f'{OF_PAGES} selector.every=2 selector.limit=20'


def start(workdir, data, devices, *arguments, config='finetune.py'):
  count = f'--xla_force_host_platform_device_count={devices}'
  environment = dict(os.environ, JAX_PLATFORMS='cpu', PYTHONPATH=str(ROOT))
  environment['XLA_FLAGS'] += f' {count}'
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
          *arguments,
      ],
      cwd=ROOT,
      env=environment,
      text=True,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
  )


def finish(*runs):
  """Returns [(status, lines of stdout, stderr), ...]."""
  try:
    said = [run.communicate(timeout=600) for run in runs]
  finally:
    for run in runs:
      run.kill()
  return [
      (run.returncode, out.splitlines(), err)
      for run, (out, err) in zip(runs, said)
  ]


@products.few(
    'config, model, mesh, alone',
    [
        ('finetune.py', LOCOST, dict(fsdp=2, sequence=2), 4),
        # Each host has some of a document's pages; compared with one device.
        ('finetune.py:pagesum', PAGESUM, dict(sequence=4), 1),
    ],
    [('finetune.py:simcas', SIMCAS, dict(sequence=4), 1)],
    pytest.mark.slow,
)
def test_two_processes_train_as_one(tmp_path, config, model, mesh, alone):
  """Four devices in two processes give the results of one process.

  alone: devices of the one process; 1: the default mesh, else the same mesh.
  """
  model = [f'--config.{key}' for key in f'{SMALL} {model}'.split()]
  mesh = [f'--config.mesh.{axis}={mesh[axis]}' for axis in mesh]
  house = lambda n: f'The {n} houses of the town. ' * (1 + n % 3)
  rows = [dict(document=house(n), summary=f'{n} houses.') for n in range(12)]
  data = test_main.write_rows(tmp_path / 'rows.jsonl', rows)
  port, begin = free_port(), functools.partial(start, config=config)
  own = mesh if alone > 1 else ()
  runs = [begin(tmp_path / 'one', data, alone, *model, *own)]
  hosts = '--hosts=2', f'--coordinator=localhost:{port}'
  runs += [
      begin(tmp_path / 'two', data, 2, *model, *mesh, *hosts, f'--host={i}')
      for i in range(2)
  ]
  outputs = finish(*runs)
  assert [status for status, *_ in outputs] == [0] * 3, outputs
  one, two, second_host = (lines for _, lines, _ in outputs)
  # Gloo, which connects CPU hosts, prints to stderr.
  assert '[Gloo]' in outputs[1][2]
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
