"""One run from its files to a summary: trained, killed, resumed, evaluated.

The run has the config and the files of tests/old_runs/46990e7; its numbers are
those of that commit's unbroken run.
"""

import json
import signal
import tarfile

from tests import python
from tests.data.rows import read_jsonl
from tests.runs import test_old_runs

OLD = test_old_runs.OLD / '46990e7'
EXPECTED = json.loads((OLD / 'expected.json').read_text())
# `main` and `summarize`; with KILL set, SIGKILL ends the process after that
# line of the second phase.
PROGRAM = """
import os, runpy, signal, sys
from locost_jax.telemetry import metrics_log
log = metrics_log.MetricsLog.log
def log_and_end(self, step, *args):
  log(self, step, *args)
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


def test_a_killed_run_equals_an_unbroken_one(tmp_path):
  with tarfile.open(OLD / 'run.tar.xz') as members:
    texts = members.extractfile('train.jsonl').read()
  (tmp_path / 'train.jsonl').write_bytes(texts)
  command = 'main', f'--config={OLD / "config.py"}', '--workdir=run'
  first = call(tmp_path, *command, status=-signal.SIGKILL, KILL='6')
  second = call(tmp_path, *command)
  assert 'pretrain on jsonl: 4 steps, done before' in second.stderr
  assert 'tokenising' in first.stderr and 'tokenising' not in second.stderr
  rows = read_jsonl(tmp_path / 'run' / 'finetune' / 'metrics.jsonl')
  steps = [row['step'] for row in rows if 'train/loss' in row]
  assert steps == list(range(1, 9))  # none twice
  test_old_runs.check_numbers(tmp_path / 'run', EXPECTED)
  (tmp_path / 'text.txt').write_text(test_old_runs.DOCUMENT + '\n')
  flags = '--checkpoint=run', *test_old_runs.OPTIONS
  done = call(tmp_path, 'summarize', *flags, 'text.txt')
  assert done.stdout == EXPECTED['summary'] + ' (cut at 16 tokens)\n'
