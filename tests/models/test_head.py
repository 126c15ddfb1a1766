"""Logits of bfloat16 models are bfloat16 products summed in float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax import models
from locost_jax.models import bart
from locost_jax.training import losses
from tests import products
from tests.models import small

B, T, D, V = 2, 300, 48, 1000  # a D whose square root is not a power of two


def make(name, dtype='bfloat16', **changes):
  config = getattr(default, name)()
  sizes = dict(d_ff=32, d_kv=8, num_heads=4, decoder_heads=4, d_state=4)
  config.update({key: sizes[key] for key in sizes if key in config})
  config.update(vocab_size=V, d_model=D, num_layers=1, num_decoder_layers=1)
  config.update(changes)
  return models.build(config, dtype=dtype)


def draw_states():
  return jnp.asarray(
      np.random.default_rng(1).normal(size=(B, T, D)), jnp.bfloat16
  )


def exact_head(model, params, states):
  """Computes the head in float64 from a table rounded to bfloat16."""
  wide = lambda x: np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)
  states, c = wide(states), model.config
  if 'kernel' in params.get('logits', {}):
    return states @ wide(params['logits']['kernel'])
  logits = states @ wide(params['token_embedding']['embedding']).T
  if isinstance(c, bart.BartConfig):
    return logits + np.float64(params.get('logits_bias', 0))
  return logits * c.d_model**-0.5


CASES = [*((name, {}) for name in models.MODELS)]
CASES.append(('t5', dict(tie_embeddings=False)))
CORE = 'locost', 'bart'  # the others have one of these heads
in_cases = products.parametrize(
    'name, changes', CASES, [('locost', {}), ('bart', {}), CASES[-1]]
)


@in_cases
def test_logits_are_float32_products(name, changes):
  """There are no ties; the argmax and the loss match float64."""
  model = make(name, **changes)
  params, states = small.drawn_params(model, 0.3), draw_states()
  head = jax.jit(functools.partial(model.apply, method='head'))
  logits = head({'params': params}, states)
  exact = exact_head(model, params, states)
  assert logits.dtype == jnp.float32
  np.testing.assert_allclose(logits, exact, rtol=0, atol=2e-6 * exact.max())
  np.testing.assert_array_equal(logits.argmax(-1), exact.argmax(-1))
  two = np.sort(logits, -1)[..., -2:]
  assert (two[..., 0] < two[..., 1]).all()

  targets = np.random.default_rng(2).integers(0, V, (B, T))
  weights = np.ones((B, T), np.float32)
  loss, hits, weight = jax.jit(
      lambda params: losses.of_states(
          functools.partial(head, {'params': params}),
          states,
          targets,
          weights,
      )
  )(params)
  at_targets = np.take_along_axis(exact, targets[..., None], -1)[..., 0]
  want = np.log(np.exp(exact).sum(-1)) - at_targets
  np.testing.assert_allclose(loss / weight, want.mean(), rtol=0, atol=2e-6)
  assert hits == (exact.argmax(-1) == targets).sum()


@products.parametrize('name', models.MODELS, CORE)
def test_logits_of_a_step_are_not_rounded(name):
  """A decoding step uses the same head."""
  model = make(name)
  params = {'params': small.drawn_params(model, 0.3)}
  encode = jax.jit(functools.partial(model.apply, method='encode'))
  memory = encode(params, np.ones((B, 8), np.int32))
  _, logits = small.in_steps(model, params, memory, np.full((B, 1), 2))
  assert logits.dtype == jnp.float32
  is_rounded = logits == logits.astype(jnp.bfloat16).astype(np.float32)
  # A few float32 numbers happen to be bfloat16 numbers.
  assert is_rounded.mean() < 0.01


@in_cases
def test_gradients_of_the_head(name, changes):
  """Match those of the formula in float32 up to bfloat16 rounding."""
  model = make(name, **changes)
  params, states = small.drawn_params(model, 0.3), draw_states()
  g = np.random.default_rng(3).normal(size=(B, T, V)).astype(np.float32)

  def total(params, states, model):
    logits = model.apply({'params': params}, states, method='head')
    return jnp.sum(logits * g)

  gradients = jax.jit(jax.grad(total, (0, 1)), static_argnums=2)
  got = gradients(params, states, model)
  assert got[1].dtype == jnp.bfloat16
  wide = states.astype(jnp.float32)
  want = gradients(params, wide, make(name, 'float32', **changes))
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    a, b = np.asarray(a, np.float32), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=0.01 * abs(b).max() + 1e-9)
