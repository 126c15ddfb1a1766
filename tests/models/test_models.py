"""LOCOST as a whole: size, variants, masks, caches, precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.data import pages
from locost_jax.errors import InputError
from locost_jax.models import attention
from locost_jax.ops import long_attention
from tests import products
from tests.models import small
from tests.models.small import tokens
from tests.ops.compiled import temporary_bytes


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


@products.few(
    'change',
    [{}],
    [{'bidirectional': False}, {'variant': 'paper'}],
    others=pytest.mark.slow,
)
def test_padding_and_buckets_change_nothing(small_model_config, change):
  small_model_config.update(change)
  _, params, apply = make(small_model_config)
  inputs, targets = tokens(5, 2, 13), tokens(6, 2, 6)
  want = apply(params, inputs, targets)
  for length in (16, 37):
    padded = np.pad(inputs, ((0, 0), (0, length - 13)))
    got = apply(params, padded, targets)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
  garbage = np.concatenate([inputs, tokens(7, 2, 5)], 1)
  mask = np.arange(18) < 13
  got = apply(params, garbage, targets, np.stack([mask, mask]))
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_the_release_convolution_depends_on_padding(small_model_config):
  """Negative control of the test above."""
  small_model_config.convolution = 'release'
  _, params, apply = make(small_model_config)
  inputs, targets = tokens(5, 2, 13), tokens(6, 2, 6)
  want = apply(params, inputs, targets)
  got = apply(params, np.pad(inputs, ((0, 0), (0, 3))), targets)
  assert np.abs(got - want).max() > 1e-2


@products.few(
    'tied, beams, absorbed',
    [(True, 3, False), (True, 3, True)],
    [(True, 1, False), (False, 1, False), (False, 3, False)],
)
def test_cached_steps_match_the_parallel_decoder(
    small_model_config, monkeypatch, tied, beams, absorbed
):
  """Absorbed: steps read states instead of keys and values."""
  if absorbed:
    monkeypatch.setattr(long_attention, 'ABSORBED', 13)
  small_model_config.tie_embeddings = tied
  model, params, apply = make(small_model_config)
  inputs = tokens(5, 2, 13)
  inputs[1, 9:] = 0
  targets = tokens(6, 2 * beams, 7)
  want = apply(params, np.repeat(inputs, beams, 0), targets)
  memory = apply(params, inputs, method='encode')
  shared, got = small.in_steps(model, params, memory, targets, beams)
  assert set(shared) == {'states' if absorbed else 'cross', 'mask'}
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


@pytest.mark.memory
def test_remat_needs_less_memory(small_model_config):
  """The backward pass of two layers keeps only their inputs."""
  inputs, targets = tokens(5, 4, 512), tokens(6, 4, 32)
  sizes = []
  for remat in ('none', 'full'):
    model, params, _ = make(small_model_config, remat=remat)
    loss = lambda p, model=model: model.apply(p, inputs, targets).sum()
    sizes.append(temporary_bytes(jax.grad(loss), params))
  assert sizes[1] < 0.7 * sizes[0], sizes


def test_dropout_is_random_and_only_in_training(small_model_config):
  inputs, targets = tokens(5, 2, 13), tokens(6, 2, 6)
  small_model_config.dropout_rate = 0.5
  _, params, apply = make(small_model_config)

  def run(params, seed, apply=apply):
    rngs = {'dropout': jax.random.key(seed)}
    return apply(params, inputs, targets, deterministic=False, rngs=rngs)

  np.testing.assert_array_equal(run(params, 0), run(params, 0))
  assert np.abs(run(params, 0) - run(params, 1)).max() > 1e-2
  small_model_config.dropout_rate = 0.0
  without = make(small_model_config)[2]
  np.testing.assert_allclose(
      apply(params, inputs, targets),
      run(params, 0, without),
      rtol=0,
      atol=1e-5,
  )


def test_bfloat16_keeps_float32_where_it_must(small_model_config):
  model, params, _ = make(small_model_config, dtype='bfloat16')
  _, _, exact = make(small_model_config)
  given = params, tokens(5, 2, 13), tokens(6, 2, 6)
  small.check_bfloat16(model, exact, given, [' fft[', '= exp '])


def test_relative_buckets_by_hand():
  """T5's rule: distances -3 to 140 before the query, 8 buckets, maximum 16."""
  buckets = attention.relative_buckets(
      jnp.array([3, 0, -1, -2, -3, -4, -6, -8, -15, -16, -140]), False, 8, 16
  )
  assert buckets.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7]
  both = attention.relative_buckets(jnp.array([-5, -1, 0, 1, 5]), True, 8, 16)
  assert both.tolist() == [2, 1, 0, 5, 6]


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
