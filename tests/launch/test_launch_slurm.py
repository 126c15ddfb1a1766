"""launch/slurm.sbatch, with a fake SLURM."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from tests.launch.launching import ENV
from tests.launch.launching import FLAGS
from tests.launch.launching import LAUNCH
from tests.launch.launching import ROOT
from tests.launch.launching import split
from tests.launch.launching import TIMEOUT

SLURM = LAUNCH / 'slurm.sbatch'
SRUN = 'srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0'.split()
SRUN += ['--wait=300', 'env', 'ADDED=two words']
JOB = dict(SLURM_JOB_ID='17')


def test_dry_runs_under_slurm(fakes):
  place = [f'--chdir={ROOT}', str(SLURM), f'--env={fakes.path}/my.env']
  status, out, _ = fakes.run('slurm.sbatch', '--dry_run')
  assert status == 0
  assert split(out) == [
      ['sbatch', '--nodes=1', *place],
      [*SRUN, 'python', *FLAGS],
  ]
  fakes.write(
      ENV + 'NODES=2\nGPUS_PER_NODE=a100:4\nSBATCH=--time=1:00:00\n'
      'SBATCH=--comment=a b\nPYTHON=.venv/bin/python\n'
  )
  nodes = '--nodes=2 --gpus-per-node=a100:4 --time=1:00:00'.split()
  sbatch = [*nodes, '--comment=a b', *place]
  _, out, _ = fakes.run('slurm.sbatch', '--dry_run', '--preflight')
  assert split(out) == [
      ['sbatch', *sbatch, '--preflight'],
      [*SRUN, '.venv/bin/python', *FLAGS, '--preflight', '--expect_devices=8'],
  ]
  assert not fakes.calls()
  assert fakes.run('slurm.sbatch')[0] == 0
  assert fakes.calls() == [['sbatch', *sbatch]]


def test_sbatch_options_in_the_file():
  """They precede the first command; SIGTERM goes to steps, not the script."""
  head = SLURM.read_text(encoding='utf-8').partition('\nset ')[0]
  options = '--signal=TERM@300', '--requeue', '--open-mode=append'
  assert tuple(re.findall('(?m)^#SBATCH (.*)', head)[-3:]) == options


@pytest.mark.parametrize(
    'ended, again',
    [(0, False), (2, False), (1, False), (137, False), (143, True), (75, True)],
)
def test_a_job_is_requeued(fakes, ended, again, tmp_path):
  """From a copy of the script in another directory, as SLURM runs it."""
  fakes.write(ENV + f'PYTHON={fakes.bin / "trainer"}\n')
  fakes.runs(['', [ended, ended]])
  copy = tmp_path / 'slurm_script'
  shutil.copy(SLURM, copy)
  command = ['bash', copy, f'--env={fakes.path}/my.env']

  def job(*more):
    return subprocess.run(
        [*command, *more],
        cwd=ROOT,
        timeout=TIMEOUT,
        env=fakes.environment | JOB,
    ).returncode

  assert job() == ended
  python = str(fakes.bin / 'trainer')
  calls = [[*SRUN, python, *FLAGS], ['trainer', *FLAGS]]
  assert fakes.calls() == calls + [['scontrol', 'requeue', '17']] * again
  (fakes.path / 'calls').unlink()
  assert job('--preflight') == ended
  assert fakes.calls() == [call + ['--preflight'] for call in calls]


@pytest.mark.parametrize(
    'count, saves, again',
    [(1, False, True), (2, False, False), (2, True, True)],
)
def test_a_job_that_saves_nothing_is_not_requeued_forever(
    fakes, count, saves, again
):
  step = fakes.path / 'run/checkpoints/9'
  step.mkdir(parents=True)
  (fakes.bin / 'save').write_text(
      f'#!/bin/sh\n{f"touch {step}/manifest.json" * saves}\nexit 75\n'
  )
  (fakes.bin / 'save').chmod(0o755)
  fakes.write(
      ENV.replace('/mnt/runs/a run', os.path.relpath(fakes.path / 'run', ROOT))
      + f'PYTHON={fakes.bin / "save"}\nRESTARTS=2\n'
  )
  count = dict(SLURM_RESTART_COUNT=str(count))
  status, _, err = fakes.run('slurm.sbatch', **JOB, **count)
  assert status == 75
  assert bool(fakes.calls('scontrol')) == again
  assert ('ended with status 75 after 2 or more restarts' in err) != again


def test_a_cancelled_job_is_not_requeued(fakes):
  """SLURM then signals the script too, which must end."""
  fakes.write(ENV + f'PYTHON={fakes.bin / "trainer"}\n')
  fakes.runs(['', ['wait']])
  run = fakes.start('slurm.sbatch', **JOB)
  fakes.wait_for('waiting*')
  os.killpg(run.pid, signal.SIGTERM)
  run.communicate(timeout=TIMEOUT)
  assert run.returncode == -signal.SIGTERM
  assert not fakes.calls('scontrol')


def test_a_job_outside_a_checkout(fakes):
  run = fakes.start('slurm.sbatch', cwd=fakes.path, **JOB)
  _, err = run.communicate(timeout=TIMEOUT)
  assert run.returncode == 2
  assert f'{fakes.path}: expected a checkout of locost_jax' in err
