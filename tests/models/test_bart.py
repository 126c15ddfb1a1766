"""BART: all forms match the plain one; test_golden.py: golden arrays."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.models import bart
from locost_jax.models import decoder_layers
from locost_jax.summarizing import reading
from tests.models import golden
from tests.models import small
from tests.models.small import documents
from tests.models.small import moved_params
from tests.models.small import tokens

SMALL = small.BART


def make(dtype='float32'):
  """Returns (model, parameters, jitted apply), with one layer per stack."""
  config = SMALL | dict(num_layers=1, num_decoder_layers=1)
  model = models.build(config, dtype)
  apply = jax.jit(model.apply, static_argnames='method')
  return model, moved_params(config, 0.1), apply


@pytest.mark.parametrize('dtype,atol', (('float32', 2e-6), ('float64', 1e-12)))
def test_cross_mass_matches_plain_weights(dtype, atol):
  """Compares with the softmax of one decoder layer's cross-attention."""
  inputs, targets = documents(), tokens(6, 2, 6)
  segments = np.broadcast_to(np.arange(13) // 3, (2, 13))

  def before_layers(self, tokens):
    return self.decoder.embed(self.vectors(tokens), np.arange(6))

  def queries_and_keys(layer, h, states):
    own, cross = layer.self_attention, layer.cross_attention
    attend = lambda x: own(x, *own.keys_values(x), np.tri(6, dtype=bool))
    h = layer.branch(h, layer.self_attention_norm, attend)
    return cross.queries(h), cross.keys_values(states)[0]

  with jax.enable_x64(dtype == 'float64'):
    model, params, _ = make(dtype)
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), params['params'])
    layer = decoder_layers.DecoderLayer(model.config, model.dtype, bart.PARTS)

    @jax.jit
    def run(params):
      apply = functools.partial(model.apply, {'params': params})
      memory = apply(inputs, method='encode')
      mass = apply(memory, targets, segments, 6, method='cross_mass')
      own = jax.tree.map(lambda x: x[0], params['decoder']['layers'])
      h = apply(targets, method=before_layers)
      return (memory['mask'], mass) + layer.apply(
          {'params': own}, h, memory['states'], method=queries_and_keys
      )

    mask, got, queries, keys = jax.tree.map(np.asarray, run(params))
  scores = np.einsum('bthk,bshk->bhts', np.float64(queries), keys)
  e = np.where(mask[:, None, None], np.exp(scores), 0)
  w = (e / e.sum(-1, keepdims=True)).mean(1)
  want = np.stack([w[..., segments[0] == s].sum(-1) for s in range(6)], -1)
  np.testing.assert_allclose(got, want, rtol=0, atol=atol)
  np.testing.assert_allclose(got.sum(-1), 1, rtol=0, atol=1e-5)


def test_bfloat16_is_close():
  model, params, _ = make('bfloat16')
  given = params, documents(), tokens(6, 2, 6)
  small.check_bfloat16(model, make()[2], given, ['= exp '])


def test_more_tokens_than_positions_are_refused():
  model, params, apply = make()
  memory = apply(params, documents(), method='encode')
  ends = "this model's positions end at max_positions=40"
  with pytest.raises(InputError, match=f'inputs have 41 tokens, {ends}'):
    apply(params, tokens(5, 1, 41), tokens(6, 1, 4))
  with pytest.raises(InputError, match=f'targets have 50 tokens, {ends}'):
    apply(params, tokens(5, 1, 9), tokens(6, 1, 50))
  with pytest.raises(InputError, match=f'targets have 41 tokens, {ends}'):
    model.apply(params, memory, 41, method='init_cache')
  # 33 would be padded to 48.
  assert reading.padded_length(model.config, 33) == 40
  assert reading.padded_length(model.config, 13) == 16


@pytest.mark.products
def test_heads_of_the_decoder():
  """4 heads encode and 2 decode: stacks match models with as many heads."""
  params, inputs, targets = (
      moved_params(SMALL, 0.1),
      documents(),
      tokens(7, 2, 5),
  )
  four, two, both = (
      models.build(SMALL | keys)
      for keys in ({}, dict(num_heads=2), dict(num_decoder_heads=2))
  )

  def decoded(encoder, model):
    @jax.jit
    def run(params):
      memory = encoder.apply(params, inputs, method='encode')
      return memory, model.apply(params, memory, targets, method='decode')

    return run(params)

  _, expected = decoded(four, two)
  memory, found = decoded(both, both)
  np.testing.assert_allclose(found, expected, 0, 1e-6)
  _, other = decoded(four, four)
  assert abs(found - other).max() > 1e-3  # negative control
  _, logits = small.in_steps(both, params, memory, targets)
  np.testing.assert_allclose(logits, expected, 0, 1e-5)


def released_config():
  return json.loads((golden.DIRECTORY / 'bart' / 'config.json').read_text())


@pytest.mark.parametrize(
    'change,message',
    (
        ({'activation_function': 'tanh'}, 'activation_function="tanh"'),
        (
            {'normalize_before': True},
            "normalize_before=True: expected False for model_type='bart'",
        ),
        ({'tie_word_embeddings': 'no'}, 'tie_word_embeddings="no"'),
        ({'d_model': None}, "lacks the key 'd_model'"),
    ),
)
def test_other_kinds_of_bart_are_refused(change, message):
  config = released_config()
  with pytest.raises(InputError, match=message):
    configs.from_released(config | change)


def test_progress_of_a_model_that_encodes_in_one_program():
  seen = []
  io = golden.arrays('bart')
  got = golden.load('bart').generate(
      io['input_ids'], max_length=4, progress=lambda *call: seen.append(call)
  )
  np.testing.assert_array_equal(got, io['greedy_tokens'][:, :4])
  assert seen == [
      ('encoding', 0, 2),
      ('encoding', 2, 2),
      ('decoding', 0, 4),
      ('decoding', 4, 4),
  ]
