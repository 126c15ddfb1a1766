"""One run from its files to a summary: trained, killed, resumed, evaluated.

All tests read one run, of the config and the files of tests/old_runs/46990e7.
Its numbers are those of that commit's unbroken run.
"""

import json
import signal
import tarfile

import pytest

from tests import python
from tests.runs import test_old_runs

OLD = test_old_runs.OLD / '46990e7'
EXPECTED = json.loads((OLD / 'expected.json').read_text())
# `main` and `summarize`; with KILL set, SIGKILL ends the process after that
# line of the second phase.
PROGRAM = """
import os, runpy, signal, sys
from locost_jax.telemetry import metrics_log
log = metrics_log.MetricsLog.log
def log_and_end(self, step, metrics):
  log(self, step, metrics)
  if str(step) == os.environ.get('KILL'):
    self.sync()
    os.kill(os.getpid(), signal.SIGKILL)
metrics_log.MetricsLog.log = log_and_end
runpy.run_module(sys.argv[1], run_name='__main__', alter_sys=True)
"""


def call(home, module, *arguments, status=0, **environment):
  """Runs a command in its own process and in the folder `home`."""
  program = PROGRAM.replace('sys.argv[1]', repr(f'locost_jax.{module}'))
  programs = str(home / 'programs')  # compiled once, as for users
  return python.run(
      *('-c', program, *arguments),
      cwd=home,
      status=status,
      LOCOST_JAX_CACHE=programs,
      **environment,
  )


@pytest.fixture(scope='session')
def killed(tmp_path_factory):
  """Returns (folder, the killed process, the process that continued)."""
  home = tmp_path_factory.mktemp('story')
  with tarfile.open(OLD / 'run.tar.xz') as members:
    members.extract('train.jsonl', home, filter='data')
  command = 'main', f'--config={OLD / "config.py"}', '--workdir=run'
  return (
      home,
      call(home, *command, status=-signal.SIGKILL, KILL='6'),
      call(home, *command),
  )


def test_a_killed_run_equals_an_unbroken_one(killed):
  home, first, second = killed
  assert 'pretrain on jsonl: 4 steps, done before' in second.stderr
  assert 'tokenising' in first.stderr and 'tokenising' not in second.stderr
  rows = test_old_runs.lines(home / 'run')
  steps = [row['step'] for row in rows if 'train/loss' in row]
  assert steps == list(range(1, 9))  # none twice
  test_old_runs.check_numbers(rows, EXPECTED)


def test_it_summarises(killed):
  home, *_ = killed
  (home / 'text.txt').write_text(test_old_runs.DOCUMENT + '\n')
  done = call(
      home,
      'summarize',
      '--checkpoint=run',
      '--num_beams=3',
      '--no_repeat_ngram_size=1',
      '--min_length=10',
      'text.txt',
  )
  assert done.stdout == EXPECTED['summary'] + ' (cut at 16 tokens)\n'
