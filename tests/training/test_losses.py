"""Losses equal a loop over tokens, gradients their closed form."""

import functools
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.training import losses

B, T, V = 3, 5, 11
cross_entropy = jax.jit(losses.cross_entropy, static_argnums=(3, 4))


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
def test_cross_entropy_equals_a_loop(smoothing, z_loss):
  example = _example()
  loss, weight = cross_entropy(*example, smoothing, z_loss)
  expected = _by_loop(*example, smoothing, z_loss)
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  assert weight == example[2].sum()


def test_the_gradient_equals_its_closed_form():
  """d/dlogits = weight (softmax (1 + 2 z log Z) - q)."""
  smoothing, z_loss = 0.1, 1e-2
  logits, targets, weights = _example(1)
  loss = lambda x: cross_entropy(x, targets, weights, smoothing, z_loss)[0]
  gradient = jax.jit(jax.grad(loss))(logits)
  exact = logits.astype(np.float64)
  z = np.exp(exact).sum(-1, keepdims=True)
  q = smoothing / V + (1 - smoothing) * np.eye(V)[targets]
  expected = np.exp(exact) / z * (1 + 2 * z_loss * np.log(z)) - q
  expected *= weights[..., None]
  np.testing.assert_allclose(gradient, expected, atol=2e-6)


def test_bfloat16_logits_are_summed_in_float32():
  logits, targets, weights = _example(2)
  logits = jnp.asarray(logits, jnp.bfloat16)
  loss, weight = cross_entropy(logits, targets, weights, 0.1, 1e-2)
  same, _ = cross_entropy(
      logits.astype(jnp.float32), targets, weights, 0.1, 1e-2
  )
  assert loss.dtype == weight.dtype == jnp.float32
  assert loss == same


def test_large_logits_stay_finite():
  logits = jnp.full((1, 1, V), 1e4).at[0, 0, 3].add(50.0)
  loss, _ = cross_entropy(logits, jnp.array([[3]]), jnp.ones((1, 1)))
  np.testing.assert_allclose(loss, 0.0, atol=1e-3)


def test_hits_counts_weighted_targets():
  logits, targets, weights = _example(3)
  targets[0] = logits[0].argmax(-1)
  weights[0] = 1
  expected = ((logits.argmax(-1) == targets) * weights).sum()
  assert losses.hits(logits, targets, weights) == expected >= T


@pytest.mark.parametrize('size', (1, 2, 3, 5, 1000))
def test_pieces_of_the_targets_add_up_to_the_whole(size, monkeypatch):
  """Compares sums, and gradients with respect to states and head."""
  rng = np.random.default_rng(4)
  monkeypatch.setattr(losses, 'PIECE_BYTES', 4 * B * V * size)
  with jax.enable_x64(True):
    table = jnp.asarray(rng.normal(size=(7, V)))
    states = jnp.asarray(rng.normal(size=(B, T, 7)))
    _, targets, weights = _example(4)

    def in_pieces(table, states):
      loss, hits, weight = losses.of_states(
          lambda h: h @ table, states, targets, weights, 0.1, 1e-2
      )
      return loss, (hits, weight)

    def whole(table, states):
      logits = states @ table
      loss, weight = losses.cross_entropy(logits, targets, weights, 0.1, 1e-2)
      return loss, (losses.hits(logits, targets, weights), weight)

    got, want = (
        jax.jit(jax.value_and_grad(f, (0, 1), has_aux=True))(table, states)
        for f in (in_pieces, whole)
    )
  jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12),
      got,
      want,
  )
  assert got[0][1][0] > 0


@pytest.mark.parametrize('size, is_small', ((64 << 20, True), (1 << 40, False)))
def test_logits_of_long_targets_are_never_all_in_memory(
    size, is_small, monkeypatch
):
  """4,096 targets, 32,100 tokens; negative control: a single piece."""
  shape = jax.ShapeDtypeStruct
  states, table = shape((1, 4096, 64), 'float32'), shape((64, 32100), 'float32')
  targets, weights = shape((1, 4096), 'int32'), shape((1, 4096), 'float32')

  monkeypatch.setattr(losses, 'PIECE_BYTES', size)

  def loss(states, table, targets, weights):
    return losses.of_states(lambda h: h @ table, states, targets, weights)[0]

  flag = 'xla_cpu_use_fusion_emitters'  # conftest.py switches it off
  compiled = (
      jax.jit(jax.value_and_grad(loss, (0, 1)))
      .lower(states, table, targets, weights)
      .compile({flag: True} if flag in os.environ['XLA_FLAGS'] else {})
  )
  used = compiled.memory_analysis().temp_size_in_bytes
  assert (used < 4 * 4096 * 32100) == is_small, used


@pytest.mark.parametrize('size', [1, 3, 100])
def test_losses_of_documents_equal_those_of_single_documents(size, monkeypatch):
  logits, targets, weights = _example(5)
  monkeypatch.setattr(losses, 'PIECE_BYTES', 4 * B * V * size)
  found, count = jax.jit(functools.partial(losses.of_documents, lambda x: x))(
      logits, targets, weights
  )
  for b, own in enumerate(np.eye(B)):
    alone = weights * own[:, None]
    expected = _by_loop(logits, targets, alone, 0.0, 0.0)
    np.testing.assert_allclose(found[b], expected, rtol=1e-5)
  np.testing.assert_array_equal(count, weights.sum(1))


def test_the_first_of_equal_logits_is_the_hit():
  logits = jnp.zeros((1, 3, V)).at[0, 1, 4].set(jnp.nan)
  assert losses.hits(logits, jnp.zeros((1, 3), int), jnp.ones((1, 3))) == 2
  assert losses.hits(logits, jnp.ones((1, 3), int), jnp.ones((1, 3))) == 0
