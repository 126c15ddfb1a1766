"""Every family of models: steps, memory, dropout, padding.

test_mixers.py has their FLOPs and the memory of encoding.
"""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.models import parameters
from locost_jax.models import selector as selector_lib
from locost_jax.models import self_attention
from locost_jax.ops import causal_attention
from locost_jax.ops import long_attention
from locost_jax.ops import long_conv
from locost_jax.ops import tokenwise
from tests import products
from tests.models import small
from tests.models.small import FAMILIES
from tests.models.small import tokens
from tests.ops.compiled import assert_same

STEPS = [
    *((name, {}, is_long) for name in ('locost', 'bart') for is_long in (0, 1)),
    *((name, {}, 0) for name in ('led', 'pegasus_x', 'bigbird_pegasus')),
    ('pagesum', {}, 0),
    ('pagesum', dict(padding='release'), 1),
    ('pagesum', dict(decoding='global'), 1),
]
MORE_STEPS = [
    ('locost', dict(tie_embeddings=False), 0),
    ('longt5', {}, 0),
    ('t5', dict(biases_per_layer=True), 1),
    ('bart', dict(num_decoder_heads=2), 0),
    ('pagesum', dict(decoding='global'), 0),
    *(
        ('simcas', dict(select=select, limit=9), is_long)
        for select in ('ppo', 'none', 'first_k')
        for is_long in (0, 1)
    ),
]


@products.few(
    'name, changes, is_long', STEPS, MORE_STEPS, others=pytest.mark.products
)
def test_steps_match_the_decoder(monkeypatch, name, changes, is_long):
  """With three rows per document, like beams; also from a compact memory.

  Long inputs: steps read states instead of keys and values.
  """
  if is_long:
    monkeypatch.setattr(long_attention, 'ABSORBED', 1)
  config = FAMILIES[name] | changes
  run, model = small.Runner(config, 0.1, True), models.build(config)
  memory = run(small.inputs_of(config), method='encode')
  targets = tokens(7, 9, 7)
  want = run(small.repeated(memory, 3), targets, method='decode')
  read = [memory]
  if model.config.is_compacted:
    most = int(selector_lib.selected_counts(memory).max())
    read.append(selector_lib._compact(memory, most))
  for memory in read:
    shared, got = small.in_steps(model, run.small_params(), memory, targets, 3)
    assert set(shared) == {'states' if is_long else 'cross', 'mask'}
    np.testing.assert_allclose(got, want, 0, 2e-5)


@pytest.fixture
def make_tiny_pieces(monkeypatch):
  """Makes pieces of few tokens, keys and channels, also for small inputs."""

  def make_tiny_pieces():
    monkeypatch.setattr(tokenwise, 'CPU_PIECE', 16)
    monkeypatch.setattr(long_conv, 'CPU_ALL_BYTES', 0)
    monkeypatch.setattr(long_conv, 'CPU_GROUP_BYTES', 0)
    monkeypatch.setattr(long_conv, 'CPU_GROUP', 5)
    monkeypatch.setattr(long_attention, 'LONG', 1)
    monkeypatch.setattr(long_attention, 'PIECE_BYTES', 1)
    monkeypatch.setattr(causal_attention, 'piece_length', lambda *_: 4)
    monkeypatch.setattr(self_attention, 'piece_length', lambda *_: 5)

  return make_tiny_pieces


def gradients(config, remat, **keys):
  """Returns (params -> loss and gradients, params), all in float64."""
  model = models.build(config, 'float64', remat)
  params = jax.tree.map(np.float64, small.moved_params(config, 0.1, True))
  inputs, targets = small.inputs_of(config), tokens(7, 3, 9)

  def loss(params):
    return (model.apply(params, inputs, targets, **keys) ** 2).mean()

  return jax.jit(jax.value_and_grad(loss)), params


# The others run their feed-forward in pieces.
METHODS = {
    'locost': {'inward', 'outward', 'add'},
    'simcas': {'group', 'add'},
    't5': {'after', 'add'},
    'longt5': {'after', 'add'},
}


@products.few(
    'name',
    ['locost', 'bart'],
    [name for name in FAMILIES if name not in ('locost', 'bart')],
    others=pytest.mark.memory,
)
def test_less_memory_changes_no_gradient(name, monkeypatch, make_tiny_pieces):
  """Parts of a layer in pieces, and layers recomputed."""
  calls, method = [], tokenwise.method
  monkeypatch.setattr(
      tokenwise,
      'method',
      lambda *args, **keys: calls.append(args[1]) or method(*args, **keys),
  )
  with jax.enable_x64(True):
    run, params = gradients(FAMILIES[name], 'none')
    want = run(params)
    assert not calls
    scale = max(np.abs(x).max() for x in jax.tree.leaves(want[1]))
    make_tiny_pieces()
    for remat in ('pieces', 'full'):
      calls.clear()
      got = gradients(FAMILIES[name], remat)[0](params)
      assert set(calls) == METHODS.get(name, {'add'})
      assert_same(got[0], want[0], 0, rtol=1e-12)
      assert_same(got[1], want[1], 1e-11 * scale)


