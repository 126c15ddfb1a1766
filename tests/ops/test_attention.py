"""Attention over long inputs matches the plain form: values and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.models import attention
from locost_jax.ops import long_attention
from tests.ops.compiled import assert_same
from tests.ops.compiled import gradients_and_value
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes


def example(S, B=2, T=5, H=3, K=4, seed=0):
  """Returns queries, keys, values, mask; the last document is all padding."""
  rng = np.random.default_rng(seed)
  arrays = (rng.normal(size=(B, n, H, K)) for n in (T, S, S))
  mask = np.arange(S) < np.linspace(S, 0, B).astype(int)[:, None]
  return *map(jnp.asarray, arrays), jnp.asarray(mask)


def plain(queries, keys, values, mask, factor=1.0):
  """Attends with a softmax of all scores; dropout scales weights by factor."""
  scores = jnp.einsum('bthk,bshk->bhts', queries, keys)
  scores = jnp.where(
      mask[:, None, None, :], scores, jnp.finfo(scores.dtype).min
  )
  weights = jax.nn.softmax(scores) * factor
  return jnp.einsum('bhts,bshk->bthk', weights, values)


@pytest.mark.parametrize(
    'S,piece', ((1, 1), (2, 1), (7, 3), (12, 4), (13, 5), (31, 30), (16, 16))
)
def test_pieces_match_the_plain_form(S, piece):
  with jax.enable_x64(True):
    args = example(S, B=3)
    in_pieces = functools.partial(long_attention.in_pieces, piece=piece)
    want = gradients_and_value(plain, *args)
    assert_same(gradients_and_value(in_pieces, *args), want, 1e-12)
    single = [x.astype(jnp.float32) for x in args[:3]] + [args[3]]
    assert_same(gradients_and_value(in_pieces, *single), want, 2e-5)


@pytest.mark.parametrize('S', (12, 13))
def test_dropout_of_pieces_matches_dropout_of_weights(S):
  """The plain form uses the same factors, drawn as the docstring defines."""
  piece, rate, key = 4, 0.3, jax.random.key(1)
  with jax.enable_x64(True):
    args = example(S)
    factor = np.zeros((2, 3, 5, S))
    for i in range(-(-S // piece)):
      kept = jax.random.bernoulli(
          jax.random.fold_in(key, i), 1 - rate, (2, 3, 5, piece)
      )
      start = min(i * piece, S - piece)
      factor[..., i * piece : start + piece] = np.asarray(
          kept[..., i * piece - start :]
      ) / (1 - rate)
    in_pieces = functools.partial(
        long_attention.in_pieces, dropout_rate=rate, key=key, piece=piece
    )
    want = gradients_and_value(functools.partial(plain, factor=factor), *args)
    assert_same(gradients_and_value(in_pieces, *args), want, 1e-12)
    without = gradients_and_value(plain, *args)
  assert np.abs(want[1] - without[1]).max() > 0.1


def test_bfloat16_accumulates_in_float32():
  """4096 keys: sums in bfloat16 would stop growing at 256."""
  args = example(4096, K=8)
  half = [x.astype(jnp.bfloat16) for x in args[:3]] + [args[3]]
  want = plain(*(x.astype(jnp.float32) for x in half[:3]), args[3])
  in_pieces = functools.partial(long_attention.in_pieces, piece=128)
  got = in_pieces(*half)
  assert got.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(got), want, rtol=0, atol=0.02)


@pytest.mark.parametrize(
    'attend,small', ((long_attention.in_pieces, True), (plain, False))
)
def test_scores_of_a_long_input_are_never_all_in_memory(attend, small):
  """Forward and backward at 32K keys; negative control: the plain form."""
  B, T, S, H, K = 1, 512, 32768, 12, 64
  loss = lambda *args: (attend(*args) ** 2).sum()
  given = shape(B, T, H, K), shape(B, S, H, K), shape(B, S, H, K)
  bytes_used = temporary_bytes(
      jax.grad(loss, (0, 1, 2)), *given, shape(B, S, dtype=bool)
  )
  assert (bytes_used < 0.35 * 4 * B * H * T * S) == small, bytes_used


@pytest.mark.parametrize(
    'want,arguments',
    (
        ('plain', ('cpu', 'float32', 512, 512, 0.0, 64)),
        ('plain', ('gpu', 'bfloat16', 512, 512, 0.0, 64)),
        ('pieces', ('cpu', 'float32', 512, 16384, 0.0, 64)),
        ('pieces', ('cpu', 'bfloat16', 512, 16384, 0.0, 64)),
        ('pieces', ('tpu', 'bfloat16', 512, 16384, 0.0, 64)),
        ('pieces', ('gpu', 'float32', 512, 16384, 0.0, 64)),
        ('pieces', ('gpu', 'bfloat16', 512, 16384, 0.1, 64)),
        ('pieces', ('gpu', 'bfloat16', 512, 16384, 0.0, 60)),
        ('pieces', ('gpu', 'bfloat16', 512, 16384, 0.0, 256)),
        ('cudnn', ('gpu', 'bfloat16', 512, 16384, 0.0, 64)),
    ),
)
def test_the_form_depends_on_shape_dtype_and_platform(want, arguments):
  assert long_attention.choose(*arguments) == want


def make_attention(dtype=jnp.float32):
  module = attention.Attention(4, 8, 32, 0.1, dtype)
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(2, 6, 32)), dtype)
  states = jnp.asarray(rng.normal(size=(2, 37, 32)), dtype)
  mask = jnp.asarray(np.arange(37) < np.array([[37], [0]]))

  def attend(self, x, states):
    return self.cross(x, *self.keys_values(states), mask)

  variables = module.init(jax.random.key(0), x, states, method=attend)
  return module, variables, x, states, mask


def test_long_cross_attention_matches_the_short_one(monkeypatch):
  module, variables, x, states, mask = make_attention()

  def run(variables, x, states, **keys):
    def attend(self, x, states):
      return self.cross(x, *self.keys_values(states), mask, **keys)

    rngs = {'dropout': jax.random.key(1)}
    return (
        module.apply(variables, x, states, method=attend, rngs=rngs) ** 2
    ).sum()

  grad = lambda: jax.jit(jax.grad(run, (0, 1, 2)))  # traced anew
  want = grad()(variables, x, states)
  random = run(variables, x, states, deterministic=False)
  monkeypatch.setattr(long_attention, 'LONG', 1)
  calls = []
  in_pieces = long_attention.in_pieces
  monkeypatch.setattr(
      long_attention,
      'in_pieces',
      lambda *args: calls.append(args) or in_pieces(*args, piece=10),
  )
  assert_same(grad()(variables, x, states), want, atol=1e-5, rtol=1e-4)
  assert len(calls) == 1
  # Different dropout masks, from the same distribution.
  other = run(variables, x, states, deterministic=False)
  assert calls[1][4] == 0.1
  without = run(variables, x, states)
  assert abs(other - without) > 1e-3 and abs(random - without) > 1e-3


@pytest.mark.parametrize(
    'dtype,atol', ((jnp.float32, 2e-5), (jnp.bfloat16, 0.06))
)
@pytest.mark.parametrize('piece', (1, 10, 1000))
def test_absorbed_matches_the_plain_form(monkeypatch, piece, dtype, atol):
  """In pieces and at once; the second document is only padding."""
  monkeypatch.setattr(long_attention, 'step_piece', lambda *_: piece)
  module, variables, x, states, mask = make_attention(dtype)

  def ordinary(self, x, states):
    return self.cross(x, *self.keys_values(states), mask)

  want = module.apply(variables, x, states, method=ordinary)
  got = module.apply(variables, x, states, mask, method='absorbed')
  assert got.dtype == dtype
  np.testing.assert_allclose(
      np.float32(got),
      np.float32(want),
      rtol=0,
      atol=atol * np.abs(np.float32(want)).max(),
  )
