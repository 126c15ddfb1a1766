"""Measuring at reduced size, in a process of its own or in the test's."""

import json

import pytest

from locost_jax import bench
from locost_jax import commands
from locost_jax import memory
from locost_jax.benchmarks import child
from locost_jax.benchmarks import processes

SIZES = dict(vocab_size=60, d_model=32, d_state=8, d_ff=64, d_kv=8, num_heads=4,
             num_layers=2, num_decoder_layers=2)
TINY = [f'--config.model.{key}={value}' for key, value in SIZES.items()]


class Here:
  """A `processes.Process` that is this process."""

  def __init__(self, spec, limit=None):
    del limit
    self.prepared, self._run = child.prepare(spec)
    self.prepared['peak_bytes'] = memory.peak_host_bytes()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    pass

  def close(self):
    pass

  def ask(self):
    answer = dict(self._run(), peak_bytes=memory.peak_host_bytes())
    return json.loads(json.dumps(answer))


@pytest.fixture
def here(monkeypatch):
  """Measures in the test's own process, which is warm."""
  monkeypatch.setattr(processes, 'Process', Here)


def make_spec(**values):
  """What a measuring process is told."""
  flags = commands.flags.FlagValues()
  argv = ['bench', *TINY, '--repeats=2']
  bench.define_flags(flags, argv)
  flags(argv)
  return dict(bench.make_spec(values['what'], flags), **values)
