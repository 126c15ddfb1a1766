"""Optimisers equal numpy loops."""

import functools

import jax
import numpy as np
import optax
import pytest

from configs import default
from locost_jax.models import parameters
from locost_jax.training import optim

STEPS = 100


def _config(**changes):
  config = default.get_config().optim
  config.clip = 0.0
  config.update(changes)
  return config


def _params(seed=0):
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  return {
      'token_embedding': {'embedding': draw(7, 4)},
      'encoder': {
          'layers': {
              'mixer': {
                  'key': {'kernel': draw(2, 4, 4), 'bias': draw(2, 4)},
                  'ssm': {'log_dt': draw(2, 1, 4), 'C': draw(2, 2, 4, 3, 2)},
              },
              'mixer_norm': {'scale': draw(2, 4)},
          }
      },
      'decoder': {'relative_bias': {'embedding': draw(8, 2)}},
  }


def _flat(tree):
  return jax.tree.map(np.asarray, parameters.flatten(tree))


def _gradients(step):
  """Returns gradients whose norm shrinks from step to step."""
  return jax.tree.map(lambda x: x / 4**step, _params(10 + step))


def _run(optimizer, params, steps, groups=()):
  params, frozen = optim.split(params, groups)
  state = jax.jit(optimizer.init)(params)
  take = _taker(optimizer)
  for step in range(steps):
    gradients, _ = optim.split(_gradients(step), groups)
    params, state, _ = take(params, state, gradients, step=step)
  return optim.combine(params, frozen)


def _taker(optimizer):
  """Returns a jitted function that takes a step."""

  @jax.jit
  def take(params, state, gradients, **step):
    updates, state = optimizer.update(gradients, state, params, **step)
    return optax.apply_updates(params, updates), state, updates

  return take


def test_warmup_and_cooldown_multiply_the_schedule():
  config = _config(learning_rate=2.0, warmup_steps=10, cooldown_steps=20)
  schedule = optim.make_schedule(config, STEPS)
  steps = [0, 4, 9, 50, 80, 90, 99, 100, 101]
  expected = [0.2, 1.0, 2.0, 2.0, 2.0, 1.0, 0.1, 0.0, 0.0]
  np.testing.assert_allclose(schedule(np.array(steps)), expected, rtol=1e-6)


def test_adamw_equals_a_loop():
  """The loop, in float64, clips, applies AdamW, and decays only matrices."""
  config = _config(
      weight_decay=0.1, clip=2.0, learning_rate=1e-2, warmup_steps=3
  )
  params = _params()
  result = _flat(_run(optim.make_optimizer(config, STEPS, params), params, 5))
  x = {path: leaf.astype(np.float64) for path, leaf in _flat(params).items()}
  m = {path: 0.0 for path in x}
  v = {path: 0.0 for path in x}
  matrices = {'token_embedding/embedding', 'encoder/layers/mixer/key/kernel'}
  for step in range(5):
    g = _flat(_gradients(step))
    g = {path: leaf.astype(np.float64) for path, leaf in g.items()}
    norm = sum((leaf**2).sum() for leaf in g.values()) ** 0.5
    rate = 1e-2 * min(1, (step + 1) / 3)
    for path in x:
      clipped = g[path] * min(1, 2.0 / norm)
      m[path] = 0.9 * m[path] + 0.1 * clipped
      v[path] = 0.999 * v[path] + 0.001 * clipped**2
      mean = m[path] / (1 - 0.9 ** (step + 1))
      square = v[path] / (1 - 0.999 ** (step + 1))
      decay = 0.1 * x[path] * (path in matrices)
      x[path] = x[path] - rate * (mean / (square**0.5 + 1e-8) + decay)
  for path in x:
    np.testing.assert_allclose(result[path], x[path], rtol=2e-4, atol=1e-6)


def _square(old, g, decay):
  """Updates Adafactor's second moment of one matrix or vector.

  Algorithms 4 and 5 of the paper: large matrices keep row means and column
  means.
  """
  squares = g**2 + 1e-30
  if g.ndim == 2 and min(g.shape) >= 128:
    rows, columns = old if old is not None else (0.0, 0.0)
    rows = decay * rows + (1 - decay) * squares.mean(1)
    columns = decay * columns + (1 - decay) * squares.mean(0)
    return (rows, columns), np.outer(rows, columns) / rows.mean()
  old = 0.0 if old is None else old
  new = decay * old + (1 - decay) * squares
  return new, new


