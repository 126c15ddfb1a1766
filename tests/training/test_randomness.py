"""Every step, and every piece of a step, draws other dropout masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.training import optim
from locost_jax.training import step as step_lib
from tests import small_training


@pytest.fixture(scope='module')
def losses_of():
  """losses_of(steps) -> losses of these steps, same batch and parameters."""
  config = small_training.make_config(10)
  config.model.dropout_rate = 0.5
  model = models.build(config.model)
  shapes = jax.eval_shape(
      lambda: step_lib.init_params(jax.random.key(0), model)
  )
  optimizer = optim.make_optimizer(config.optim, 10, shapes)
  state = jax.jit(
      functools.partial(step_lib.init_state, model=model, optimizer=optimizer)
  )(jax.random.key(0))
  batch = next(small_training.batches(0))
  step = jax.jit(
      functools.partial(
          step_lib.train_step,
          model=model,
          optimizer=optimizer,
          schedule=optim.make_schedule(config.optim, 10),
          config=config.optim,
      )
  )

  def losses_of(steps):
    return [
        float(step(state._replace(step=jnp.int32(s)), batch)[1]['loss'])
        for s in steps
    ]

  return losses_of


def test_each_step_has_another_dropout_mask(losses_of):
  """Batch and parameters are fixed, so only masks make losses differ."""
  losses = losses_of(range(6))
  assert len(set(losses)) == 6, losses
  assert np.std(losses) > 1e-3


def test_a_repeated_step_has_the_same_mask(losses_of):
  assert losses_of([4, 2]) == losses_of([2, 4])[::-1]


@pytest.mark.parametrize('accumulate', [2, 4])
def test_each_piece_of_a_batch_has_another_key(accumulate):
  """A piece's loss is its random number, so the sum reveals the keys."""
  batch = {'decoder_loss_weights': jnp.ones((4, 3))}
  key = jax.random.key(1)

  def sums_of(trained, piece, rng):
    assert piece['decoder_loss_weights'].shape == (4 // accumulate, 3)
    drawn = jax.random.uniform(rng)
    return trained * drawn, drawn, jnp.float32(1)

  (loss, _), gradient = step_lib.loss_and_gradients(
      sums_of, jnp.float32(2), batch, key, accumulate
  )
  drawn = [
      float(jax.random.uniform(jax.random.fold_in(key, i)))
      for i in range(accumulate)
  ]
  assert len(set(drawn)) == accumulate
  np.testing.assert_allclose(gradient, sum(drawn) / 12, rtol=1e-6)
  np.testing.assert_allclose(loss, 2 * sum(drawn) / 12, rtol=1e-6)
