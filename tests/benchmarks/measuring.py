"""Helpers to measure tiny models in the test's process."""

import json

from locost_jax import bench
from locost_jax.benchmarks import spec as spec_lib
from locost_jax.benchmarks import worker
from locost_jax.command_line import commands
from locost_jax.devices import memory

SIZES = dict(
    vocab_size=60,
    d_model=32,
    d_state=8,
    d_ff=64,
    d_kv=8,
    num_heads=4,
    num_layers=2,
    num_decoder_layers=2,
)
TINY = [f'--config.model.{key}={value}' for key, value in SIZES.items()]


class ThisProcess:
  """A `processes.WorkerProcess` that runs in this process."""

  def __init__(self, spec, limit=None):
    del limit
    self.prepared, self._run = worker.prepare(spec)
    self.prepared['peak_bytes'] = memory.peak_host_bytes()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    pass

  def close(self):
    pass

  def measure(self):
    answer = dict(self._run(), peak_bytes=memory.peak_host_bytes())
    return json.loads(json.dumps(answer))


def make_spec(**values):
  """Makes the spec of a worker."""
  flags = commands.flags.FlagValues()
  argv = ['bench', *TINY, '--repeats=2']
  bench.define_flags(flags, argv)
  flags(argv)
  config, _ = commands.get_config(flags)
  return dict(spec_lib.make_spec(values['what'], flags, config), **values)
