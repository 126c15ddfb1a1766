"""The training loop: kills, devices, steps that are not finite.

Run as a program this file is the small training run that the tests kill:
python tests/test_train.py train WORKDIR STEPS
"""

import functools
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from configs import default
import jax
import jax.numpy as jnp
from locost_jax import checkpoint
from locost_jax import losses
from locost_jax import models
from locost_jax import optim
from locost_jax import sharding
from locost_jax import train
from locost_jax.errors import InputError
import numpy as np
import optax
import pytest

ROOT = Path(__file__).resolve().parent.parent
V = 32


def _batches(start, rows=4):
  """Batches, each a function of its step: copy every fourth token."""
  step = start
  while True:
    rng = np.random.default_rng([7, step])
    length = 16
    inputs = rng.integers(3, V, (rows, length))
    ends = rng.integers(length // 2, length, rows)
    inputs[np.arange(rows), ends] = 1
    inputs[np.arange(length) > ends[:, None]] = 0
    targets = inputs[:, 3::4].copy()
    yield dict(
        encoder_input_tokens=inputs.astype(np.int32),
        decoder_input_tokens=np.pad(targets, ((0, 0), (1, 0)))[:, :-1].astype(
            np.int32
        ),
        decoder_target_tokens=targets.astype(np.int32),
        decoder_loss_weights=(targets > 0).astype(np.float32),
    )
    step += 1


def _config(steps):
  config = default.get_config()
  config.model.update(
      vocab_size=V, d_model=16, d_state=4, d_ff=16, d_kv=4, num_heads=4,
      num_layers=1, num_decoder_layers=1, dropout_rate=0.1,
  )
  config.optim.learning_rate = 1e-2
  config.optim.cooldown = 10
  config.train.update(
      steps=steps, batch_size=4, log_every=1, checkpoint_every=3, eval_every=20
  )
  return config


def _evaluate(params, step):
  """Measures something that every parameter has a part in."""
  total = sum(float(jnp.sum(jnp.abs(x))) for x in jax.tree.leaves(params))
  return {'eval/copy/rouge_mean': -total, 'eval/copy/step': step}


def _run_to_be_killed(workdir, steps):
  config = _config(int(steps))
  model = models.build(config.model, dtype=config.train.dtype)
  print(json.dumps(train.train(config, workdir, model, _batches, _evaluate)))


def _run_on_devices():
  """Prints how far one step on 8 devices is from the same on one."""
  batch = next(_batches(0, rows=8))
  model = models.build(_config(1).model)
  config = default.get_config().optim
  # An optimiser that does nothing and keeps the gradient.
  optimizer = optax.with_extra_args_support(optax.trace(0.0))
  results = []
  for devices in (1, 8):
    settings = default.get_config().mesh
    settings.data = devices
    mesh = sharding.make_mesh(settings)
    with jax.set_mesh(mesh):
      init = functools.partial(
          train.init_state, model=model, optimizer=optimizer, rows=8
      )
      key = jax.random.key(0)
      placed = sharding.state_shardings(mesh, jax.eval_shape(init, key))
      state = jax.jit(init, out_shardings=placed)(key)
      step = jax.jit(
          functools.partial(
              train.train_step,
              model=model,
              optimizer=optimizer,
              schedule=optim.make_schedule(config, 1),
              config=config,
          ),
          out_shardings=(placed, sharding.replicated(mesh)),
      )
      state, metrics = step(state, sharding.global_batch(batch, mesh))
      results.append(jax.device_get((state.opt_state.trace, metrics)))
  (one, one_metrics), (eight, eight_metrics) = results
  by_path = dict(loss=abs(one_metrics['loss'] - eight_metrics['loss']))
  paths = jax.tree_util.tree_leaves_with_path(one)
  for (path, a), b in zip(paths, jax.tree.leaves(eight)):
    by_path[jax.tree_util.keystr(path)] = np.abs(a - b).max()
  shards = len(step.lower(state, sharding.global_batch(batch, mesh))
               .compile().input_shardings[0][1]['decoder_input_tokens']
               .device_set)
  print(json.dumps(dict(
      shards=shards,
      largest=float(max(np.abs(x).max() for x in jax.tree.leaves(one))),
      error={k: float(v) for k, v in by_path.items()},
  )))


@pytest.fixture(scope='session')
def environment(tmp_path_factory):
  """Of the programs: CPU, and what one has compiled the next need not."""
  path = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
  return os.environ | {
      'PYTHONPATH': path,
      'JAX_PLATFORMS': 'cpu',
      'JAX_COMPILATION_CACHE_DIR': str(tmp_path_factory.mktemp('compiled')),
      'JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }


def _start(environment, *arguments):
  return subprocess.Popen(
      [sys.executable, __file__, *map(str, arguments)],
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
  )


def _finish(process):
  stdout, stderr = process.communicate(timeout=300)
  assert process.returncode == 0, stderr
  return json.loads(stdout.splitlines()[-1])


def _rows(workdir):
  """Returns the lines of metrics.jsonl without what the clock decides."""
  path = Path(workdir) / 'metrics.jsonl'
  lines = path.read_text().splitlines() if path.exists() else []
  rows = [json.loads(line) for line in lines]
  for row in rows:
    row.pop('train/tokens_per_second', None)
    row.pop('train/data_wait', None)
  return rows


def _kill_at(process, workdir, step, delay):
  """SIGKILLs once `step` is logged, `delay` seconds later."""
  path = Path(workdir) / 'metrics.jsonl'
  deadline = time.monotonic() + 300
  while process.poll() is None and time.monotonic() < deadline:
    if path.exists() and f'"step": {step},' in path.read_text():
      break
    time.sleep(0.002)
  time.sleep(delay)
  process.send_signal(signal.SIGKILL)
  _, stderr = process.communicate(timeout=60)
  assert process.returncode == -signal.SIGKILL, stderr


def test_a_killed_run_continues_bit_for_bit(tmp_path, environment):
  steps = 60
  seed = int.from_bytes(os.urandom(4), 'big')
  print(f'seed of the kills: {seed}')
  rng = np.random.default_rng(seed)
  unbroken, killed = tmp_path / 'unbroken', tmp_path / 'killed'
  expected = _finish(_start(environment, 'train', unbroken, steps))
  for first, last in ((4, 30), (31, 56)):
    step, delay = int(rng.integers(first, last)), rng.uniform(0, 0.05)
    process = _start(environment, 'train', killed, steps)
    _kill_at(process, killed, step, delay)
    # Whatever was being written, what counts as a checkpoint can be read.
    # (There may be none: a first save that was cut off.)
    latest = checkpoint.latest_step(killed / 'checkpoints')
    if latest is not None:
      assert jax.tree.leaves(checkpoint.load_params(killed, latest))
  assert _finish(_start(environment, 'train', killed, steps)) == expected

  assert _rows(killed) == _rows(unbroken)
  by_step = [row['train/loss'] for row in _rows(killed) if 'train/loss' in row]
  assert len(by_step) == steps
  assert np.mean(by_step[-5:]) < np.mean(by_step[:5])  # it does learn
  jax.tree.map(
      np.testing.assert_array_equal,
      checkpoint.load_params(killed, steps),
      checkpoint.load_params(unbroken, steps),
  )


def test_eight_devices_do_what_one_does(environment):
  environment = environment | {
      'XLA_FLAGS': '--xla_force_host_platform_device_count=8'
  }
  result = _finish(_start(environment, 'devices'))
  assert result['shards'] == 8 and result['largest'] > 0.01
  wrong = {k: v for k, v in result['error'].items() if not v < 1e-5}
  assert not wrong


class Bag:
  """The face of a model over the mean of the inputs' embeddings; compiles fast.

  logits = (mean of E[inputs] + E[targets_in]) W.
  """

  def init(self, rng, inputs, targets_in):
    del inputs, targets_in
    one, two = jax.random.split(rng)
    return {'params': {
        'token_embedding': {'embedding': jax.random.normal(one, (V, 8))},
        'logits': {'kernel': jax.random.normal(two, (8, V))},
    }}

  def apply(
      self, variables, inputs, targets_in, input_mask=None, deterministic=True,
      rngs=None,
  ):
    del deterministic, rngs
    params = variables['params']
    table = params['token_embedding']['embedding']
    mask = input_mask[..., None]
    mean = jnp.sum(table[inputs] * mask, 1) / jnp.sum(mask, 1)
    return (mean[:, None] + table[targets_in]) @ params['logits']['kernel']


def _bag_config(steps, **changes):
  config = _config(steps)
  config.train.eval_every = 0
  config.train.checkpoint_every = 0
  config.optim.cooldown = 0
  config.train.update(changes)
  return config


def _poisoned(bad_steps):
  """Batches in which some steps, counted from 1, have an infinite weight."""

  def batches(start):
    for step, batch in enumerate(_batches(start), start + 1):
      if step in bad_steps:
        batch['decoder_loss_weights'][0, 0] = np.inf
      yield batch

  return batches


@jax.jit
def _bag_step(state, batch):
  config = _bag_config(10).optim
  optimizer = optim.make_optimizer(config, 10, state.params)
  return train.train_step(
      state,
      batch,
      model=Bag(),
      optimizer=optimizer,
      schedule=optim.make_schedule(config, 10),
      config=config,
  )


def _bag_state():
  params = jax.eval_shape(lambda: train.init_params(jax.random.key(0), Bag()))
  optimizer = optim.make_optimizer(_bag_config(10).optim, 10, params)
  return train.init_state(jax.random.key(0), Bag(), optimizer)


def _equal(one, other):
  jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_step_that_is_not_finite_changes_nothing_but_the_count():
  batch = next(_batches(0))
  state, metrics = _bag_step(_bag_state(), batch)
  assert metrics['nonfinite'] == 0 and metrics['culprit'] == -1
  bad = next(_poisoned({1})(0))
  skipped, metrics = _bag_step(state, bad)
  assert metrics['nonfinite'] == 1 and metrics['culprit'] == 0
  assert skipped.nonfinite == 1 and skipped.step == state.step + 1
  _equal(skipped.params, state.params)
  _equal(skipped.opt_state, state.opt_state)
  # The next one goes on from there, at the rate of its own step.
  after, metrics = _bag_step(skipped, batch)
  assert metrics['nonfinite'] == 0 and after.nonfinite == 1
  assert np.any(after.params['logits']['kernel'] !=
                state.params['logits']['kernel'])


def test_the_numbers_of_a_step():
  batch, state = next(_batches(3)), _bag_state()
  logits = Bag().apply(
      {'params': state.params},
      batch['encoder_input_tokens'],
      batch['decoder_input_tokens'],
      batch['encoder_input_tokens'] != 0,
  )
  weights = batch['decoder_loss_weights']
  total, weight = losses.cross_entropy(
      logits, batch['decoder_target_tokens'], weights
  )
  _, metrics = _bag_step(state, batch)
  np.testing.assert_allclose(metrics['loss'], total / weight, rtol=1e-6)
  assert metrics['weight'] == weights.sum()
  tokens = weights.sum() + (batch['encoder_input_tokens'] != 0).sum()
  assert metrics['tokens'] == tokens
  assert metrics['learning_rate'] == np.float32(1e-2)

  sums = train.eval_step(state.params, batch, model=Bag())
  empty = {key: np.zeros_like(value) for key, value in batch.items()}
  empty['encoder_input_tokens'][:, 0] = 1
  rows = {k: np.concatenate([batch[k], empty[k]]) for k in batch}
  padded = train.eval_step(state.params, rows, model=Bag())
  for key in ('loss', 'accuracy', 'weight'):
    np.testing.assert_allclose(padded[key], sums[key], rtol=1e-6)
  np.testing.assert_allclose(sums['loss'], total, rtol=1e-6)


def test_the_first_step_that_is_not_finite_ends_the_run(tmp_path):
  config = _bag_config(12, checkpoint_every=4)
  with pytest.raises(InputError) as error:
    train.train(config, tmp_path, Bag(), _poisoned({7}), _evaluate)
  message = str(error.value)
  assert message.startswith('step 7: loss ')
  assert 'gradient of logits/kernel' in message
  assert 'the checkpoint of step 4 is kept' in message
  assert '\n' not in message
  assert checkpoint.find(tmp_path).name == '4'
  # With sound batches it goes on from there, as if nothing had been.
  train.train(config, tmp_path, Bag(), _batches, _evaluate)
  train.train(config, tmp_path / 'other', Bag(), _batches, _evaluate)
  assert _rows(tmp_path) == _rows(tmp_path / 'other')


def test_some_steps_may_be_not_finite(tmp_path):
  config = _bag_config(12, max_nonfinite_steps=2, log_every=6)
  train.train(config, tmp_path, Bag(), _poisoned({3, 9}), _evaluate)
  rows = [row for row in _rows(tmp_path) if 'train/loss' in row]
  assert [row['train/nonfinite'] for row in rows] == [1, 1]
  assert all(np.isfinite(row['train/loss']) for row in rows)
  with pytest.raises(InputError, match='^step 11: '):
    train.train(
        config, tmp_path / 'other', Bag(), _poisoned({3, 9, 11}), _evaluate
    )


def test_a_parameter_that_is_not_finite_is_named(tmp_path):

  class Broken(Bag):

    def init(self, rng, inputs, targets_in):
      variables = super().init(rng, inputs, targets_in)
      table = variables['params']['token_embedding']
      table['embedding'] = table['embedding'].at[:, 0].set(jnp.nan)
      return variables

  with pytest.raises(InputError) as error:
    train.train(_bag_config(3), tmp_path, Broken(), _batches, _evaluate)
  assert 'parameter token_embedding/embedding is not finite' in str(error.value)
  assert 'no checkpoint was written yet' in str(error.value)


def test_a_line_is_the_mean_since_the_line_before(tmp_path):
  each, some = tmp_path / 'each', tmp_path / 'some'
  train.train(_bag_config(10), each, Bag(), _batches, _evaluate)
  train.train(_bag_config(10, log_every=4), some, Bag(), _batches, _evaluate)
  by_step = [r['train/loss'] for r in _rows(each) if 'train/loss' in r]
  lines = {
      r['step']: r['train/loss'] for r in _rows(some) if 'train/loss' in r
  }
  assert list(lines) == [4, 8, 10]
  for first, last in ((0, 4), (4, 8), (8, 10)):
    np.testing.assert_allclose(
        lines[last], np.mean(by_step[first:last]), rtol=1e-6
    )


def test_when_it_evaluates_and_saves(tmp_path):
  asked = []

  def evaluate(params, step):
    asked.append(step)
    return {'eval/x/rouge_mean': 100 - step, 'eval/x/loss': 1.0}

  config = _bag_config(10, eval_every=4, checkpoint_every=3)
  config.checkpoint.keep_latest = 3
  result = train.train(config, tmp_path, Bag(), _batches, evaluate)
  assert asked == [4, 8, 10]
  assert result == {
      'step': 10,
      'final': {'eval/x/rouge_mean': 90.0, 'eval/x/loss': 1.0},
      'best_step': 4,
      'best': {'eval/x/rouge_mean': 96.0, 'eval/x/loss': 1.0},
  }
  steps = sorted(int(p.name) for p in (tmp_path / 'checkpoints').glob('[0-9]*'))
  assert steps == [4, 8, 9, 10]
  # A run that is over is not run again, but says the same.
  never = lambda start: pytest.fail('asked for batches')
  assert train.train(config, tmp_path, Bag(), never, evaluate) == result
  assert asked == [4, 8, 10]


def test_a_longer_run_continues_a_shorter_one(tmp_path):
  short, long = tmp_path / 'short', tmp_path / 'long'
  train.train(_bag_config(6), short, Bag(), _batches, _evaluate)
  train.train(_bag_config(10), short, Bag(), _batches, _evaluate)
  train.train(_bag_config(10), long, Bag(), _batches, _evaluate)
  _equal(checkpoint.load_params(short, 10), checkpoint.load_params(long, 10))


def test_parameters_from_another_run(tmp_path):
  first, second = tmp_path / 'first', tmp_path / 'second'
  config = _bag_config(6, eval_every=2)
  train.train(config, first, Bag(), _batches, _evaluate)
  config = _bag_config(2, init_from=str(first))
  config.optim.learning_rate = 0.0
  train.train(config, second, Bag(), _batches, _evaluate)
  _equal(checkpoint.load_params(second), checkpoint.load_params(first))

  class Wider(Bag):

    def init(self, rng, inputs, targets_in):
      variables = super().init(rng, inputs, targets_in)
      variables['params']['logits']['kernel'] = jnp.ones((8, V + 1))
      return variables

  with pytest.raises(InputError) as error:
    train.train(config, tmp_path / 'third', Wider(), _batches, _evaluate)
  assert 'logits/kernel is float32[8, 32]; expected float32[8, 33]' in str(
      error.value
  )
  with pytest.raises(InputError, match='expected float32.8, 33.'):
    train.train(config, second, Wider(), _batches, _evaluate)


@pytest.mark.parametrize(
    'changes, words',
    [
        (dict(steps=0), 'train.steps=0'),
        (dict(log_every=0), 'train.log_every=0'),
        (dict(eval_every=-1), 'train.eval_every=-1'),
        (dict(init_from='nowhere/at/all'), 'nowhere/at/all: no such directory'),
    ],
)
def test_values_that_cannot_be(changes, words, tmp_path):
  config = _bag_config(2)
  config.train.update(changes)
  with pytest.raises(InputError) as error:
    train.train(config, tmp_path / 'run', Bag(), _batches, _evaluate)
  assert words in str(error.value)
  assert not (tmp_path / 'run').exists()


if __name__ == '__main__':
  # Training must not need TensorFlow: here it cannot be imported.
  for blocked in ('tensorflow', 'tensorflow_datasets', 'seqio'):
    sys.modules[blocked] = None
  programs = {'train': _run_to_be_killed, 'devices': _run_on_devices}
  programs[sys.argv[1]](*sys.argv[2:])
