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


@pytest.mark.parametrize(
    'channels_first, draws', ((False, False), (False, True), (True, False))
)
@pytest.mark.parametrize('L,size', ((1, 1), (12, 4), (13, 5), (7, 7), (9, 8)))
def test_pieces_match_the_whole(L, size, draws, channels_first):
  """Includes dropout: `whole` draws its masks as the docstring defines.

  Channels first: x and the result are [D, B, L], the mask and y [B, L, ...].
  """
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

  def moved(shared, key, x, *rest):
    out = part(shared, key, jnp.moveaxis(x, 0, 2), *rest)
    return jnp.moveaxis(out, 2, 0)

  def over_pieces(shared, x, *rest):
    if not channels_first:
      return tokenwise.apply(part, shared, (x, *rest), key, size=size)
    xs = jnp.moveaxis(x, 2, 0), *rest
    out = tokenwise.apply(moved, shared, xs, axes=(2, 1, 1, 2), size=size)
    return jnp.moveaxis(out, 0, 2)

  with jax.enable_x64(True):
    args = example(L)
    want = gradients_of(whole, *args)
    assert_same(gradients_of(over_pieces, *args), want, 1e-12)


def test_auto_depends_on_the_size_of_the_input(monkeypatch):
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
  assert is_in_pieces('auto', 16, 1024, **small)
  monkeypatch.setattr(mesh_lib, 'platform', lambda: 'gpu')
  assert not is_in_pieces('auto', 16, 1024, **small)


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
        ('full', locost.KEPT_BYTES, 1, 1.5),
        ('none', 0, 25, 35),
    ],
)
def test_arrays_kept_of_each_layer_on_an_accelerator(
    monkeypatch, remat, spectra, least, most
):
  """Counts arrays of the input's size; all channels are one group.

  Pieces keep three: the inputs of the layer and of the mixer, and the mixer's
  output; and, if allowed, the kernels' transforms, which take two. Tables of
  powers (17 here) are never kept. In stacks of fewer layers the memory of other
  arrays also depends on the depth, by a tenth of an array.
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

  grown = (used(9) - used(6)) / 3
  assert least <= grown <= most


class Projection(nn.Module):
  """A module with one projection and dropout, for several devices."""

  @nn.compact
  def __call__(self, x, deterministic=True):
    return nn.Dropout(0.5)(nn.Dense(3)(x), deterministic)


def on_devices():
  """Returns what dropout keeps on 8 devices, and a step's all-reduces."""
  tokenwise.CPU_PIECE = 24
  module, mesh = Projection(), mesh_program.make_mesh((8, 1, 1, 1))
  x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 12, 4)), jnp.float32)
  params = module.init(jax.random.key(0), x)
  rows = jax.sharding.PartitionSpec(('data', 'fsdp'))

  def run(params, x, draws):
    go = lambda module, x: tokenwise.method(module, '__call__', x, draws=draws)
    rngs = {'dropout': jax.random.key(1)}
    return module.apply(params, x, method=go, rngs=rngs)

  with jax.set_mesh(mesh):
    x = jax.device_put(x, jax.sharding.NamedSharding(mesh, rows))
    loss = lambda params, x: (run(params, x, False) ** 2).sum()
    step = jax.jit(jax.grad(loss, (0, 1))).lower(params, x).compile()
    kept = jax.jit(run, static_argnums=2)(params, x, True) != 0
  return np.asarray(kept).tolist(), step.as_text().count(' all-reduce(')


def test_eight_devices():
  """At most one all-reduce per parameter; each device draws its own dropout."""
  kept, reduces = mesh_program.run('on_devices', module=__name__)
  assert 0.3 < np.mean(kept) < 0.7 and kept[0] != kept[1]
  assert 1 <= reduces <= 2


def test_pieces_of_bfloat16_are_written_in_place():
  """The whole array is never converted, and no gradient is lost in silence."""

  def double(x):
    update = lambda piece, x: piece.put(x, 2 * piece.take(x, 0), 0)
    return pieces.over(4100, 32, update, x)

  x = jnp.ones((4100, 64), jnp.bfloat16)
  assert temporary_bytes(double, x, donate_argnums=0) < x.nbytes / 8
  np.testing.assert_array_equal(np.float32(double(x))[:4068], 2)
  if jax.__version_info__ < (0, 11):  # as bits
    with pytest.raises(NotImplementedError, match='bits have no gradient'):
      jax.grad(lambda x: double(x).sum())(x)
