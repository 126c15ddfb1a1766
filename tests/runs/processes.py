"""Training runs in processes of their own, which tests disturb.

A server of processes forks them (`forked`); their program is faulty_run.py.
"""

import os
from pathlib import Path
import re
import signal
import time

import jax
import numpy as np
import orbax.checkpoint as ocp

from locost_jax.workdir import checkpoint
from locost_jax.workdir import manifest
from tests import forked
from tests import ports
from tests import small_training

QUICK = dict(max_retries=2, initial_delay='10ms', max_delay='20ms')


class Runs:
  """Starts processes.

  Attributes:
    path: a directory for their output.
    environment: variables that they get.
    log: the output of all of them.
  """

  def __init__(self, path, programs, **environment):
    self.path, self._file, self._started = path, path / 'log', []
    self.environment = environment
    environment['JAX_COMPILATION_CACHE_DIR'] = str(programs)

  @property
  def log(self):
    return self._file.read_text() if self._file.exists() else ''

  def start(self, workdir, hosts=1, rooms=(0, 0), **given):
    """Starts the 1 or 2 hosts of a run; rooms: bytes of a file on each."""
    given = dict(retries=QUICK, lease=(0.2, 1.0, 0.1)) | given
    if hosts == 2:
      given = dict(port=ports.free_port(), fsdp=2, timeout=60) | given
    started = [
        forked.start(
            'tests.faulty_run',
            'begin',
            self._file,
            str(workdir),
            given | dict(process=i if hosts == 2 else -1, room=rooms[i]),
            self.environment,
        )
        for i in range(hosts)
    ]
    self._started += started
    return started

  def end(self, hosts, *status):
    for process in hosts:
      process.join(180)
      assert process.exitcode in (status or (0,)), self.log
      assert 'Traceback' not in self.log, self.log

  def wait_for(self, condition):
    end = time.monotonic() + 120
    while not condition():
      assert time.monotonic() < end, self.log
      time.sleep(0.002)

  def close(self):
    for process in self._started:
      if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
      process.join()


class Run:
  """One process of `runs`, what it printed, and its workdir on a disk."""

  def __init__(self, runs, workdir, **given):
    self._runs, self._begin = runs, len(runs.log)
    self.workdir = Path(workdir)
    (self.process,) = runs.start(workdir, **given)

  @property
  def stderr(self):
    return self._runs.log[self._begin :]

  def wait_for(self, condition):
    """Waits until condition(self) is true."""
    self._runs.wait_for(lambda: condition(self) or not self.process.is_alive())
    assert condition(self), self.stderr

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
    os.kill(self.process.pid, number)

  def end(self, status=0):
    self._runs.end([self.process], status)


def result(workdir):
  """Returns all numbers of a run: its arrays by step, metrics, lines."""
  steps, arrays = checkpoint.list_steps(workdir / 'checkpoints'), {}
  for step in steps:
    path = workdir / 'checkpoints' / str(step)
    assert not manifest.find_damage(path)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
      for item in 'params', 'training':
        read = ocp.RestoreArgs(restore_type=np.ndarray)
        shapes = checkpoint.metadata(path / item)
        found = reader.restore(
            path / item, restore_args=jax.tree.map(lambda _: read, shapes)
        )
        arrays[step, item] = [x.tobytes() for x in jax.tree.leaves(found)]
    arrays[step, 'metrics'] = checkpoint.read_metrics(path)
  texts = {x.name: x.read_bytes() for x in workdir.glob('predictions/*.jsonl')}
  return steps, arrays, small_training.rows(workdir), texts
