"""launch/gpu.sh and slurm.sbatch, with a fake ssh and a fake SLURM."""

import os
import re
import shlex
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
from tests.launch.launching import trainers

# --- gpu.sh ------------------------------------------------------------------

SSH = ['ssh', '-n', '-o', 'BatchMode=yes', '-o', 'ServerAliveInterval=30']


def use_hosts(fakes, more=''):
  """Writes an env file of two hosts, with an odd path of the checkout."""
  code = fakes.path / "their code's"
  code.mkdir()
  fakes.write(
      ENV + f'HOSTS=gpu1  gpu2\nPORT=1234\nDIRECTORY={code}\n'
      f'PYTHON={fakes.bin / "trainer"}\n{more}'
  )
  return code


def on_hosts(host):
  return ['--coordinator=gpu1:1234', '--hosts=2', f'--host={host}']


def test_dry_runs_on_gpus(fakes):
  expected = [['cd', str(ROOT)], ['env', 'ADDED=two words', 'python', *FLAGS]]
  assert split(fakes.run('gpu.sh', '--dry_run')[1]) == expected
  expected[1].append('--preflight')
  assert split(fakes.run('gpu.sh', '--dry_run', '--preflight')[1]) == expected
  assert split(fakes.run('gpu.sh', '--dry_run', '--setup')[1]) == [
      expected[0],
      ['python', '-m', 'pip', 'install', '-e', '.[train]', 'jax[cuda13]'],
  ]
  code = use_hosts(fakes, 'JAX=jax[cuda12]\n')
  python = str(fakes.bin / 'trainer')
  _, out, _ = fakes.run('gpu.sh', '--dry_run')
  lines = split(out)
  assert lines.pop(0) == ['cd', str(ROOT)]
  for host, (*start, name, command) in enumerate(lines):
    assert (start, name) == (SSH, f'gpu{host + 1}')
    assert shlex.split(command) == [
        *f'echo $$ > .locost_jax-1234-{host}.pid && cd'.split(),
        *(str(code), '&&', 'exec', 'env', 'ADDED=two words', python),
        *(*FLAGS, *on_hosts(host)),
    ]
  assert len(lines) == 2
  _, out, _ = fakes.run('gpu.sh', '--dry_run', '--preflight')
  command = shlex.split(split(out)[2][-1])
  assert command[-4:] == ['--preflight', *on_hosts(1)]
  _, out, _ = fakes.run('gpu.sh', '--dry_run', '--setup')
  hosts = [line[:-1] for line in split(out)[1:]]
  assert hosts == [[*SSH, 'gpu1'], [*SSH, 'gpu2']]
  install = '-m pip install -e .[train] jax[cuda12]'.split()
  command = split(out)[1][-1]
  assert shlex.split(command) == ['cd', str(code), '&&', python, *install]
  assert not fakes.calls()


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_one_machine(fakes, number):
  fakes.write(ENV + f'PYTHON={fakes.bin / "trainer"}\n')
  fakes.runs(['host', [0, 75, 'wait']])
  assert fakes.run('gpu.sh')[0] == 0
  assert fakes.run('gpu.sh')[0] == 75
  run = fakes.start('gpu.sh', cwd=fakes.path)
  fakes.wait_for('waiting*')
  run.send_signal(number)
  assert run.wait(TIMEOUT) == 128 + number
  assert fakes.calls() == [['trainer', *FLAGS]] * 3 + [['signal', number.name]]
  assert fakes.all_calls()[0][2:] == [str(ROOT), 'two words']


@pytest.mark.parametrize(
    'first, second, status',
    [(0, 0, 0), (2, 134, 2), (134, 2, 2), (75, 134, 75), (143, 143, 143)],
)
def test_two_hosts(fakes, first, second, status):
  code = use_hosts(fakes)
  fakes.runs(['host=[0] gpu1', [(first, 2)]], ['host=[1] gpu2', [(second, 2)]])
  got, _, err = fakes.run('gpu.sh')
  assert got == status, err
  assert sorted(trainers(fakes)) == [
      ['trainer', *FLAGS, *on_hosts(host)] for host in range(2)
  ]
  assert [call[2] for call in fakes.all_calls() if call[0] == 'trainer'] == [
      str(code)
  ] * 2
  assert ('gpu2: ended with status' in err) == bool(second)


def test_one_host_fails_and_the_other_gets_sigterm(fakes):
  use_hosts(fakes)
  fakes.runs(['gpu1', ['wait']], ['gpu2', [(1, 2)]])
  status, _, err = fakes.run('gpu.sh')
  assert status == 1, err  # of the failure, not of the script's SIGTERM
  assert 'gpu2: ended with status 1' in err and 'gpu1: ended with' in err


def test_one_host_fails_and_the_other_hangs(fakes):
  use_hosts(fakes)
  fakes.runs(['gpu1', [(75, 2)]], ['gpu2', ['hang']])
  status, _, err = fakes.run('gpu.sh', LAUNCH_GRACE='1')
  assert (status, 'gpu2: ended with status 137' in err) == (75, True), err
  kills = [call for call in fakes.calls('ssh') if 'kill -' in call[-1]]
  assert [re.search('kill -[A-Z]+', call[-1])[0] for call in kills] == [
      'kill -TERM',
      'kill -KILL',
  ]


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_both_hosts(fakes, number):
  """The same signal, even if the first host ends before the second gets it."""
  use_hosts(fakes)
  fakes.runs(['host', ['wait', 'wait']])
  run = fakes.start('gpu.sh', FAKE_SLOW=f'gpu2 kill -{number.name[3:]}')
  fakes.wait_for('waiting*', 2)
  run.send_signal(number)
  _, err = run.communicate(timeout=TIMEOUT)
  assert run.returncode == 128 + number, err
  assert fakes.calls('signal')[:2] == [['signal', number.name]] * 2


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
  fakes.runs(['host', [ended, ended]])
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
  fakes.runs(['host', ['wait']])
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