@pytest.mark.parametrize('relative', [True, False])
def test_adafactor_equals_the_paper(relative):
  """The loop is over single matrices, in float64; updates relative or not."""
  rng = np.random.default_rng(0)
  draw = lambda scale: {
      'embedding': scale * rng.normal(size=(200, 128)),
      'norm': scale * rng.normal(size=7),
      'layers': {
          'kernel': scale * rng.normal(size=(2, 128, 160)),
          'bias': scale * rng.normal(size=(2, 5)),
      },
  }
  params, gradients = draw(3.0), [draw(10.0 ** (1 - i)) for i in range(4)]
  float32 = lambda tree: jax.tree.map(lambda x: x.astype(np.float32), tree)
  config = _config(
      name='adafactor',
      scale_by_parameter=relative,
      schedule='inverse_sqrt',
      learning_rate=2e-5,
      flat_steps=9999,
      warmup_steps=10000,
  )
  own = float32(params)
  optimizer = optim.make_optimizer(config, 100_000, own)
  state, take = jax.jit(optimizer.init)(own), _taker(optimizer)
  moved = jax.tree.map(np.zeros_like, params)
  for step, gradient in enumerate(gradients):
    own, state, updates = take(own, state, float32(gradient), step=step)
    moved = jax.tree.map(lambda x, u: x + np.asarray(u, float), moved, updates)

  def expected(x, gs):
    start, square = x, None
    for t, g in enumerate(gs, start=1):
      square, v = _square(square, g, 1 - t**-0.8)
      update = g / np.sqrt(v)
      update /= max(1, np.sqrt(np.mean(update**2)))
      if relative:
        update *= max(1e-3, np.sqrt(np.mean(x**2)))
      # Equation 11 of PageSum's paper.
      x = x - 2e-3 * min(t**-0.5, t * 10_000**-1.5) * update
    return x - start

  for path, found in _flat(moved).items():
    x, gs = _flat(params)[path], [_flat(g)[path] for g in gradients]
    parts = [(found, x, gs)]
    if 'layers' in path:  # each layer is a separate array
      parts = [(found[i], x[i], [g[i] for g in gs]) for i in range(2)]
    for found, x, gs in parts:
      want = expected(x, gs)
      # Updates cancel, so the sum has the rounding error of the largest update.
      atol = 1e-6 * np.abs(want).max()
      np.testing.assert_allclose(found, want, 1e-4, atol, err_msg=path)


def test_groups_scale_and_freeze():
  params = _params()
  groups = (
      ('encoder/layers/mixer/ssm/.*', 0.1),
      ('token_embedding/.*', 0),
      ('.*/ssm/C', 5.0),  # no effect: the first match is used
  )
  plain = optim.make_optimizer(_config(), STEPS, params)
  grouped = optim.make_optimizer(_config(groups=groups), STEPS, params)
  before = _flat(params)
  one = _flat(_run(plain, params, 1))
  other = _flat(_run(grouped, params, 1, groups=groups))
  for path in before:
    factor = 0.1 if '/ssm/' in path else 0.0 if 'token' in path else 1.0
    np.testing.assert_allclose(
        other[path] - before[path],
        factor * (one[path] - before[path]),
        rtol=1e-3,
        atol=1e-7,
    )


def test_rate_depends_on_the_step_not_the_number_of_updates():
  params = _params()
  optimizer = optim.make_optimizer(_config(cooldown_steps=50), STEPS, params)
  state, take = jax.jit(optimizer.init)(params), _taker(optimizer)
  *_, early = take(params, state, _params(1), step=0)
  *_, late = take(params, state, _params(1), step=75)
  np.testing.assert_allclose(
      _flat(late)['token_embedding/embedding'],
      _flat(early)['token_embedding/embedding'] / 2,
      rtol=1e-6,
  )


def test_norms_of_groups_add_up_to_the_global_norm():
  shapes = {
      'token_embedding/embedding': 2,
      'encoder/layers/mixer/ssm/log_dt': 3,
      'encoder/layers/mixer/key/kernel': 5,
      'encoder/layers/mixer_norm/scale': 7,
      'encoder/layers/feed_forward/wo/kernel': 11,
      'encoder/norm/scale': 13,
      'decoder/layers/cross_attention/key/kernel': 17,
      'decoder/relative_bias/embedding': 19,
      'temperature': 23,
  }
  tree = parameters.unflatten(
      {path: np.full((2, 2), root) for path, root in shapes.items()}
  )
  squares = np.float32([np.sum(x**2) for x in jax.tree.leaves(tree)])
  norms = jax.jit(functools.partial(optim.norms_by_group, tree))(squares)
  expected = {
      'token_embedding': 2,
      'encoder/layers/mixer': (9 + 25 + 49) ** 0.5,
      'encoder/layers/feed_forward': 11,
      'encoder/norm': 13,
      'decoder/layers/cross_attention': 17,
      'decoder/relative_bias': 19,
      'temperature': 23,
  }
  assert norms.keys() == expected.keys()
  for name, root in expected.items():
    np.testing.assert_allclose(norms[name], 2 * root, rtol=1e-6)
  np.testing.assert_allclose(
      sum(norm**2 for norm in norms.values()), np.sum(squares), rtol=1e-6
  )
