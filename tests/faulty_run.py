"""A small training run, which `tests.runs.processes` starts and disturbs.

It ends like a command: expected errors give one line and a status. WORKDIR may
be in a bucket.
"""

import os
import resource
import signal
import sys
import time

# Training must not need TensorFlow, so block its import.
for blocked in ('tensorflow', 'tensorflow_datasets', 'seqio'):
  sys.modules[blocked] = None

# pylint: disable=g-import-not-at-top
import jax

from locost_jax import models
from locost_jax.config import commands
from locost_jax.config import object_store
from locost_jax.devices import collective
from locost_jax.evaluation import predictions
from locost_jax.workdir import bucket_run
from locost_jax.workdir import lease
from locost_jax.workdir import phases as phases_lib
from tests import small_training

DEFAULTS = dict(
    model='bag',
    size=50_000,  # extra floats of the bag, to make saving slow
    steps=24,
    log_every=7,
    checkpoint_every=4,
    eval_every=10,
    timeout=0,
    patience=0,
    rows=4,
    devices=1,
    fsdp=1,
    step_seconds=0.0,
    eval_seconds=0.0,
    hang_at=0,  # the step whose batch never arrives
    deaf=False,  # whether evaluations ignore exceptions
    rank=0,  # of adapters in all kernels; above 0 only adapters are trained
    process=-1,  # index of two processes; -1: a single process
    port=0,
)


class Bag(small_training.Bag):
  """A bag of words with `size` extra parameters."""

  def __init__(self, size):
    self.size = size

  def init(self, rng, inputs, targets_in):
    variables = super().init(rng, inputs, targets_in)
    scale = jax.random.normal(rng, (self.size,))
    variables['params']['encoder'] = {'norm': {'scale': scale}}
    return variables

  def apply(self, variables, *arguments, **keywords):
    scale = variables['params']['encoder']['norm']['scale']
    factor = 1 + jax.numpy.mean(scale)
    found = super().apply(variables, *arguments, **keywords)
    return jax.tree.map(lambda x: x * factor, found)


def report(text):
  print(text, file=sys.stderr, flush=True)


def main(workdir, given):
  """Trains, until something stops it."""
  given = DEFAULTS | given
  process = given['process']
  if process >= 0:
    jax.distributed.initialize(f'localhost:{given["port"]}', 2, process)
  config = small_training.make_config(given['steps'])
  config.optim.cooldown_steps = 0
  config.train.update(
      {
          key: given[key]
          for key in 'log_every checkpoint_every eval_every timeout patience'.split()
      }
  )
  config.train.batch_size = given['rows']
  config.mesh.update(data=given['devices'], fsdp=given['fsdp'])
  config.train.lora.update(rank=given['rank'], paths='.*kernel')
  if given['model'] == 'bag':
    model = Bag(given['size'])
  else:
    model = models.build(config.model, dtype=config.train.dtype)

  def batches(start):
    for step, batch in enumerate(
        small_training.batches(start, given['rows']), start + 1
    ):
      time.sleep(given['step_seconds'])
      if step == given['hang_at']:
        report('hanging')
        while True:
          time.sleep(0.1)
      if process >= 0:
        half = given['rows'] // 2
        batch = {
            key: batch[key][process * half : (process + 1) * half]
            for key in batch
        }
      yield batch

  def evaluate(params, step):
    end = time.monotonic() + given['eval_seconds']

    def wait():
      while time.monotonic() < end:
        time.sleep(0.1)

    try:
      report(f'evaluating {step}')
      wait()
    except BaseException:  # a signal raises once, anywhere
      if not given['deaf']:
        raise
      wait()
    predictions.try_write(
        home / 'predictions' / f'{step}.jsonl',
        [dict(id='0', prediction='text' * 3000, reference='')],
    )
    return small_training.evaluate(params, step)

  opened = bucket_run.open_workdir(workdir)
  lost = collective.expecting_all_hosts()
  with commands.one_line_errors(), lost, opened as home:
    if object_store.is_uri(workdir):
      phases_lib.write_config(home, config)
    small_training.train(config, home, model, batches, evaluate)


def begin(workdir, given, environment):
  """Runs `main` in a process of `forked`, with quick retries and leases."""
  os.environ.update(environment)
  # Shells ignore SIGINT in background processes.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  directory = environment['JAX_COMPILATION_CACHE_DIR']
  jax.config.update('jax_compilation_cache_dir', directory)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  object_store.RETRIES = given.pop('retries', object_store.RETRIES)
  if room := given.pop('room', 0):  # bytes of a file, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
  lease.RENEW, lease.TAKE_OVER, lease.LOOK = given.pop('lease', (30, 90, 5))
  main(workdir, given)
