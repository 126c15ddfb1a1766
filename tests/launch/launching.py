"""Helpers of the tests of launch/: fake commands and an env file.

fake_launch.py stands in for gcloud, srun, other commands and the trainer.
It uses no network and does not import JAX.
"""

import ast
import os
from pathlib import Path
import shlex
import shutil
import subprocess
import sys
import time

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / 'launch'
SCRIPTS = sorted(LAUNCH.glob('*.sh')) + [LAUNCH / 'slurm.sbatch']
TIMEOUT = 50  # seconds
NAMES = 'gcloud srun scontrol sbatch git uv trainer python'.split()
# Flags with characters that the scripts must quote.
ODD = [
    '--config.data.train_files=texts-*.jsonl.gz',
    '--odd=a b  c',
    '--odd=it\'s "$HOME" `id` \\ & ; # ~ é',
    '--odd=',
    "--odd=&\\'",
]
ENV = """
# A run.
CONFIG=configs/finetune.py
WORKDIR=/mnt/runs/a run
ENVIRONMENT=ADDED=two words
EXTRAS=train
PROJECT=my-project
ZONE=us-west4-a
TPU_NAME=slice
ACCELERATOR_TYPE=v5litepod-16
RUNTIME_VERSION=v2-alpha-tpuv5-lite
CAPACITY=spot
""" + ''.join(f'FLAG={flag}\n' for flag in ODD)
PLACE = ['--project=my-project', '--zone=us-west4-a']
FLAGS = '-m locost_jax.main --config=configs/finetune.py'.split()
FLAGS += ['--workdir=/mnt/runs/a run', *ODD]


class Fakes:
  """The fake commands of a test, and a record of their calls."""

  def __init__(self, path):
    self.path, self.bin = path, path / 'bin'
    self.bin.mkdir(parents=True)
    source = (ROOT / 'tests' / 'fake_launch.py').read_text(encoding='utf-8')
    for name in NAMES:
      program = f'#!{sys.executable} -IS\n{source}'
      (self.bin / name).write_text(program, encoding='utf-8')
      (self.bin / name).chmod(0o755)
    self.environment = dict(
        os.environ,
        FAKES=str(path),
        FAKE_WORKERS='2',
        LAUNCH_POLL='0.02',
        REAL_GIT=shutil.which('git'),
        PATH=f'{self.bin}:{os.environ["PATH"]}',
        HOME=str(path),
    )
    for name in list(self.environment):
      if name.startswith('SLURM_'):
        del self.environment[name]
    self.answer()
    self.runs()
    self.write(ENV)

  def write(self, text):
    """Writes the env file."""
    (self.path / 'my.env').write_text(text, encoding='utf-8')

  def answer(self, *rules):
    """Sets the answers of the fake commands: (words, [answer, ...]), ..."""
    (self.path / 'answers').write_text(repr(rules))

  def runs(self, *rules):
    """Sets the trainer's actions: (words, [a status or 'wait', ...]), ..."""
    (self.path / 'runs').write_text(repr(rules))

  def start(self, script, *arguments, cwd=ROOT, **environment):
    file = f'--env={self.path / "my.env"}'
    return subprocess.Popen(
        ['bash', str(LAUNCH / script), file, *arguments],
        cwd=cwd,
        env=self.environment | environment,
        text=True,
        encoding='utf-8',
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

  def run(self, script, *arguments, **environment):
    """Runs a script; returns (status, stdout, stderr)."""
    process = self.start(script, *arguments, **environment)
    try:
      out, err = process.communicate(timeout=TIMEOUT)
    finally:
      process.kill()
    return process.returncode, out, err

  def calls(self, *names):
    """Returns [[name, *argv], ...] in order, of these commands or of all.

    All: but for the checks before a TPU is requested.
    """
    return [
        [name, *argv]
        for name, argv, *_ in self.all_calls()
        if (
            name in names if names else name != 'check' and 'status' not in argv
        )
    ]

  def all_calls(self):
    path = self.path / 'calls'
    lines = path.read_text().splitlines() if path.exists() else []
    return list(map(ast.literal_eval, lines))

  def wait_for(self, pattern, count=1):
    """Waits for files that a fake command makes."""
    end = time.monotonic() + TIMEOUT
    while len(list(self.path.glob(pattern))) < count:
      assert time.monotonic() < end, f'no {pattern}: {self.calls()}'
      time.sleep(0.01)


def split(out):
  """Returns the commands that a dry run printed, without comments."""
  lines = [line for line in out.splitlines() if not line.startswith('# ')]
  return list(map(shlex.split, lines))


def trainers(fakes):
  """Returns the calls that started a training run."""
  return [call for call in fakes.calls('trainer') if 'locost_jax.main' in call]
