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
from locost_jax.models import parameters
from locost_jax.ops import long_attention
from locost_jax.ops import tokenwise
from locost_jax.summarizing import reading
from tests import products
from tests.models import golden
from tests.models import small
from tests.models.small import documents
from tests.models.small import moved_params
from tests.models.small import tokens

SMALL = small.BART


@functools.lru_cache
def small_params():
  return moved_params(SMALL, 0.1)


def first_layers(params):
  """Returns the parameters of a model with one layer in each stack."""
  own = dict(params['params'])
  for side in ('encoder', 'decoder'):
    layers = jax.tree.map(lambda x: x[:1], own[side]['layers'])
    own[side] = own[side] | {'layers': layers}
  return {'params': own}


def make(dtype='float32', remat='auto', **changes):
  """Returns (model, parameters, jitted apply), with one layer per stack."""
  model = models.build(
      SMALL | dict(num_layers=1, num_decoder_layers=1) | changes, dtype, remat
  )
  return (
      model,
      first_layers(small_params()),
      jax.jit(model.apply, static_argnames=('method', 'deterministic')),
  )


def loss(model, params, **keys):
  """Returns the mean squared logits of ragged documents."""
  logits = model.apply(params, documents(), tokens(6, 2, 6), **keys)
  return jnp.mean(logits**2)


def gradients(model, params, **keys):
  """Returns the gradients of `loss` by path."""
  grad = jax.jit(jax.grad(lambda params: loss(model, params, **keys)))
  return parameters.flatten(grad(params))


def assert_close(got, want, bound):
  """Asserts that leaves differ by at most bound times their largest value."""
  jax.tree.map(
      lambda a, b: np.testing.assert_allclose(
          a, b, rtol=0, atol=bound * np.abs(b).max() + 1e-7
      ),
      got,
      want,
  )


def test_padding_changes_nothing():
  _, params, apply = make()
  inputs, targets = tokens(5, 2, 13), tokens(6, 2, 6)
  want = apply(params, inputs, targets)
  padded = np.pad(inputs, ((0, 0), (0, 40 - 13)), constant_values=1)
  got = apply(params, padded, targets)
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
  garbage = np.concatenate([inputs, tokens(7, 2, 5)], 1)
  mask = np.broadcast_to(np.arange(18) < 13, (2, 18))
  got = apply(params, garbage, targets, mask)
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
  unmasked = apply(params, garbage, targets)
  assert np.abs(unmasked - want).max() > 1e-2  # negative control


@pytest.mark.parametrize(
    'length,beams,absorbed', ((13, 1, False), (7, 3, False), (40, 3, True))
)
def test_cached_steps_match_the_whole_decoder(
    monkeypatch, length, beams, absorbed
):
  if absorbed:
    monkeypatch.setattr(long_attention, 'ABSORBED', 1)
  model, params = models.build(SMALL), small_params()
  apply = jax.jit(model.apply, static_argnames='method')
  inputs, targets = documents(2, length), tokens(6, 2 * beams, 7)
  want = apply(params, np.repeat(inputs, beams, 0), targets)
  memory = apply(params, inputs, method='encode')
  shared, got = small.in_steps(model, params, memory, targets, beams)
  assert set(shared) == {'states' if absorbed else 'cross', 'mask'}
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_long_forms_match_the_plain_ones(monkeypatch):
  """Keys, causal attention and feed-forwards in pieces."""
  model, params, _ = make(remat='none')
  want = gradients(model, params)
  monkeypatch.setattr(long_attention, 'LONG', 1)
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 8)
  calls = []
  in_pieces = long_attention.in_pieces
  monkeypatch.setattr(
      long_attention,
      'in_pieces',
      lambda *args: calls.append(args[0].shape) or in_pieces(*args, piece=5),
  )
  method = tokenwise.method
  monkeypatch.setattr(
      tokenwise,
      'method',
      lambda module, *args, **keys: calls.append(type(module).__name__)
      or method(module, *args, **keys),
  )
  model, _, _ = make(remat='pieces')
  assert_close(gradients(model, params), want, 2e-4)
  assert set(calls) == {
      (2, 13, 4, 8),
      (2, 6, 4, 8),
      'EncoderLayer',
      'DecoderLayer',
  }


