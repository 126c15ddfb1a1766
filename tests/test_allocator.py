"""A command's process has huge pages, its own arguments and its own id."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from locost_jax import allocator
print(os.getpid(), *sys.argv[1:], sep='|')
sys.stdout.flush()
allocator.restart_with_huge_pages()
print(os.environ['GLIBC_TUNABLES'])
"""


def run(tmp_path, *arguments, **environment):
  script = tmp_path / 'script.py'
  script.write_text(SCRIPT)
  kept = {key: os.environ[key] for key in os.environ if 'GLIBC' not in key}
  kept['PYTHONPATH'] = os.getcwd()
  return subprocess.run(
      [sys.executable, '-X', 'utf8', str(script), *arguments], check=True,
      env=dict(kept, **environment), capture_output=True, text=True
  ).stdout.splitlines()


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc only')
def test_the_command_starts_again_once_as_itself(tmp_path):
  before, after, tunables = run(tmp_path, 'two words', '--flag')
  assert before == after
  assert before.endswith('|two words|--flag')
  assert 'glibc.malloc.hugetlb=1' in tunables


def test_a_users_own_setting_stays(tmp_path):
  start, tunables = run(tmp_path, GLIBC_TUNABLES='glibc.malloc.check=0')
  assert start
  assert tunables == 'glibc.malloc.check=0'
