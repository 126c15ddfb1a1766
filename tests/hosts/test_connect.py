"""Finding the hosts of a run, connecting them, and comparing their versions."""

import socket
import subprocess
import sys

from absl import flags
import pytest

from locost_jax.errors import InputError
from locost_jax.hosts import connect


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


# --- find_host_config --------------------------------------------------------


def parse(*arguments):
  values = flags.FlagValues()
  connect.define_flags(values)
  values(['main', *arguments])
  return values


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


@pytest.mark.parametrize(
    'address', ['gpu1', 'gpu1:', ':8476', 'gpu1:x', 'gpu1:0', 'gpu1:65536']
)
def test_a_bad_address(address):
  with pytest.raises(InputError, match='expected HOST:PORT'):
    connect.find_host_config(
        parse(f'--coordinator={address}', '--hosts=2', '--host=0'), {}
    )


def test_a_slurm_job_without_srun():
  connect.check_srun({})
  connect.check_srun({'SLURM_NTASKS': '1'})
  connect.check_srun(SLURM)
  job = {'SLURM_NTASKS': '4'}
  with pytest.raises(InputError, match='this is one host of 4: SLURM gave'):
    connect.check_srun(job)


def test_ending_after():
  done = subprocess.run(
      [
          sys.executable,
          '-c',
          'import time; from locost_jax.hosts import watchdog\n'
          'with watchdog.ending_after(60, "nothing"): pass\n'
          'with watchdog.ending_after(0.2, "the moon"): time.sleep(60)',
      ],
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == 75
  assert done.stderr == (
      'error: waited 0.2 s for the moon; ended with status 75\n'
  )
