"""A run survives signals, kills, a full disk, other devices, a hang.

Every run is a process of `processes`; results are compared with an
uninterrupted run.
"""

import os
import resource
import signal
import time

import jax
import numpy as np
import pytest

from locost_jax.errors import AGAIN
from locost_jax.workdir import checkpoint
from tests import products
from tests import small_training
from tests.runs import processes
from tests.telemetry import test_telemetry


@pytest.fixture(scope='module')
def home(tmp_path_factory):
  return tmp_path_factory.mktemp('home')


@pytest.fixture
def runs(home, tmp_path):
  found = processes.Runs(tmp_path, home / 'programs')
  yield found
  found.close()


@pytest.fixture
def train(runs):
  """train(**settings) -> a `processes.Run` in the test's directory."""
  return lambda **given: processes.Run(runs, runs.path / 'run', **given)


@pytest.fixture(scope='module')
def unbroken(home):
  """The WORKDIR of an uninterrupted run."""
  run = processes.Run(processes.Runs(home, home / 'programs'), home / 'run')
  run.end()
  return run.workdir


def assert_same(one, other):
  assert processes.result(one) == processes.result(other)
  assert test_telemetry.numbers(one) == test_telemetry.numbers(other)


def losses_of(workdir):
  rows = small_training.rows(workdir)
  return [row['train/loss'] for row in rows if 'train/loss' in row]


def _unfinished(run):
  names = [x for x in run.steps() if not x.endswith('-removed')]
  return [x for x in names if '.orbax-checkpoint-tmp' in x]


def test_a_run_stopped_by_signals_equals_an_uninterrupted_one(train, unbroken):
  # A signal while waiting for data; two steps are not logged yet.
  run = train(hang_at=10)
  run.wait_for_line('hanging')
  run.send(signal.SIGTERM)
  run.end(143)
  assert run.stderr.splitlines()[-1] == (
      'SIGTERM: stopped after step 9, which is saved; the same command '
      'continues'
  )
  assert run.steps() == ['8', '9']
  # While evaluating: the evaluation runs again when the run continues.
  run = train(eval_seconds=100)
  run.wait_for_line('evaluating 10')
  run.send(signal.SIGINT)
  run.end(130)
  assert 'SIGINT: stopped after step 10, which is saved' in run.stderr
  assert 'not finished' not in run.stderr  # every checkpoint was
  assert run.steps() == ['10', '9']
  # Killed before that evaluation ends.
  run = train(eval_seconds=100)
  run.wait_for_line('evaluating 10')
  run.send(signal.SIGKILL)
  run.end(-signal.SIGKILL)
  # While saving.
  run = train()
  run.wait_for(_unfinished)
  run.send(signal.SIGTERM)
  run.end(143)
  train().end()
  assert_same(run.workdir, unbroken)


def test_only_a_second_sigint_ends_at_once(train):
  run = train(eval_seconds=100, deaf=True)
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
def test_a_killed_run_equals_an_uninterrupted_one(kills, rank, runs, train):
  seed = int.from_bytes(os.urandom(4), 'big')
  print(f'seed of the kills: {seed}')
  rng = np.random.default_rng(seed)
  given = dict(
      model='locost', step_seconds=0.03, log_every=1, steps=36, rank=rank
  )
  other = processes.Run(runs, runs.path / 'unbroken', **given)
  other.end()
  for i in range(kills):
    run = train(**given)
    kill(run, rng, while_saving=i % 2 == 1)
    # All checkpoints can be read. If the first save was interrupted, there
    # is no checkpoint.
    if checkpoint.latest_step(run.workdir / 'checkpoints') is not None:
      assert jax.tree.leaves(checkpoint.load_params(run.workdir))
  train(**given).end()
  assert_same(run.workdir, other.workdir)
  losses = losses_of(run.workdir)
  assert len(losses) == 36
  assert np.mean(losses[-5:]) < np.mean(losses[:5])  # it learns


def test_a_kill_while_saving_is_no_damage(train):
  run = train(size=500_000, step_seconds=0.1)
  run.wait_for(lambda run: '4' in run.steps() and _is_stopped_while_saving(run))
  run.send(signal.SIGKILL)
  run.end(-signal.SIGKILL)
  latest = checkpoint.latest_step(run.workdir / 'checkpoints')
  (unfinished,) = _unfinished(run)
  run = train(size=500_000)
  run.end()
  assert (
      f'checkpoint {unfinished.split(".")[0]} was not finished (the run was stopped while it '
      f'was saved): continuing from {latest}\n'
  ) in run.stderr
  assert 'damaged' not in run.stderr


@pytest.mark.parametrize(
    'saved, room, message',
    [
        ('10', 20_000, 'step 12 could not be saved: File too large'),
        ('20', None, 'the metrics could not be written: File too'),
    ],
)
def test_a_full_disk_ends_a_run_that_continues(
    saved, room, message, train, unbroken
):
  """Imitated by a limit of bytes of a file; room None: those of the metrics."""
  run = train(eval_seconds=1)
  run.wait_for(lambda run: saved in run.steps())  # while it is evaluated
  room = room or (run.workdir / 'metrics.jsonl').stat().st_size
  limits = room, resource.RLIM_INFINITY
  resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, limits)
  run.end(2)
  error = run.stderr.splitlines()[-1]
  assert error.startswith(f'error: {message}')
  assert error.endswith(': make room and run the same command again')
  train().end()
  assert_same(run.workdir, unbroken)


def test_a_run_that_hangs_ends_with_the_stacks(train):
  run = train(hang_at=6, timeout=2)
  run.wait_for_line('hanging')
  run.end(AGAIN)
  assert 'error: waiting for data since ' in run.stderr
  assert 'longer than train.timeout=2 seconds' in run.stderr
  assert 'faulty_run.py", line' in run.stderr and 'in batches' in run.stderr


def test_two_processes_stop_after_the_same_step(runs):
  given = dict(fsdp=1, step_seconds=0.1, devices=-1, steps=200, timeout=20)
  given |= dict(checkpoint_every=0, eval_every=0, log_every=1)
  hosts = runs.start(runs.path / 'run', hosts=2, **given)
  path = runs.path / 'run' / 'metrics.jsonl'
  runs.wait_for(lambda: path.exists() and '"step": 5,' in path.read_text())
  os.kill(hosts[1].pid, signal.SIGTERM)
  runs.end(hosts, 143)
  lines = [x for x in runs.log.splitlines() if 'stopped after' in x]
  assert lines[0] == lines[1] and len(lines) == 2
  (step,) = os.listdir(runs.path / 'run' / 'checkpoints')
  assert lines[0].startswith(f'SIGTERM: stopped after step {step}, which is')
  assert 5 <= int(step) < 100


def test_a_run_continues_on_another_number_of_devices(runs, train, unbroken):
  for steps, devices in (7, 1), (14, 4), (24, 1):
    flag = f'--xla_force_host_platform_device_count={devices}'
    runs.environment['XLA_FLAGS'] = flag
    run = train(devices=-1, steps=steps)
    run.end()
  found, expected = losses_of(run.workdir), losses_of(unbroken)
  assert len(expected) == 6 and len(set(expected)) == 6
  np.testing.assert_allclose(found, expected, rtol=1e-6)
