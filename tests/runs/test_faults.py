"""A run survives signals, kills, a full disk, other devices, a hang.

Every run is a separate process (faulty_run.py); results are compared with an
uninterrupted run.
"""

import json
import os
from pathlib import Path
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

from locost_jax.devices import watchdog
from locost_jax.workdir import checkpoint
from tests import products
from tests import small_training
from tests.ports import free_port
from tests.telemetry import test_telemetry

ROOT = Path(__file__).resolve().parents[2]


class Run:
  """A training process, its stderr so far, and its workdir."""

  started = []  # all processes

  def __init__(self, workdir, environment, **given):
    self.workdir = Path(workdir)
    program = ROOT / 'tests' / 'faulty_run.py'
    self.process = subprocess.Popen(
        [sys.executable, program, workdir, json.dumps(given)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Not a file, whose size a test limits.
    self.stderr = ''
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()
    self.started.append(self.process)

  def _read(self):
    for line in self.process.stderr:
      self.stderr += line

  def wait_for(self, condition):
    """Waits until condition(self) is true."""
    deadline = time.monotonic() + 120
    while not condition(self):
      assert self.process.poll() is None, self.stderr
      assert time.monotonic() < deadline, self.stderr
      time.sleep(0.001)

  def wait_for_line(self, text):
    self.wait_for(lambda run: text in run.stderr)

  def steps(self):
    """Returns the names in checkpoints/, also unfinished ones."""
    directory = self.workdir / 'checkpoints'
    return sorted(os.listdir(directory)) if directory.is_dir() else []

  def stat(self, name):
    """Returns a value in the process's /proc/PID/status."""
    path = Path('/proc', str(self.process.pid), 'status')
    return re.search(rf'(?m)^{name}:\s*(\S+)', path.read_text())[1]

  def has_pending(self, number):
    """Whether a sent signal has not been delivered yet."""
    return bool(int(self.stat('ShdPnd'), 16) >> (number - 1) & 1)

  def send(self, number):
    self.process.send_signal(number)

  def end(self, status=0):
    """Waits for an end with this status; returns the result from stdout."""
    found = self.process.wait(timeout=120)
    stdout = self.process.stdout.read()
    self._reader.join()
    assert found == status, self.stderr
    assert 'Traceback' not in self.stderr, self.stderr
    return json.loads(stdout.splitlines()[-1]) if not status else None


@pytest.fixture(autouse=True)
def leave_no_process():
  """Kills the processes of a failed test."""
  yield
  for process in Run.started:
    process.kill()
    process.wait()
  Run.started.clear()


@pytest.fixture(scope='session')
def environment(tmp_path_factory):
  """The processes' environment: CPU, and a shared compilation cache."""
  return os.environ | {
      'PYTHONPATH': str(ROOT),
      'JAX_PLATFORMS': 'cpu',
      'JAX_COMPILATION_CACHE_DIR': str(tmp_path_factory.mktemp('compiled')),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
  }


@pytest.fixture(scope='module')
def unbroken(tmp_path_factory, environment):
  """An uninterrupted run: (workdir, result)."""
  workdir = tmp_path_factory.mktemp('unbroken')
  return workdir, Run(workdir, environment).end()


def _assert_same(workdir, result, unbroken):
  other, expected = unbroken
  for key in ('step', 'final'):
    assert result[key] == expected[key]
  assert small_training.rows(workdir) == small_training.rows(other)
  assert test_telemetry.numbers(workdir) == test_telemetry.numbers(other)
  jax.tree.map(
      np.testing.assert_array_equal,
      checkpoint.load_params(workdir / 'checkpoints' / str(result['step'])),
      checkpoint.load_params(other / 'checkpoints' / str(result['step'])),
  )


def losses_of(workdir):
  rows = small_training.rows(workdir)
  return [row['train/loss'] for row in rows if 'train/loss' in row]


def _unfinished(run):
  names = [x for x in run.steps() if not x.endswith('-removed')]
  return [x for x in names if '.orbax-checkpoint-tmp' in x]


def test_a_run_stopped_by_signals_equals_an_uninterrupted_one(
    tmp_path, environment, unbroken
):
  # A signal while waiting for data; two steps are not logged yet.
  run = Run(tmp_path, environment, hang_at=10)
  run.wait_for_line('hanging')
  run.send(signal.SIGTERM)
  run.end(143)
  assert run.stderr.splitlines()[-1] == (
      'SIGTERM: stopped after step 9, which is saved; the same command '
      'continues'
  )
  assert run.steps() == ['8', '9']
  # While evaluating: the evaluation runs again when the run continues.
  run = Run(tmp_path, environment, eval_seconds=100)
  run.wait_for_line('evaluating 10')
  run.send(signal.SIGINT)
  run.end(130)
  assert 'SIGINT: stopped after step 10, which is saved' in run.stderr
  assert 'not finished' not in run.stderr  # every checkpoint was
  assert run.steps() == ['10', '9']
  # Killed before that evaluation ends.
  run = Run(tmp_path, environment, eval_seconds=100)
  run.wait_for_line('evaluating 10')
  run.send(signal.SIGKILL)
  run.end(-signal.SIGKILL)
  # While saving.
  run = Run(tmp_path, environment)
  run.wait_for(_unfinished)
  run.send(signal.SIGTERM)
  run.end(143)
  result = Run(tmp_path, environment).end()
  _assert_same(tmp_path, result, unbroken)
  assert result['best'] == unbroken[1]['best']


def test_only_a_second_sigint_ends_at_once(tmp_path, environment):
  run = Run(tmp_path, environment, eval_seconds=100, deaf=True)
  run.wait_for_line('evaluating 10')
  # The step was saved before.
  run.wait_for(lambda run: run.steps() == ['10', '4', '8'])
  run.send(signal.SIGTERM)
  run.wait_for_line('SIGTERM: ')
  run.send(signal.SIGTERM)
  run.wait_for(lambda run: not run.has_pending(signal.SIGTERM))
  run.send(signal.SIGINT)
  run.end(130)
  assert run.stderr.splitlines()[-1] == 'SIGINT: ended at once'
  assert run.stderr.count('SIGTERM: ') == 1
  assert run.steps() == ['10', '4', '8']


def kill(run, rng, while_saving):
  """Sends SIGKILL at a random moment, or during a save."""
  latest = checkpoint.latest_step(run.workdir / 'checkpoints') or 0
  step = int(rng.integers(latest + 1, max(26, latest + 2)))
  path = run.workdir / 'metrics.jsonl'
  run.wait_for(
      lambda _: path.exists() and f'"step": {step},' in (path.read_text())
  )
  if while_saving:
    run.wait_for(_is_stopped_while_saving)
  else:
    time.sleep(rng.uniform(0, 0.1))
  run.send(signal.SIGKILL)
  run.end(-signal.SIGKILL)
  assert not while_saving or _unfinished(run)


def _is_stopped_while_saving(run):
  if not _unfinished(run):
    return False
  run.send(signal.SIGSTOP)
  run.wait_for(lambda run: run.stat('State') == 'T')
  if _unfinished(run):
    return True
  run.send(signal.SIGCONT)
  return False


@products.few('kills, rank', [(2, 0), (2, 2)], [(20, 0)])
def test_a_killed_run_equals_an_uninterrupted_one(
    kills, rank, tmp_path, environment
):
  seed = int.from_bytes(os.urandom(4), 'big')
  print(f'seed of the kills: {seed}')
  rng = np.random.default_rng(seed)
  given = dict(
      model='locost', step_seconds=0.03, log_every=1, steps=36, rank=rank
  )
  other, killed = tmp_path / 'unbroken', tmp_path / 'killed'
  unbroken = other, Run(other, environment, **given).end()
  for i in range(kills):
    kill(Run(killed, environment, **given), rng, while_saving=i % 2 == 1)
    # All checkpoints can be read. If the first save was interrupted, there
    # is no checkpoint.
    latest = checkpoint.latest_step(killed / 'checkpoints')
    if latest is not None:
      assert jax.tree.leaves(
          checkpoint.load_params(killed / 'checkpoints' / str(latest))
      )
  result = Run(killed, environment, **given).end()
  _assert_same(killed, result, unbroken)
  assert result['best'] == unbroken[1]['best']
  losses = losses_of(killed)
  assert len(losses) == 36
  assert np.mean(losses[-5:]) < np.mean(losses[:5])  # it learns


def test_a_kill_while_saving_is_no_damage(tmp_path, environment):
  run = Run(tmp_path, environment, size=500_000, step_seconds=0.1)
  run.wait_for(lambda run: '4' in run.steps() and _is_stopped_while_saving(run))
  run.send(signal.SIGKILL)
  run.end(-signal.SIGKILL)
  latest = checkpoint.latest_step(tmp_path / 'checkpoints')
  (unfinished,) = _unfinished(run)
  run = Run(tmp_path, environment, size=500_000)
  run.end()
  assert (
      f'checkpoint {unfinished.split(".")[0]} was not finished (the run was stopped while it '
      f'was saved): continuing from {latest}\n'
  ) in run.stderr
  assert 'damaged' not in run.stderr


def _limit_files(run, size):
  """Limits the size of a process's files, to imitate a full disk.

  Needs no privileges. Writes fail in any thread, as on a full disk, but with
  EFBIG instead of ENOSPC.
  """
  resource.prlimit(
      run.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)
  )


@pytest.mark.parametrize(
    'saved, room, message',
    [
        ('10', 20_000, 'step 12 could not be saved: File too large'),
        ('20', 100, 'the metrics could not be written: File too'),
    ],
)
def test_a_full_disk_ends_a_run_that_continues(
    saved, room, message, tmp_path, environment, unbroken
):
  run = Run(tmp_path, environment, eval_seconds=1)
  run.wait_for(lambda run: saved in run.steps())  # while it is evaluated
  _limit_files(run, room)
  run.end(2)
  error = run.stderr.splitlines()[-1]
  assert error.startswith(f'error: {message}')
  assert error.endswith(': make room and run the same command again')
  _assert_same(tmp_path, Run(tmp_path, environment).end(), unbroken)


def test_a_run_that_hangs_ends_with_the_stacks(tmp_path, environment):
  run = Run(tmp_path, environment, hang_at=6, timeout=2)
  run.wait_for_line('hanging')
  run.end(watchdog.STATUS)
  assert 'error: waiting for data since ' in run.stderr
  assert 'longer than train.timeout=2 seconds' in run.stderr
  assert 'faulty_run.py", line' in run.stderr and 'in batches' in run.stderr


def test_two_processes_stop_after_the_same_step(tmp_path, environment):
  port = free_port()
  given = dict(port=port, step_seconds=0.1, devices=-1, steps=200, timeout=20)
  given |= dict(checkpoint_every=0, eval_every=0, log_every=1)
  runs = [Run(tmp_path, environment, process=i, **given) for i in range(2)]
  path = tmp_path / 'metrics.jsonl'
  runs[0].wait_for(lambda _: path.exists() and '"step": 5,' in path.read_text())
  runs[1].send(signal.SIGTERM)
  for run in runs:
    run.end(143)
  lines = [
      [line for line in run.stderr.splitlines() if 'stopped after' in line]
      for run in runs
  ]
  assert lines[0] == lines[1] and len(lines[0]) == 1
  (step,) = runs[0].steps()
  assert lines[0][0].startswith(f'SIGTERM: stopped after step {step}, which is')
  assert 5 <= int(step) < 100


def test_a_run_continues_on_another_number_of_devices(
    tmp_path, environment, unbroken
):
  flags = '--xla_force_host_platform_device_count=4'
  four = environment | {'XLA_FLAGS': flags}
  for steps, devices in (7, environment), (14, four), (24, environment):
    Run(tmp_path, devices, devices=-1, steps=steps).end()
  found, expected = losses_of(tmp_path), losses_of(unbroken[0])
  assert len(expected) == 6 and len(set(expected)) == 6
  np.testing.assert_allclose(found, expected, rtol=1e-6)
