"""LOCOST as a whole: size, variants, masks, caches, precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.config import model_keys
from locost_jax.config import schema
from locost_jax.data import pages
from locost_jax.errors import InputError
from tests import products
from tests.models import small
from tests.models.small import tokens


def make(config, **keys):
  """Returns a model, parameters without special values, and its apply."""
  model = models.build(config, **keys)
  apply = jax.jit(model.apply, static_argnames=('method', 'deterministic'))
  return model, small.moved_params(config, 0.1, True), apply


@products.parametrize(
    'change',
    (
        {},
        {'gating': False},
        {'variant': 'paper', 'bidirectional': False},
        {'variant': 'paper'},
        {'bidirectional': False},
        {'feed_forward': 'relu', 'tie_embeddings': False},
    ),
    ({}, {'gating': False}, {'variant': 'paper', 'bidirectional': False}),
)
def test_mixer_matches_the_plain_sum(small_model_config, change):
  """Both variants of the mixer match loops over tokens (figure 2a)."""
  small_model_config.update(change)
  c = small_model_config
  model = models.build(c)
  own = small.drawn_params(model, 0.3)['encoder']['layers']['mixer']
  own = jax.tree.map(lambda x: x[0], own)
  p = jax.tree.map(lambda x: np.asarray(x, np.float64), own)
  rng = np.random.default_rng(0)
  x, mask = rng.normal(size=(2, 11, 32)), np.ones((2, 11), bool)
  mask[1, 7:] = False
  s = p['ssm']
  lam = -np.exp(s['log_A_real']) + 1j * s['A_imag']
  z = np.exp(np.exp(s['log_dt'])[..., None] * lam)
  B = s['B'][..., 0] + 1j * s['B'][..., 1]
  C = s['C'][..., 0] + 1j * s['C'][..., 1]
  paper = c.variant == 'paper'
  assert len(z) == (2 if paper and c.bidirectional else 1)
  w = C * B * (1 if paper else (z - 1) / lam)
  K = 2 * (w[..., None] * z[..., None] ** np.arange(11)).sum(2).real
  u = (x @ p['key']['kernel'] + p['key']['bias']) * mask[..., None]
  y = s['D'] * u
  for t in range(11):
    for r in range(11):
      if r < t or r == t and not (paper and c.bidirectional):
        y[:, t] += K[0, :, t - r] * u[:, r]
      if r >= t and c.bidirectional:
        y[:, t] += K[1, :, r - t] * u[:, r]
  if c.gating:
    y = y * (x @ p['gate']['kernel'] + p['gate']['bias'])
  want = y @ p['output']['kernel'] + p['output']['bias']
  mixer = model.make_mixer(model.config, model.dtype)
  got = jax.jit(mixer.apply)({'params': own}, jnp.asarray(x, jnp.float32), mask)
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * abs(want).max())


@pytest.mark.parametrize('name', models.MODELS)
def test_only_keys_that_came_later_may_be_missing(name):
  config = dict(schema.make_model(name), vocab_size=60)
  for key in config.keys() - {'name'}:
    rest = {other: config[other] for other in config.keys() - {key}}
    if model_keys.MODELS[name][key].is_needed:
      with pytest.raises(InputError, match=f'^model.{key} is missing: {name}'):
        models.make_config(rest)
    else:
      assert key not in ('vocab_size', 'num_heads', 'pad_id', 'd_state')
      assert getattr(models.make_config(rest), key) == config[key]


def test_bfloat16_keeps_float32_where_it_must(small_model_config):
  model, params, _ = make(small_model_config, dtype='bfloat16')
  _, _, exact = make(small_model_config)
  given = params, tokens(5, 2, 13), tokens(6, 2, 6)
  small.check_bfloat16(model, exact, given, [' fft[', '= exp '])


@pytest.mark.parametrize(
    'name,change,message',
    (
        ('locost', {'name': 'bert'}, "model.name='bert' must be one of 'locos"),
        ('locost', {'d_modle': 3}, 'did you mean model.d_model'),
        (
            'locost',
            {'variant': 'paper', 'convolution': 'release'},
            'does not exist with',
        ),
        (
            'locost',
            {'dt_min': 0.2},
            'model.dt_min=0.2: expected 0 < dt_min <= model.dt_max=0.1',
        ),
        (
            'locost',
            {'variant': 'paper', 'dt_max': 1.0},
            r'dt is uniform in \(0, 1\]',
        ),
        ('t5', {'d_state': 1}, 'model.d_state is not a key of t5'),
        ('bart', {'feed_forward': 'tanh'}, "='tanh': expected .* 'gelu'"),
        ('bart', {'sinusoidal': True}, 'needs model.norms_first=True'),
        ('bart', {'num_heads': 5}, 'model.d_model=768 must be divisible by'),
        ('bart', {'num_decoder_heads': 5}, 'd_model=768 .*num_decoder_heads=5'),
        ('bart', {'pad_id': 60}, 'pad_id=60 must be below model.vocab_size=60'),
        (
            'led',
            {'attention_window': [4, 8, 8]},
            'expected one number, or model.num_layers=6 of them',
        ),
        ('led', {'attention_window': 5}, 'expected an even number of tok'),
        ('led', {'attention_window': [4, 0]}, 'expected an even number of'),
        ('pegasus_x', {'block_size': 5}, '=5: .*an even number of tokens'),
        ('pegasus_x', {'sinusoidal': False}, '=False: expected True'),
        (
            'bigbird_pegasus',
            {'sinusoidal': True},
            'sinusoidal=True, .*: expected False and True',
        ),
        (
            'bigbird_pegasus',
            {'norms_first': False},
            'norms_first=False: expected False and True',
        ),
        (
            'bigbird_pegasus',
            {'attention': 'full'},
            "attention='full': expected .*original_full",
        ),
    ),
)
def test_bad_configs_are_named(name, change, message):
  config = dict(getattr(default, name)(), vocab_size=60)
  assert models.build(config)
  with pytest.raises(InputError, match=message):
    models.build(config | change)


def test_which_models_read_pages():
  """The data pipeline has their page forms."""
  forms = {'pagesum': set(pages.LOCALITIES), 'simcas': set(pages.CHUNKS)}
  for name in models.MODELS:
    config = getattr(default, name)()
    found = models.make_config(dict(config, vocab_size=60)).page_forms
    assert set(found) == forms.get(name, set()), name


def test_float16_is_refused(small_model_config):
  with pytest.raises(InputError, match="float16.*use 'bfloat16'"):
    models.build(small_model_config, dtype='float16')
