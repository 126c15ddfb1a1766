"""Restarts keep arguments and id; memory is returned; programs are kept."""

import gc
import sys

import pytest

from bench import workers
from locost_jax.config import speed
from tests import python
from tests.bench import test_bench
from tests.runs import test_main


def start(directory, *arguments):
  """Runs `main`; returns (hits, misses) of the cache."""
  kept = dict(cwd=directory, LOCOST_JAX_CACHE='kept')
  return python.count('main', *arguments, **kept)[1]


def test_a_second_start_compiles_nothing(tmp_path):
  """Training, evaluation and the final table, in two processes."""
  test_main.write_rows(tmp_path / 'train.jsonl', test_main.pairs(0, 20))
  keys = 'data.train_files=train.jsonl', 'data.vocabulary=byte'
  keys += 'train.steps=2', 'optim.cooldown_steps=0', 'eval.baselines=False'
  arguments = [test_main.CONFIG, *test_main.SMALL]
  arguments += [f'--config.{key}' for key in keys]
  hits, misses = start(tmp_path, *arguments, '--workdir=a')
  assert misses > 0 and hits < misses
  arguments.append('--workdir=b')
  for more in [], ['--evaluate']:
    hits, misses = start(tmp_path, *arguments, *more)
    assert misses == 0 and hits > 0
  # Negative control: without the cache nothing is kept.
  assert start(tmp_path, *arguments, *more, '--program_cache=off') == (0, 0)


# Compiles programs while no file can be longer than 100 bytes, as on a full
# disk, and again without the limit.
FULL = """
import resource, signal, sys, warnings
import jax
import jax.numpy as jnp
from locost_jax.config import speed
speed.keep_programs(sys.argv[1])
speed.keep_programs(sys.argv[1])  # replaces nothing twice
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
if sys.argv[2] == 'full':
  resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
for n in range(4):
  jax.jit(lambda x: x + n)(jnp.ones(3)).block_until_ready()
warnings.warn('another warning')
"""


def compile_some(cache, state):
  """Returns stderr of FULL, and the sizes of the cache's files."""
  lines = python.run('-c', FULL, cache, state, cwd=cache).stderr.splitlines()
  return lines, [path.stat().st_size for path in cache.glob('xla/*')]


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path):
  lines, sizes = compile_some(tmp_path, 'full')
  assert lines[0] == (
      f'{tmp_path}/xla: compiled programs cannot be kept there: File too large; '
      'the run goes on'
  )
  assert len(lines) == 2 and 'UserWarning: another warning' in lines[1]
  assert sizes == []  # no truncated files
  lines, sizes = compile_some(tmp_path, 'room')
  assert len(lines) == 1 and len(sizes) >= 4


def test_a_program_that_cannot_be_read_is_one_line(tmp_path):
  compile_some(tmp_path, 'room')
  for path in tmp_path.glob('xla/*'):
    path.write_bytes(b'')
  lines, _ = compile_some(tmp_path, 'room')
  assert len(lines) == 2 and lines[0].endswith('; it is compiled again')
  assert lines[0].startswith(
      f'{tmp_path}/xla: a compiled program cannot be read'
  )


def test_processes_of_bench_use_the_cache(tmp_path, monkeypatch):
  monkeypatch.setenv('LOCOST_JAX_CACHE', str(tmp_path))
  with workers.Worker(test_bench.make_spec('generate', 'all')) as worker:
    worker.run('all')
  assert any(path.name.endswith('-cache') for path in tmp_path.glob('xla/*'))


SCRIPT = """
import os, sys
from locost_jax.config import speed
print(os.getpid(), *sys.argv[1:], sep='|')
speed.restart_with_huge_pages()
print(os.environ['GLIBC_TUNABLES'])
"""
COMPILING = """
import os, sys
import jax
from locost_jax.config import speed
from locost_jax.devices import memory
if sys.argv[1] == 'trims':
  speed.trim_after_compiling(shortest=0.0)
blocks = [bytes(2000) for _ in range(100_000)]
blocks = blocks[-1:]  # at the end of the heap, which cannot shrink below it
before = memory.resident_bytes(os.getpid())
jax.jit(lambda x: x + 1)(1.0)
print(before - memory.resident_bytes(os.getpid()))
"""


def run_script(tmp_path, *arguments, program=SCRIPT, tunables=None):
  script = tmp_path / 'script.py'
  script.write_text(program)
  done = python.run('-X', 'utf8', script, *arguments, GLIBC_TUNABLES=tunables)
  return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc only')
def test_a_command_restarts_once_with_the_same_id(tmp_path):
  before, after, tunables = run_script(tmp_path, 'two words', '--flag')
  assert before == after
  assert before.endswith('|two words|--flag')
  assert 'glibc.malloc.hugetlb=1' in tunables


def test_a_users_setting_is_kept(tmp_path):
  start, tunables = run_script(tmp_path, tunables='glibc.malloc.check=0')
  assert start
  assert tunables == 'glibc.malloc.check=0'


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc only')
def test_free_memory_is_returned_after_compiling(tmp_path):
  (given_back,) = run_script(tmp_path, 'trims', program=COMPILING)
  assert int(given_back) > 100e6
  (given_back,) = run_script(tmp_path, 'keeps', program=COMPILING)
  assert int(given_back) < 50e6


def test_imports_are_not_searched_for_garbage():
  before = gc.get_freeze_count()
  try:
    with speed.importing():
      assert not gc.isenabled()
      made = [[] for _ in range(1000)]
    assert gc.isenabled() and gc.get_freeze_count() >= before + len(made)
  finally:
    gc.unfreeze()