@products.few(
    'name, changes',
    [('locost', {})],
    [('bart', {}), ('simcas', dict(select='none'))],
    others=pytest.mark.memory,
)
def test_both_passes_use_the_same_dropout_masks(
    name, changes, make_tiny_pieces
):
  """Gradients along a direction match finite differences, with dropout.

  remat 'full' draws the masks of the pieces again with the layer.
  """
  rates = {key: 0.3 for key in FAMILIES[name] if key.endswith('dropout_rate')}
  with jax.enable_x64(True):
    keys = dict(deterministic=False, rngs={'dropout': jax.random.key(3)})
    config = FAMILIES[name] | changes | rates
    run, params = gradients(config, 'full', **keys)
    make_tiny_pieces()
    small.check_gradients(run, params)


@products.few(
    'name, rate',
    [
        ('locost', 'dropout_rate'),
        ('bart', 'attention_dropout_rate'),
        ('led', 'attention_dropout_rate'),
    ],
    [
        ('bart', 'dropout_rate'),
        ('bart', 'activation_dropout_rate'),
        ('pegasus_x', 'attention_dropout_rate'),
        ('bigbird_pegasus', 'attention_dropout_rate'),
        ('longt5', 'dropout_rate'),
    ],
    others=pytest.mark.products,
)
def test_each_dropout_rate_acts_only_in_training(name, rate):
  """Then every state depends on the seed: in LED those of global tokens too."""
  config = FAMILIES[name]
  inputs = small.inputs_of(config)
  params = small.moved_params(config, 0.1, True)

  @functools.partial(jax.jit, static_argnums=(0, 2))
  def run(of_rate, seed, deterministic=False):
    rngs = {'dropout': jax.random.key(seed)}
    apply = models.build(config | {rate: of_rate}).apply
    memory = apply(
        params, inputs, None, deterministic, method='encode', rngs=rngs
    )
    return memory['states']

  np.testing.assert_array_equal(run(0.5, 0), run(0.5, 0))
  assert (run(0.5, 0) != run(0.5, 1)).any(-1)[0].all()
  want = run(0.0, 0)
  np.testing.assert_allclose(run(0.5, 0, True), want, 0, 1e-5)


@products.few(
    'name, changes',
    [('locost', {}), ('bart', {}), ('pegasus_x', {})],
    [
        ('locost', {'bidirectional': False}),
        ('locost', {'variant': 'paper'}),
        ('t5', {}),
        ('longt5', {}),
        ('longt5', {'attention': 'local'}),
        ('led', {}),
    ],
    others=pytest.mark.products,
)
def test_padding_changes_nothing(name, changes):
  """Nor do tokens that are masked; bigbird_pegasus has a test of its own."""
  config = FAMILIES[name] | changes
  run, pad = small.Runner(config, 0.1, True), models.make_config(config).pad_id
  inputs, targets = tokens(5, 2, 13), tokens(6, 2, 6)
  want = run(inputs, targets)
  padded = np.pad(inputs, ((0, 0), (0, 24)), constant_values=pad)
  np.testing.assert_allclose(run(padded, targets), want, rtol=0, atol=2e-5)
  garbage = np.concatenate([inputs, tokens(7, 2, 5)], 1)
  mask = np.broadcast_to(np.arange(18) < 13, (2, 18))
  got = run(garbage, targets, mask)
  np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
  assert np.abs(run(garbage, targets) - want).max() > 1e-2  # negative control


@pytest.mark.parametrize(
    'name, changes, is_linear',
    [
        ('longt5', dict(global_block_size=50), True),
        *((name, {}, True) for name in ('led', 'pegasus_x', 'bigbird_pegasus')),
        ('t5', {}, False),
        ('bigbird_pegasus', dict(attention='original_full'), False),
    ],
)
def test_memory_grows_with_the_length(name, changes, is_linear):
  """No array has L x L numbers; full attention's are the negative control."""
  L = 2000
  config = FAMILIES[name] | changes
  if 'max_positions' in config:
    config |= dict(max_positions=L)
  model = models.build(config)
  params = {'params': parameters.abstract_params(model)}
  encode = functools.partial(model.apply, method='encode')
  tokens = jax.ShapeDtypeStruct((1, L), jnp.int32)
  program = str(jax.make_jaxpr(encode)(params, tokens))
  shapes = re.findall(r'(?:f32|bool|i32)\[([\d,]+)\]', program)
  largest = max(math.prod(map(int, x.split(','))) for x in shapes)
  assert (largest < L * L / 4) == is_linear
