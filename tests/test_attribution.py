"""Where summaries come from: attention by passage, planted facts found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.models import attention
from locost_jax.models import attention_mass
from locost_jax.models import t5


def direct_mass(model, params, inputs, mask, targets_in, segments, P):
  """The same layer by layer, from weights that exist whole."""
  states = model.apply({'params': params}, inputs, mask,
                       method='encode')['states']
  h = params['token_embedding']['embedding'][targets_in]
  positions = np.arange(targets_in.shape[1])
  causal = positions[None] <= positions[:, None]
  bias = attention.RelativeBias(4, 32, 128, False, 1.0).apply(
      {'params': params['decoder']['relative_bias']}, positions, positions)

  def weights(layer, h):
    x = layer.self_attention_norm(h)
    x = layer.self_attention(x, *layer.self_attention.keys_values(x), causal,
                             bias)
    cross = layer.cross_attention
    queries = cross.split_heads(
        cross.query(layer.cross_attention_norm(h + x)))
    scores = jnp.einsum(
        'bthk,bshk->bhts', queries, cross.keys_values(states)[0])
    return jax.nn.softmax(jnp.where(mask[:, None, None], scores, -jnp.inf))

  total, depth = 0, model.config.num_decoder_layers
  for i in range(depth):
    layer = t5.DecoderLayer(model.config, jnp.float32)
    variables = {'params': jax.tree.map(
        lambda p: p[i], params['decoder']['layers'])}
    total += layer.apply(variables, h, method=weights).mean(1) / depth
    h, _ = layer.apply(variables, h, states, mask[:, None, None], causal, bias,
                       True)
  return np.einsum('bts,bsp->btp', total, np.eye(P)[segments])


@pytest.mark.parametrize('length, piece', [(37, 8), (64, 16), (50, 2048)])
def test_mass_equals_the_direct_sum(
    small_model_config, monkeypatch, length, piece):
  monkeypatch.setattr(attention_mass, '_KEYS', piece)
  model = models.build(small_model_config)
  generator = np.random.default_rng(0)
  inputs = generator.integers(3, 60, (2, length))
  targets_in = generator.integers(0, 60, (2, 11))
  mask = np.arange(length) < np.array([[length], [length - 9]])
  segments = np.sort(generator.integers(0, 7, (2, length)), axis=1)
  params = model.init(jax.random.key(0), inputs, targets_in)['params']
  params = jax.tree.map(lambda p: 2 * p, params)  # uneven weights
  memory = model.apply({'params': params}, inputs, mask, method='encode')
  mass = jax.jit(lambda *a: model.apply(
      {'params': params}, *a, 7, method='cross_mass'))(
          memory, targets_in, segments)
  expected = direct_mass(model, params, inputs, mask, targets_in, segments, 7)
  assert expected.std() > 0.05
  np.testing.assert_allclose(mass, expected, atol=2e-6)
  np.testing.assert_allclose(np.sum(mass, -1), 1, atol=2e-6)
