"""Self-attention over long targets matches the plain form."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.ops import causal_attention
from locost_jax.ops import long_attention
from locost_jax.ops import pieces
from tests.ops.compiled import assert_same
from tests.ops.compiled import gradients_and_value
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes


def example(T, B=2, H=3, K=4):
  """Returns queries, keys, values [B, T, H, K], bias by distance [H, T]."""
  rng = np.random.default_rng(T)
  arrays = [rng.normal(size=(B, T, H, K)) for _ in range(3)]
  return *map(jnp.asarray, arrays), jnp.asarray(rng.normal(size=(H, T)))


def plain(queries, keys, values, bias, factor=1.0):
  """Attends with a softmax of all scores; dropout scales weights by factor."""
  T = queries.shape[1]
  distance = np.arange(T)[:, None] - np.arange(T)
  scores = jnp.einsum('bthk,bshk->bhts', queries, keys)
  scores = scores + bias[:, np.maximum(distance, 0)]
  scores = jnp.where(distance >= 0, scores, -jnp.inf)
  weights = jax.nn.softmax(scores) * factor
  return jnp.einsum('bhts,bshk->bthk', weights, values)


gradients_of = functools.partial(gradients_and_value, argnums=(0, 1, 2, 3))


@pytest.mark.parametrize('T,size', ((1, 1), (5, 2), (12, 4), (13, 5), (9, 16)))
def test_pieces_match_the_plain_form(T, size):
  in_pieces = functools.partial(causal_attention.in_pieces, size=size)
  with jax.enable_x64(True):
    args = example(T)
    want = gradients_of(plain, *args)
    assert_same(gradients_of(in_pieces, *args), want, 1e-12)
    single = [x.astype(jnp.float32) for x in args]
    assert_same(gradients_of(in_pieces, *single), want, 1e-5)


def test_dropout_of_pieces_matches_dropout_of_weights():
  """The plain form uses the same factors, drawn as the docstring defines."""
  T, size, rate, key = 11, 4, 0.3, jax.random.key(1)
  with jax.enable_x64(True):
    args = example(T)
    factor = np.zeros((2, 3, 12, 12))
    for n, (i, j) in enumerate((i, j) for i in range(3) for j in range(i + 1)):
      kept = jax.random.bernoulli(
          jax.random.fold_in(key, n), 1 - rate, (2, 3, size, size)
      )
      factor[..., i * size : (i + 1) * size, j * size : (j + 1) * size] = (
          kept / (1 - rate)
      )
    in_pieces = functools.partial(
        causal_attention.in_pieces, size=size, dropout_rate=rate, key=key
    )
    want = gradients_of(
        functools.partial(plain, factor=factor[..., :T, :T]), *args
    )
    assert_same(gradients_of(in_pieces, *args), want, 1e-12)
    without = gradients_of(plain, *args)
  assert np.abs(want[1] - without[1]).max() > 0.1


@pytest.mark.memory
@pytest.mark.parametrize(
    'attend,T,small',
    ((causal_attention.in_pieces, 8192, True), (plain, 1024, False)),
)
def test_scores_of_long_targets_are_never_all_in_memory(attend, T, small):
  """Forward and backward at 8K targets; negative control: the plain form."""
  H, K = 12, 64
  x = shape(1, T, H, K)
  grad = jax.grad(lambda *args: (attend(*args) ** 2).sum(), (0, 1, 2, 3))
  used = temporary_bytes(grad, x, x, x, shape(H, T))
  assert (used < 0.1 * 4 * H * T * T) == small, used


@pytest.mark.parametrize('attend', ('causal', 'cross'))
@pytest.mark.parametrize('tied', (True, False))
def test_layers_keep_no_mask_or_bias_of_all_pieces(monkeypatch, attend, tied):
  """A scan of layers makes no mask or bias for all pieces in advance.

  Negative control: JAX makes one if the loop is not tied to its carry.
  """
  if not tied:
    monkeypatch.setattr(pieces, 'tie', lambda constants, to: constants)
  x, bias = jnp.ones((1, 12, 2, 5)), jnp.ones((2, 12))
  mask = jnp.ones((1, 12), bool)

  def layer(h, _):
    if attend == 'causal':
      return causal_attention.in_pieces(h, h, h, bias, size=4), None
    return long_attention.in_pieces(h, h, h, mask, piece=4), None

  def loss(x):
    return jax.lax.scan(layer, x, None, length=2)[0].sum()

  jaxpr = str(jax.make_jaxpr(jax.grad(loss))(x))
  # 6 pairs of 4 x 4; 3 pieces of 12 x 4.
  kept = {'causal': '[6,1,2,4,4]', 'cross': '[3,1,2,12,4]'}[attend]
  assert (kept not in jaxpr) == tied


@pytest.mark.parametrize('attend', ('causal', 'cross'))
def test_no_gradient_copies_the_scores_of_a_piece(attend):
  """XLA on a CPU copies the scores if the result has another layout."""
  x = jax.ShapeDtypeStruct((1, 512, 2, 64), jnp.float32)
  if attend == 'causal':
    bias = jax.ShapeDtypeStruct((2, 512), jnp.float32)
    run = functools.partial(causal_attention.in_pieces, size=128)
    given, size = (x, x, x, bias), '128,128'
  else:
    queries = jax.ShapeDtypeStruct((1, 96, 2, 64), jnp.float32)
    run = functools.partial(
        long_attention.in_pieces, mask=jnp.ones((1, 512), bool), piece=128
    )
    given, size = (queries, x, x), '(?:96,128|128,96)'
  grad = jax.grad(lambda *args: (run(*args) ** 2).sum(), range(len(given)))
  program = jax.jit(grad).lower(*given).compile().as_text()
  makers = re.findall(rf'(\S+) = f32\[(?:1,)?2,{size}\]', program)
  assert makers
  assert not [name for name in makers if re.search('copy|transpose', name)]
