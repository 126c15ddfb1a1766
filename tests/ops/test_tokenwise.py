"""Layers over pieces of the length: gradients, dropout, memory, devices."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.models import encoder as encoder_lib
from locost_jax.models import locost
from locost_jax.models import low_memory_encoder
from locost_jax.models import stack
from locost_jax.ops import causal_attention
from locost_jax.ops import long_attention
from locost_jax.ops import long_conv
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import pieces
from locost_jax.ops import tokenwise
from tests import mesh_program
from tests.ops.compiled import assert_same
from tests.ops.compiled import gradients_and_value
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes


def part(shared, key, x, mask, y):
  """An example function of tokens: x [B, L, 4], mask [B, L], y [B, L, 3]."""
  out = jnp.tanh(x @ shared['w']) * mask[..., None] + y
  if key is not None:
    out = out * jax.random.bernoulli(key, 0.5, out.shape)
  return out


def example(L):
  rng = np.random.default_rng(L)
  shared = {'w': jnp.asarray(rng.normal(size=(4, 3)))}
  x, y = (jnp.asarray(rng.normal(size=(2, L, n))) for n in (4, 3))
  return shared, x, jnp.asarray(rng.random((2, L)) < 0.7), y


gradients_of = functools.partial(gradients_and_value, argnums=(0, 1, 3))


@pytest.mark.parametrize('draws', (False, True))
@pytest.mark.parametrize('L,size', ((1, 1), (12, 4), (13, 5), (7, 7), (9, 8)))
def test_pieces_match_the_whole(L, size, draws):
  """Includes dropout: `whole` draws its masks as the docstring defines."""
  key = jax.random.key(1) if draws else None

  def whole(shared, x, mask, y):
    out = part(shared, None, x, mask, y)
    for i in range(-(-L // size)) if draws else ():
      kept = jax.random.bernoulli(jax.random.fold_in(key, i), 0.5, (2, size, 3))
      start = min(i * size, L - size)
      out = out.at[:, i * size : start + size].multiply(
          kept[:, i * size - start :]
      )
    return out

  def over_pieces(shared, x, mask, y):
    return tokenwise.apply(part, shared, (x, mask, y), key, size=size)

  with jax.enable_x64(True):
    args = example(L)
    want = gradients_of(whole, *args)
    assert_same(gradients_of(over_pieces, *args), want, 1e-12)


def test_arrays_with_channels_first():
  """x and the result are [D, B, L], the mask and y [B, L, ...]."""

  def moved(shared, key, x, mask, y):
    out = part(shared, key, jnp.moveaxis(x, 0, 2), mask, y)
    return jnp.moveaxis(out, 2, 0)

  def over_pieces(shared, x, mask, y):
    x = jnp.moveaxis(x, 2, 0)
    out = tokenwise.apply(
        moved, shared, (x, mask, y), axes=(2, 1, 1, 2), size=5
    )
    return jnp.moveaxis(out, 0, 2)

  def whole(shared, x, mask, y):
    return part(shared, None, x, mask, y)

  with jax.enable_x64(True):
    args = example(13)
    want = gradients_of(whole, *args)
    assert_same(gradients_of(over_pieces, *args), want, 1e-12)


@pytest.fixture
def tiny_pieces(monkeypatch):
  """Makes pieces of few tokens and channels, also for small inputs."""
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 16)
  monkeypatch.setattr(stack, 'AUTO_BYTES', 0)
  monkeypatch.setattr(long_conv, 'CPU_ALL_BYTES', 0)
  monkeypatch.setattr(long_conv, 'CPU_GROUP', 5)
  monkeypatch.setattr(long_attention, 'LONG', 81)
  monkeypatch.setattr(causal_attention, 'piece_length', lambda *_: 4)


def gradients(config, remat, **keys):
  """Returns (params -> loss and gradients, params), all in float64.

  Inputs have 13, 9 and 0 tokens, targets 9.
  """
  config.update(num_layers=1, num_decoder_layers=1)
  model = models.build(config, dtype='float64', remat=remat)
  rng = np.random.default_rng(0)
  inputs, targets = (rng.integers(2, 60, (2, n)) for n in (13, 9))
  inputs[1, 9:] = 0
  shapes = jax.eval_shape(
      model.init, jax.random.key(0), inputs[:, :4], targets[:, :4]
  )
  params = jax.tree.map(
      lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape)), shapes
  )

  def loss(params):
    return (model.apply(params, inputs, targets, **keys) ** 2).mean()

  return jax.jit(jax.value_and_grad(loss)), params


def test_remat_changes_no_gradient(
    small_model_config, tiny_pieces, monkeypatch
):
  calls = []
  method = tokenwise.method
  monkeypatch.setattr(
      tokenwise,
      'method',
      lambda *args, **keys: calls.append(args[1]) or method(*args, **keys),
  )
  with jax.enable_x64(True):
    # 'none' keeps everything and does not use pieces.
    with monkeypatch.context() as whole:
      whole.setattr(long_attention, 'LONG', 1 << 20)
      run, params = gradients(small_model_config, 'none')
      want = run(params)
    assert not calls
    scale = max(np.abs(x).max() for x in jax.tree.leaves(want[1]))
    for remat in ('pieces', 'full'):
      calls.clear()
      got = gradients(small_model_config, remat)[0](params)
      assert set(calls) == {'inward', 'outward', 'add'}
      assert_same(got[0], want[0], 0, rtol=1e-12)
      assert_same(got[1], want[1], 1e-11 * scale)


def test_both_passes_use_the_same_dropout_masks(
    small_model_config, tiny_pieces
):
  """Gradients along a direction match finite differences, with dropout.

  remat 'full' draws the masks of the pieces again with the layer.
  """
  small_model_config.dropout_rate = 0.3
  with jax.enable_x64(True):
    run, params = gradients(
        small_model_config,
        'full',
        deterministic=False,
        rngs={'dropout': jax.random.key(3)},
    )
    rng = np.random.default_rng(1)
    way = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), params)

    def loss(step):
      return run(jax.tree.map(lambda x, w: x + step * w, params, way))[0]

    want = (loss(1e-6) - loss(-1e-6)) / 2e-6
    got = sum(
        jnp.vdot(w, g)
        for w, g in zip(jax.tree.leaves(way), jax.tree.leaves(run(params)[1]))
    )
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_auto_depends_on_the_size_of_the_input():
  """Base size uses pieces from a few thousand tokens, the quickstart never."""

  def is_in_pieces(remat, B, L, **sizes):
    config = default.get_config().model
    config.update(vocab_size=100, **sizes)
    return stack.reads_in_pieces(models.make_config(config), remat, B, L)

  small = dict(d_model=128, d_ff=256, num_layers=2)
  assert not is_in_pieces('auto', 8, 512, **small)
  assert not is_in_pieces('auto', 16, 256, **small)
  assert is_in_pieces('auto', 8, 65536, **small)
  assert is_in_pieces('auto', 1, 4096)
  assert not is_in_pieces('auto', 1, 2048)
  assert not is_in_pieces('none', 1, 65536)
  for remat in ('pieces', 'full'):
    assert is_in_pieces(remat, 8, 512, **small)


@pytest.mark.parametrize('is_small', (True, False))
def test_memory_of_a_layer_in_training(is_small):
  """Base size, 16K: both passes take at most 10 arrays of the input's size.

  Negative control: the plain form.
  """
  L, D = 16384, 768
  config = default.get_config().model
  config.update(vocab_size=100, num_layers=1, num_decoder_layers=1)
  layer = low_memory_encoder.make_layer(models.build(config))
  h, mask = shape(1, L, D), shape(1, L, dtype=bool)
  params = jax.eval_shape(
      lambda: layer.init(
          jax.random.key(0), jnp.ones((1, 4, D)), jnp.ones((1, 4), bool), True
      )
  )

  def run(params, h, mask, d_out):
    out, pull = jax.vjp(
        lambda params, h: layer.apply(params, h, mask, True, is_small)[0],
        params,
        h,
    )
    return out, pull(d_out)

  used = temporary_bytes(run, params, h, mask, h) / (L * D * 4)
  assert (used <= 10) == is_small, used


@pytest.mark.parametrize(
    'remat, spectra, least, most',
    [
        ('pieces', 0, 3, 4),
        ('pieces', locost.KEPT_BYTES, 5, 6),
        ('none', 0, 25, 35),
    ],
)
def test_arrays_kept_of_each_layer_on_an_accelerator(
    monkeypatch, remat, spectra, least, most
):
  """Counts arrays of the input's size; all channels are one group.

  Pieces keep three: the inputs of the layer and of the mixer, and the mixer's
  output; and, if allowed, the kernels' transforms, which take two. Tables of
  powers (17 here) are never kept.
  """
  monkeypatch.setattr(locost, 'KEPT_BYTES', spectra)
  monkeypatch.setattr(mesh_lib, 'platform', lambda: 'gpu')
  L, D = 8192, 64
  h, mask = shape(1, L, D), shape(1, L, dtype=bool)

  def used(layers):
    config = default.get_config().model
    config.update(
        vocab_size=100,
        d_model=D,
        d_ff=128,
        d_kv=16,
        num_heads=4,
        d_state=128,
        num_layers=layers,
        num_decoder_layers=1,
        dropout_rate=0.0,
    )
    model = models.build(config, remat=remat)
    encoder = encoder_lib.Encoder(
        model.config, model.make_mixer, model.dtype, model.remat
    )
    params = jax.eval_shape(
        lambda: encoder.init(
            jax.random.key(0), jnp.ones((1, 4, D)), jnp.ones((1, 4), bool), True
        )
    )
    loss = lambda params, h, mask: encoder.apply(params, h, mask, True).sum()
    return temporary_bytes(jax.grad(loss), params, h, mask) / (L * D * 4)

  grown = (used(6) - used(3)) / 3
  assert least <= grown <= most


class Projection(nn.Module):
  """A module with one projection, to compare 8 devices with one."""

  @nn.compact
  def __call__(self, x, deterministic=True):
    return nn.Dropout(0.5)(nn.Dense(3)(x), deterministic)


def devices_and_one():
  """Returns how gradients and dropout on 8 devices differ from one device."""
  tokenwise.CPU_PIECE = 24
  module = Projection()
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(8, 12, 4)), jnp.float32)
  params = module.init(jax.random.key(0), x)
  grads, texts, draws = [], [], []
  for devices in (1, 8):
    mesh = mesh_program.make_mesh((devices, 1, 1, 1), jax.devices()[:devices])
    rows = jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec(('data', 'fsdp'))
    )
    with jax.set_mesh(mesh):

      def run(params, x, deterministic=True):
        def go(module, x):
          return tokenwise.method(
              module, '__call__', x, draws=not deterministic
          )

        return module.apply(
            params, x, method=go, rngs={'dropout': jax.random.key(1)}
        )

      here = jax.device_put(x, rows)
      step = jax.jit(
          jax.grad(lambda params, x: (run(params, x) ** 2).sum(), (0, 1))
      )
      grads.append(jax.device_get(step(params, here)))
      texts.append(step.lower(params, here).compile().as_text())
      draws.append(
          np.asarray(
              jax.jit(functools.partial(run, deterministic=False))(params, here)
              == 0
          )
      )
  error = max(
      np.abs(a - b).max() / np.abs(a).max()
      for a, b in zip(*map(jax.tree.leaves, grads))
  )
  return dict(
      error=float(error),
      zeros=[float(d.mean()) for d in draws],
      same_on_two=bool((draws[1][0] == draws[1][1]).all()),
      reduces=texts[1].count(' all-reduce('),
  )


def test_eight_devices_match_one():
  """At most one all-reduce per parameter; each device draws its own dropout."""
  found = mesh_program.run('devices_and_one', module=__name__)
  assert found['error'] < 1e-6
  assert all(0.3 < zeros < 0.7 for zeros in found['zeros'])
  assert not found['same_on_two']
  assert 1 <= found['reduces'] <= 2


def test_pieces_of_bfloat16_are_written_in_place():
  """The whole array is never converted, and no gradient is lost in silence."""

  def double(x):
    update = lambda piece, x: piece.put(x, 2 * piece.take(x, 0), 0)
    return pieces.over(4100, 32, update, x)

  x = jnp.ones((4100, 64), jnp.bfloat16)
  assert temporary_bytes(double, x, donate_argnums=0) < x.nbytes / 8
  np.testing.assert_array_equal(np.float32(double(x))[:4068], 2)
  with pytest.raises(NotImplementedError, match='bits have no gradient'):
    jax.grad(lambda x: double(x).sum())(x)
