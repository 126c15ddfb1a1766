"""The lock on WORKDIR: held by one process until it ends; not for readers."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from locost_jax import main
from locost_jax import summarize
from locost_jax.errors import InputError
from locost_jax.runs import train_run
from locost_jax.workdir import phases as phases_lib
from tests import tiny_run
from tests.deadline import within
from tests.runs import test_main

HOLDER = """
import sys
from locost_jax.workdir import phases as phases_lib
with phases_lib.hold_lock(sys.argv[1]):
  print('held', flush=True)
  sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
  """Another process that holds the lock of tmp_path / 'run'."""
  with subprocess.Popen(
      [sys.executable, '-c', HOLDER, str(tmp_path / 'run')],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
  ) as process:
    assert process.stdout.readline() == 'held\n'
    yield process
    process.kill()


@pytest.mark.parametrize('how', [signal.SIGKILL, signal.SIGTERM, 'end'])
def test_the_lock_ends_with_its_holder(holder, tmp_path, how):
  if how == 'end':
    holder.stdin.close()
  else:
    holder.send_signal(how)
  holder.wait(60)
  with within(), phases_lib.hold_lock(tmp_path / 'run'):
    with pytest.raises(InputError, match=f'process {os.getpid()} on'):
      with phases_lib.hold_lock(tmp_path / 'run'):
        pass
  assert not list((tmp_path / 'run').iterdir())


def test_children_do_not_keep_the_lock(tmp_path):
  with phases_lib.hold_lock(tmp_path):
    child = subprocess.Popen(['sleep', '60'], close_fds=False)
  with within(), phases_lib.hold_lock(tmp_path):
    pass
  child.kill()
  child.wait()


def test_a_workdir_that_cannot_be_locked_is_one_line(tmp_path):
  (tmp_path / 'file').write_text('')
  for path in (tmp_path / 'file', tmp_path / 'file' / 'run'):
    with pytest.raises(InputError, match='not a directory'):
      with phases_lib.hold_lock(path):
        pass


@pytest.fixture
def arguments(tmp_path):
  rows = [dict(document='a b c', summary='a')] * 4
  path = test_main.write_rows(tmp_path / 'rows.jsonl', rows)
  return [
      '--config=configs/default.py',
      f'--workdir={tmp_path / "run"}',
      *test_main.TINY,
      *tiny_run.flags(
          f'data.train_files={path} data.validation_files={path} '
          'data.vocabulary=byte data.max_input_length=16 '
          'data.max_target_length=8 train.steps=1 train.batch_size=2 '
          'eval.batch_size=2 decode.max_length=4'
      ),
  ]


def test_two_commands_cannot_write_one_workdir(
    holder, tmp_path, arguments, run_command
):
  with within():
    status, out, err = run_command(main, *arguments)
  assert (status, out) == (2, '')
  assert err == (
      f'error: {tmp_path / "run"}: process {holder.pid} on '
      f'{socket.gethostname()} is training here: wait for its end, or use '
      'another --workdir\n'
  )
  assert os.listdir(tmp_path / 'run') == ['run.lock']


def test_reading_commands_need_no_lock(tmp_path, arguments, succeed, request):
  tiny_run.make(tmp_path / 'run')
  request.getfixturevalue('holder')
  document = tmp_path / 'text.txt'
  document.write_text('A text.')
  out, _ = succeed(summarize, f'--checkpoint={tmp_path / "run"}', document)
  assert out
  succeed(main, *arguments, '--evaluate')


def test_only_empty_new_directories_are_removed(tmp_path):
  """Another run may have started in the same parent directory."""
  workdir = tmp_path / 'runs' / 'mine'
  with pytest.raises(InputError):
    missing = [workdir, workdir.parent]
    with train_run.removing_on_input_error(workdir, missing):
      (workdir / 'vocabulary').mkdir(parents=True)
      (tmp_path / 'runs' / 'other').mkdir()
      raise InputError('no')
  assert os.listdir(tmp_path / 'runs') == ['other']
