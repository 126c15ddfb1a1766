"""Losses against a loop over tokens and against the gradient's closed form."""

import math

import jax
import jax.numpy as jnp
from locost_jax import losses
import numpy as np
import pytest

B, T, V = 3, 5, 11


def _example(seed=0):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(B, T, V)).astype(np.float32) * 3
  targets = rng.integers(V, size=(B, T))
  weights = (rng.random((B, T)) < 0.7).astype(np.float32)
  weights[1] = 0  # a row of padding
  return logits, targets, weights


def _by_loop(logits, targets, weights, smoothing, z_loss):
  total = 0.0
  for b in range(B):
    for t in range(T):
      row = [float(x) for x in logits[b, t]]
      log_z = math.log(sum(math.exp(x) for x in row))
      loss = z_loss * log_z**2
      for v, x in enumerate(row):
        q = smoothing / V + (1 - smoothing) * (v == targets[b, t])
        loss -= q * (x - log_z)
      total += weights[b, t] * loss
  return total


@pytest.mark.parametrize(
    'smoothing, z_loss', [(0.0, 0.0), (0.1, 0.0), (0.0, 1e-2), (0.2, 1e-2)]
)
def test_cross_entropy_is_the_sum_of_a_loop(smoothing, z_loss):
  example = _example()
  loss, weight = losses.cross_entropy(*example, smoothing, z_loss)
  expected = _by_loop(*example, smoothing, z_loss)
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  assert weight == example[2].sum()


def test_gradient_is_its_closed_form():
  """d/dlogits = weight (softmax (1 + 2 z log Z) - q)."""
  smoothing, z_loss = 0.1, 1e-2
  logits, targets, weights = _example(1)
  gradient = jax.grad(
      lambda x: losses.cross_entropy(x, targets, weights, smoothing, z_loss)[0]
  )(logits)
  exact = logits.astype(np.float64)
  z = np.exp(exact).sum(-1, keepdims=True)
  q = smoothing / V + (1 - smoothing) * np.eye(V)[targets]
  expected = np.exp(exact) / z * (1 + 2 * z_loss * np.log(z)) - q
  expected *= weights[..., None]
  np.testing.assert_allclose(gradient, expected, atol=2e-6)


def test_bfloat16_logits_are_summed_in_float32():
  logits, targets, weights = _example(2)
  logits = jnp.asarray(logits, jnp.bfloat16)
  loss, weight = losses.cross_entropy(logits, targets, weights, 0.1, 1e-2)
  same, _ = losses.cross_entropy(
      logits.astype(jnp.float32), targets, weights, 0.1, 1e-2
  )
  assert loss.dtype == weight.dtype == jnp.float32
  assert loss == same


def test_large_logits_stay_finite():
  logits = jnp.full((1, 1, V), 1e4).at[0, 0, 3].add(50.0)
  loss, _ = losses.cross_entropy(logits, jnp.array([[3]]), jnp.ones((1, 1)))
  np.testing.assert_allclose(loss, 0.0, atol=1e-3)


def test_hits_counts_weighted_targets():
  logits, targets, weights = _example(3)
  targets[0] = logits[0].argmax(-1)
  weights[0] = 1
  expected = ((logits.argmax(-1) == targets) * weights).sum()
  assert losses.hits(logits, targets, weights) == expected >= T
