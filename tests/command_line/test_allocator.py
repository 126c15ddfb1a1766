"""A restarted command keeps its arguments and id; memory is returned."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from locost_jax.command_line import allocator
print(os.getpid(), *sys.argv[1:], sep='|')
allocator.restart_with_huge_pages()
print(os.environ['GLIBC_TUNABLES'])
"""
READING = """
import os, sys
from locost_jax.command_line import allocator
print(os.getpid(), *sys.argv[1:], sep='|')
if sys.argv[1] == 'reads':
  sys.modules['seqio'] = None  # as if it were imported
allocator.restart_after_reading()
print('trains')
"""
COMPILING = """
import os, sys
import jax
from locost_jax.command_line import allocator
from locost_jax.devices import memory
if sys.argv[1] == 'trims':
  allocator.trim_after_compiling(shortest=0.0)
blocks = [bytes(2000) for _ in range(100_000)]
blocks = blocks[-1:]  # at the end of the heap, which cannot shrink below it
before = memory.resident_bytes(os.getpid())
jax.jit(lambda x: x + 1)(1.0)
print(before - memory.resident_bytes(os.getpid()))
"""


def run(tmp_path, *arguments, program=SCRIPT, **environment):
  script = tmp_path / 'script.py'
  script.write_text(program)
  kept = {key: os.environ[key] for key in os.environ if 'GLIBC' not in key}
  kept['PYTHONPATH'] = os.getcwd()
  return subprocess.run(
      [sys.executable, '-X', 'utf8', str(script), *arguments],
      check=True,
      env=dict(kept, **environment),
      capture_output=True,
      text=True,
  ).stdout.splitlines()


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc only')
def test_a_command_restarts_once_with_the_same_id(tmp_path):
  before, after, tunables = run(tmp_path, 'two words', '--flag')
  assert before == after
  assert before.endswith('|two words|--flag')
  assert 'glibc.malloc.hugetlb=1' in tunables


def test_a_command_restarts_after_reading(tmp_path):
  before, after, trains = run(tmp_path, 'reads', 'a b', program=READING)
  assert before == after and before.endswith('|reads|a b')
  assert trains == 'trains'


def test_a_command_that_read_nothing_does_not_restart(tmp_path):
  assert run(tmp_path, 'nothing', program=READING)[1:] == ['trains']


def test_a_users_setting_is_kept(tmp_path):
  start, tunables = run(tmp_path, GLIBC_TUNABLES='glibc.malloc.check=0')
  assert start
  assert tunables == 'glibc.malloc.check=0'


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc only')
def test_free_memory_is_returned_after_compiling(tmp_path):
  (given_back,) = run(tmp_path, 'trims', program=COMPILING)
  assert int(given_back) > 100e6
  (given_back,) = run(tmp_path, 'keeps', program=COMPILING)
  assert int(given_back) < 50e6
