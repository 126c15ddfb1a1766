"""BART: all forms match the plain one; test_golden_bart.py: golden arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.hugging_face import names as names_lib
from locost_jax.models import bart_layers
from locost_jax.models import decoder_layers
from locost_jax.models import flops
from locost_jax.models import parameters
from locost_jax.models import stack
from locost_jax.ops import long_attention
from locost_jax.ops import tokenwise
from locost_jax.summarizing import batching

SMALL = dict(
    name='bart',
    vocab_size=60,
    d_model=32,
    d_ff=48,
    decoder_d_ff=56,
    num_heads=4,
    num_layers=2,
    num_decoder_layers=2,
    feed_forward='gelu',
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    activation_dropout_rate=0.0,
    max_positions=40,
    scale_embedding=True,
    pad_id=1,
)

TABLE = names_lib.table({'name': 'bart'})


def tokens(seed, *shape):
  return np.random.default_rng(seed).integers(3, 60, shape)


def documents(batch=2, length=13):
  """Returns token ids of ragged length; the first document fills its row."""
  inputs = tokens(5, batch, length)
  kept = np.linspace(length, 2, batch).astype(int)
  return np.where(np.arange(length) < kept[:, None], inputs, 1)


def moved_params(config, scale):
  """Returns new parameters plus noise, so that none has a special value."""
  model = models.build(config)
  params = jax.jit(model.init)(
      jax.random.key(0), tokens(0, 1, 4), tokens(1, 1, 4)
  )
  rng = np.random.default_rng(3)
  return jax.tree.map(
      lambda x: x + scale * rng.normal(size=x.shape).astype(x.dtype), params
  )


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
  for length in (14, 40):
    padded = np.pad(inputs, ((0, 0), (0, length - 13)), constant_values=1)
    np.testing.assert_allclose(
        apply(params, padded, targets), want, rtol=0, atol=2e-5
    )
  garbage = np.concatenate([inputs, tokens(7, 2, 5)], 1)
  mask = np.broadcast_to(np.arange(18) < 13, (2, 18))
  got = apply(params, garbage, targets, mask)
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
  unmasked = apply(params, garbage, targets)
  assert np.abs(unmasked - want).max() > 1e-2  # negative control


def test_decoder_is_causal():
  _, params, apply = make()
  inputs, targets = tokens(5, 1, 9), tokens(6, 1, 8)
  changed = targets.copy()
  changed[0, 5:] = 3 + (changed[0, 5:] - 2) % 50
  a, b = apply(params, inputs, targets), apply(params, inputs, changed)
  np.testing.assert_array_equal(a[:, :5], b[:, :5])
  assert np.abs(a - b)[:, 5:].max() > 1e-3


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
  shared, per_row = model.apply(params, memory, 9, method='init_cache')
  assert set(shared) == {'states' if absorbed else 'cross', 'mask'}
  per_row = jax.tree.map(lambda x: jnp.repeat(x, beams, 0), per_row)
  step = jax.jit(functools.partial(model.apply, method='step'))
  for t in range(7):
    got, per_row = step(params, targets[:, t], shared, per_row)
    np.testing.assert_allclose(got, want[:, t], rtol=0, atol=2e-5)


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


def test_auto_uses_pieces_if_activations_are_large(monkeypatch):
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 8)
  calls = []
  method = tokenwise.method
  monkeypatch.setattr(
      tokenwise,
      'method',
      lambda *args, **keys: calls.append(0) or method(*args, **keys),
  )
  for remat, most, expected in (
      ('auto', 1 << 30, 0),
      ('auto', 0, 1),
      ('none', 0, 0),
      ('full', 0, 1),
  ):
    monkeypatch.setattr(stack, 'AUTO_BYTES', most)
    calls.clear()
    model, params, _ = make(remat=remat)
    jax.eval_shape(functools.partial(loss, model), params)
    assert bool(calls) == expected


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


@pytest.mark.parametrize(
    'rate',
    ('dropout_rate', 'attention_dropout_rate', 'activation_dropout_rate'),
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
    apply = functools.partial(model.apply, {'params': params})
    memory = apply(inputs, method='encode')
    segments = np.broadcast_to(np.arange(13) // 3, (2, 13))
    got = np.asarray(apply(memory, targets, segments, 6, method='cross_mass'))

    def before_cross(self, tokens):
      return self.decoder.embed(self.vectors(tokens), np.arange(6))

    h = np.asarray(apply(targets, method=before_cross), np.float64)
  p = jax.tree.map(
      lambda x: np.asarray(x[0], np.float64), params['decoder']['layers']
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
      np.asarray(memory['states'], np.float64),
      'cross',
      np.asarray(memory['mask'])[:, None, None],
  )
  want = np.stack(
      [w.mean(1)[..., segments[0] == s].sum(-1) for s in range(6)], -1
  )
  np.testing.assert_allclose(got, want, rtol=0, atol=atol)
  np.testing.assert_allclose(got.sum(-1), 1, rtol=0, atol=1e-5)


def test_traced_layers_match_the_decoder():
  """The method `traced` of a layer gives the output of a plain call."""
  model, params, apply = make()
  memory = apply(params, documents(), method='encode')
  layer = decoder_layers.DecoderLayer(
      model.config, model.dtype, bart_layers.PARTS
  )
  own = {
      'params': jax.tree.map(
          lambda p: p[0], params['params']['decoder']['layers']
      )
  }
  h = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 32)), jnp.float32)
  read = memory['states'], memory['mask']
  causal = np.tri(6, dtype=bool)
  want, _ = layer.apply(own, h, *read, causal, None, True)
  segments = np.broadcast_to(np.arange(13) // 3, (2, 13))
  (got, mass), _ = layer.apply(
      own,
      (h, jnp.zeros((2, 6, 5))),
      *read,
      segments,
      causal,
      None,
      5,
      method='traced',
  )
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
  np.testing.assert_allclose(mass.sum(-1), 1, rtol=0, atol=1e-5)


def test_bfloat16_is_close():
  model, params, apply = make('bfloat16')
  inputs, targets = documents(), tokens(6, 2, 6)
  got = apply(params, inputs, targets)
  assert got.dtype == jnp.float32
  want = make()[2](params, inputs, targets)
  assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
  jaxpr = str(jax.make_jaxpr(model.apply)(params, inputs, targets)).splitlines()
  exps = [line for line in jaxpr if '= exp ' in line]
  assert exps and not any('bf16' in line for line in exps)
  assert any('bf16' in line for line in jaxpr if 'dot_general' in line)


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
  assert batching.padded_length(model.config, 33) == 40
  assert batching.padded_length(model.config, 13) == 16


@pytest.mark.parametrize(
    'change,message',
    (
        ({'feed_forward': 'relu'}, "model.feed_forward='relu' must be 'gelu'"),
        ({'num_heads': 5}, 'model.d_model=32 must be divisible by'),
        ({'pad_id': 60}, 'model.pad_id=60 must be below model.vocab_size=60'),
        ({'max_positions': 0}, 'model.max_positions=0 must be at least 1'),
        ({'d_kv': 8}, 'model.d_kv is not a key of bart'),
    ),
)
def test_bad_configs_are_named(change, message):
  with pytest.raises(InputError, match=message):
    models.build(SMALL | change)
  assert models.build(SMALL | {'pad_id': 0}).config.pad_id == 0


def test_published_sizes():
  """facebook/bart-base, and bart-large-cnn, whose model card says 406M."""
  sizes = dict(
      vocab_size=50265,
      d_model=768,
      d_ff=3072,
      decoder_d_ff=3072,
      num_heads=12,
      num_layers=6,
      num_decoder_layers=6,
      max_positions=1024,
  )
  large = dict(
      vocab_size=50264,
      d_model=1024,
      d_ff=4096,
      decoder_d_ff=4096,
      num_heads=16,
      num_layers=12,
      num_decoder_layers=12,
  )
  for change, count in ((sizes, 139_420_416), (sizes | large, 406_290_432)):
    params = parameters.abstract_params(models.build(SMALL | change))
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert total - change['vocab_size'] == count  # no logits_bias


def test_every_parameter_has_a_row_that_fits():
  shapes = parameters.flatten(parameters.abstract_params(models.build(SMALL)))
  assert set(shapes) == {path for path, _, _ in TABLE.rows}
  for path, leaf in shapes.items():
    spec = sharding.spec_of(path)
    assert len(spec) in (0, len(leaf.shape))
    if path.endswith('kernel'):
      assert sorted(filter(None, spec)) == ['fsdp', 'tensor']
    assert ('fsdp' in spec) == path.endswith(('kernel', 'embedding'))


def test_the_formula_of_a_step_matches_the_trace():
  """Counts every matrix product."""
  B, L, T = 3, 24, 16
  model = models.build(SMALL | {'num_decoder_layers': 3})

  def loss(params, inputs, targets):
    return model.apply({'params': params}, inputs, targets).sum()

  shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
  jaxpr = jax.make_jaxpr(jax.grad(loss))(
      parameters.abstract_params(model), shape((B, L)), shape((B, T))
  )

  def products(jaxpr, repeats=1):
    total = 0
    for equation in jaxpr.eqns:
      if equation.primitive.name == 'dot_general':
        (contracted, _), _ = equation.params['dimension_numbers']
        inner = np.prod([equation.invars[0].aval.shape[i] for i in contracted])
        total += repeats * 2 * inner * equation.outvars[0].aval.size
      inside = repeats * equation.params.get('length', 1)
      for value in equation.params.values():
        value = getattr(value, 'jaxpr', value)
        if hasattr(value, 'eqns'):
          total += products(value, inside)
    return total

  assert flops.of_step(model, (B, L), (B, T)) == products(jaxpr.jaxpr)


def test_heads_of_the_decoder():
  """4 heads encode and 2 decode: stacks match models with as many heads."""
  models_ = {
      heads: models.build(SMALL | heads_of)
      for heads, heads_of in {
          4: dict(),
          2: dict(num_heads=2),
          (4, 2): dict(num_decoder_heads=2),
      }.items()
  }
  params = small_params()
  run = lambda heads, *args, method: models_[heads].apply(
      params, *args, method=method
  )
  inputs, targets = documents(), tokens(7, 2, 5)
  expected = run(2, run(4, inputs, method='encode'), targets, method='decode')
  memory = run((4, 2), inputs, method='encode')
  found = run((4, 2), memory, targets, method='decode')
  np.testing.assert_allclose(found, expected, 0, 1e-6)
  other = run(4, run(4, inputs, method='encode'), targets, method='decode')
  assert abs(found - other).max() > 1e-3  # negative control
  shared, per_row = run((4, 2), memory, 5, method='init_cache')
  for i in range(5):
    logits, per_row = run((4, 2), targets[:, i], shared, per_row, method='step')
    np.testing.assert_allclose(logits, expected[:, i], 0, 1e-5)


def test_heads_that_do_not_divide_are_refused():
  with pytest.raises(InputError, match='d_model=32 .*num_decoder_heads=3'):
    models.build(SMALL | dict(num_decoder_heads=3))
