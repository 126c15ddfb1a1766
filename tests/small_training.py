"""A tiny training run: batches, configs, and a model that compiles fast."""

import functools
from pathlib import Path
import types

import jax
import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.runs import checks
from locost_jax.training import optim
from locost_jax.training import step as step_lib
from locost_jax.training import train as train_lib
from locost_jax.workdir import checkpoint
from tests import batches as batches_lib
from tests.data.rows import read_jsonl

V = 32
# Metrics that depend on the clock and the machine. All others are the same if a
# run is repeated.
MACHINE_METRICS = tuple(
    f'train/{name}'
    for name in (
        'tokens_per_second',
        'samples_per_second',
        'step_seconds',
        'data_wait',
        'goodput',
        'run_seconds',
        'mfu',
        'peak_bytes',
    )
)


def batches(start, rows=4):
  """Yields batches that depend only on the step; task: copy each 4th token."""
  step = start
  while True:
    rng = np.random.default_rng([7, step])
    length = 16
    inputs = rng.integers(3, V, (rows, length))
    ends = rng.integers(length // 2, length, rows)
    inputs[np.arange(rows), ends] = 1
    inputs[np.arange(length) > ends[:, None]] = 0
    targets = inputs[:, 3::4].copy()
    yield batches_lib.as_batch(inputs, targets, targets > 0)
    step += 1


def make_config(steps):
  config = default.get_config()
  config.model.update(d_model=16, d_state=4, d_ff=16, d_kv=4, num_heads=4)
  config.model.update(num_layers=1, num_decoder_layers=1, vocab_size=V)
  config.model.dropout_rate = 0.1
  config.optim.learning_rate = 1e-2
  config.optim.cooldown_steps = min(10, steps)
  config.checkpoint.metric = 'rouge_mean'
  config.train.update(
      steps=steps, batch_size=4, log_every=1, checkpoint_every=3, eval_every=20
  )
  return config


def evaluate(params, step):
  """Returns a metric that depends on every parameter."""
  total = sum(float(jnp.sum(jnp.abs(x))) for x in jax.tree.leaves(params))
  return {'eval/copy/rouge_mean': -total, 'eval/copy/step': step}


class Bag:
  """A bag-of-words model with the interface of models; compiles fast.

  logits = (mean of E[inputs] + E[targets_in]) W.
  """

  config = models.make_config(dict(default.t5(), vocab_size=V))

  def init(self, rng, inputs, targets_in):
    del inputs, targets_in
    one, two = jax.random.split(rng)
    return {
        'params': {
            'token_embedding': {'embedding': jax.random.normal(one, (V, 8))},
            'logits': {'kernel': jax.random.normal(two, (8, V))},
        }
    }

  def apply(self, variables, *args, method=None, **keys):
    return getattr(self, method)(variables['params'], *args, **keys)

  def states(self, params, inputs, targets_in, input_mask, **options):
    del options
    table = params['token_embedding']['embedding']
    mask = input_mask[..., None]
    mean = jnp.sum(table[inputs] * mask, 1) / jnp.sum(mask, 1)
    return mean[:, None] + table[targets_in], None

  def head(self, params, states):
    return states @ params['logits']['kernel']


def bag_config(steps, **changes):
  config = make_config(steps)
  config.train.eval_every = 0
  config.train.checkpoint_every = 0
  config.optim.cooldown_steps = 0
  config.train.update(changes)
  return config


def poisoned(bad_steps, rows=4):
  """Returns batches; those of bad steps (from 1) have an infinite weight."""

  def poisoned_batches(start):
    for step, batch in enumerate(batches(start, rows), start + 1):
      if step in bad_steps:
        batch['decoder_loss_weights'][0, 0] = np.inf
      yield batch

  return poisoned_batches


def rows(workdir):
  """Returns the lines of metrics.jsonl without timings."""
  path = Path(workdir) / 'metrics.jsonl'
  found = read_jsonl(path) if path.exists() else []
  hidden = MACHINE_METRICS
  return [{k: row[k] for k in row if k not in hidden} for row in found]


def make_step(config, model, optimizer=None, out_shardings=None):
  """Returns `step.init_state` and `train_step` of a run of 10 steps, jitted.

  out_shardings: of the train step; None: XLA chooses.
  """
  if optimizer is None:
    init = functools.partial(step_lib.init_params, model=model)
    shapes = jax.eval_shape(init, jax.random.key(0))
    optimizer = optim.make_optimizer(config.optim, 10, shapes)
  step = functools.partial(
      step_lib.train_step,
      model=model,
      optimizer=optimizer,
      schedule=optim.make_schedule(config.optim, 10),
      config=config,
  )
  init = functools.partial(
      step_lib.init_state, model=model, optimizer=optimizer
  )
  return jax.jit(init), jax.jit(step, out_shardings=out_shardings)


def train(config, workdir, model, train_batches, evaluate):
  """Calls `train.train` on the mesh of the config.

  Returns:
    dict(step, final, best_step, best): the last step and its metrics, the best
    checkpoint's step and its metrics (None and {} without one).
  """
  mesh = sharding.make_mesh(config.mesh)
  checks.check_training_keys(config, mesh)
  train_lib.train(
      types.SimpleNamespace(
          config=config,
          directory=workdir,
          model=model,
          mesh=mesh,
          train_batches=train_batches,
          evaluate=evaluate,
          labels={},
          lower_is_better=('loss',),
      )
  )
  directory = Path(workdir) / 'checkpoints'
  last, best = (
      f(directory) for f in (checkpoint.latest_step, checkpoint.best_step)
  )
  return dict(
      step=last,
      final=metrics_of(directory, last),
      best_step=best,
      best=metrics_of(directory, best) if best else {},
  )


def metrics_of(directory, step):
  """Returns the metrics of a checkpoint, without its score."""
  metrics = checkpoint.read_metrics(Path(directory) / str(step))
  return {
      key: value
      for key, value in metrics.items()
      if key not in (checkpoint.SCORE, checkpoint.SCORE_OF)
  }