@pytest.mark.slow
def test_remat_changes_no_gradient(monkeypatch):
  """Includes dropout; each piece draws its own mask."""

  def run(remat):
    model, params, _ = make(
        remat=remat,
        dropout_rate=0.1,
        attention_dropout_rate=0.1,
        activation_dropout_rate=0.1,
    )
    return gradients(
        model, params, deterministic=False, rngs={'dropout': jax.random.key(1)}
    )

  plain = run('none')
  assert_close(run('full'), plain, 2e-4)
  monkeypatch.setattr(long_attention, 'LONG', 1)
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 8)
  drawn = run('pieces')
  assert_close(run('full'), drawn, 2e-4)
  path = 'params/encoder/layers/feed_forward/wi/kernel'
  assert np.abs(drawn[path] - plain[path]).max() > (
      0.01 * np.abs(plain[path]).max()
  )


@products.parametrize(
    'rate',
    ('dropout_rate', 'attention_dropout_rate', 'activation_dropout_rate'),
    ('attention_dropout_rate',),
)
def test_each_dropout_rate_acts_only_in_training(rate):
  _, params, apply = make(**{rate: 0.5})
  inputs, targets = documents(), tokens(6, 2, 6)
  want = apply(params, inputs, targets)

  def run(seed):
    return apply(
        params,
        inputs,
        targets,
        deterministic=False,
        rngs={'dropout': jax.random.key(seed)},
    )

  assert np.abs(run(0) - want).max() > 1e-2
  assert np.abs(run(0) - run(1)).max() > 1e-2


@pytest.mark.parametrize('dtype,atol', (('float32', 2e-6), ('float64', 1e-12)))
def test_cross_mass_matches_plain_weights(dtype, atol):
  """Compares with the softmax of one decoder layer's cross-attention."""
  with jax.enable_x64(dtype == 'float64'):
    model, params, _ = make(dtype)
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), params['params'])
    inputs, targets = documents(), tokens(6, 2, 6)
    segments = np.broadcast_to(np.arange(13) // 3, (2, 13))

    def before_cross(self, tokens):
      return self.decoder.embed(self.vectors(tokens), np.arange(6))

    @jax.jit
    def run(params):
      apply = functools.partial(model.apply, {'params': params})
      memory = apply(inputs, method='encode')
      mass = apply(memory, targets, segments, 6, method='cross_mass')
      return memory, mass, apply(targets, method=before_cross)

    memory, got, h = jax.tree.map(np.asarray, run(params))
  p = jax.tree.map(
      lambda x: np.asarray(x, np.float64)[0], params['decoder']['layers']
  )

  def project(x, kind, part):
    own = p[f'{kind}_attention'][part]
    return x @ own['kernel'] + own['bias']

  def heads(x):
    return x.reshape(*x.shape[:2], 4, 8)

  def weights(x, states, kind, mask):
    scores = np.einsum(
        'bthk,bshk->bhts',
        heads(project(x, kind, 'query')),
        heads(project(states, kind, 'key')),
    ) / np.sqrt(8)
    e = np.where(mask, np.exp(scores), 0)
    return e / e.sum(-1, keepdims=True)

  causal = np.tri(6, dtype=bool)
  w = weights(h, h, 'self', causal)
  x = np.einsum('bhts,bshk->bthk', w, heads(project(h, 'self', 'value')))
  h = h + project(x.reshape(h.shape), 'self', 'output')
  h = h - h.mean(-1, keepdims=True)
  norm = p['self_attention_norm']
  h = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5)
  h = h * norm['scale'] + norm['bias']
  w = weights(
      h,
      memory['states'],
      'cross',
      memory['mask'][:, None, None],
  )
  want = np.stack(
      [w.mean(1)[..., segments[0] == s].sum(-1) for s in range(6)], -1
  )
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
  params, inputs, targets = small_params(), documents(), tokens(7, 2, 5)
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


def test_numbers_of_heads_of_both_stacks():
  config = released_config()
  mine = configs.from_released(config | {'decoder_attention_heads': 2})
  assert (mine['num_heads'], mine['num_decoder_heads']) == (4, 2)
  written = configs.to_released(mine)
  assert written['decoder_attention_heads'] == 2
  assert configs.from_released(written) == mine


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
