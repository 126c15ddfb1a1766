"""The encoder in pieces matches the whole one and needs less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.models import low_memory_encoder
from locost_jax.models.parameters import abstract_params
from locost_jax.ops import long_conv
from tests.models import small
from tests.ops.compiled import temporary_bytes


@pytest.fixture
def tiny_pieces(monkeypatch):
  """Makes pieces of 8 tokens, and groups of 5 of the 32 channels."""
  monkeypatch.setattr(low_memory_encoder, 'CPU_PIECE', 8)
  monkeypatch.setattr(long_conv, 'CPU_ALL_BYTES', 0)
  monkeypatch.setattr(long_conv, 'CPU_GROUP_BYTES', 0)
  monkeypatch.setattr(long_conv, 'CPU_GROUP', 5)
  jax.clear_caches()


def make(config, **keys):
  """Returns a model and parameters without special values."""
  params = small.moved_params(config, 0.1, True)['params']
  return models.build(config, **keys), params


documents = functools.partial(small.documents, pad=0)


def check(model, params, inputs, mask=None, tolerance=2e-6, by_layer=False):
  """Compares with `model.encode`, with and without given kernels."""
  apply = jax.jit(functools.partial(model.apply, method='encode'))
  want = apply({'params': params}, inputs, mask)
  kernels = low_memory_encoder.kernels(model, params, inputs.shape[1])
  assert (
      low_memory_encoder.kernel_bytes(model, inputs.shape[1]) == kernels.nbytes
  )

  def layer_by_layer(params, inputs, mask, kernels=None):
    h, m = low_memory_encoder.embed(model, params, inputs, mask)
    for i in range(model.config.num_layers):
      h = low_memory_encoder.encoder_layer(model, params, i, h, m, kernels)
    return low_memory_encoder.finish(model, params, h, m, inputs)

  encode = (
      layer_by_layer
      if by_layer
      else jax.jit(functools.partial(low_memory_encoder.encode, model))
  )
  states = np.float32(want['states'])
  tolerance *= model.config.num_layers * np.abs(states).max()
  for got in (
      encode(params, inputs, mask),
      encode(params, inputs, mask, kernels),
  ):
    np.testing.assert_array_equal(got['mask'], want['mask'])
    assert got['states'].dtype == want['states'].dtype
    np.testing.assert_allclose(
        np.float32(got['states']), states, rtol=0, atol=tolerance
    )


@pytest.mark.parametrize(
    'batch,length,change,keys,options',
    (
        (1, 1, {}, {}, {}),
        (3, 13, {}, {}, {}),
        (2, 24, {}, {}, {}),
        (3, 13, {}, {}, dict(by_layer=True)),
        (3, 13, {'variant': 'paper'}, {}, {}),
        (3, 13, {'convolution': 'release'}, {}, {}),
        (3, 13, {'transform': 'matmul', 'variant': 'paper'}, {}, {}),
        (3, 13, {'transform': 'matmul', 'convolution': 'release'}, {}, {}),
        (
            *(3, 13),
            {'bidirectional': False, 'gating': False, 'feed_forward': 'relu'},
            *({}, {}),
        ),
        # Equal up to rounding to 8 bits.
        (3, 13, {}, dict(dtype='bfloat16'), dict(tolerance=0.01)),
    ),
)
def test_pieces_match_the_whole(
    small_model_config, tiny_pieces, batch, length, change, keys, options
):
  small_model_config.update(change)
  model, params = make(small_model_config, **keys)
  check(model, params, documents(batch, length), **options)


def test_a_mask_of_any_form_in_one_group_and_one_piece(small_model_config):
  mask = np.random.default_rng(0).integers(0, 2, (2, 13)).astype(bool)
  check(*make(small_model_config), documents(2, 13), mask)


def base_size(length):
  """Returns a base-size model of two layers, and shapes of its arguments."""
  config = default.get_config().model
  config.update(dict(vocab_size=100, num_layers=2, num_decoder_layers=1))
  model = models.build(config)
  h = jax.ShapeDtypeStruct((1, length, 768), jnp.float32)
  return model, abstract_params(model), h


@pytest.mark.parametrize('length', (16384, 262144))
def test_memory_of_a_layer(length):
  """At most 3.2 arrays of the input's size, with kernels given or not."""
  model, params, h = base_size(length)
  mask = jax.ShapeDtypeStruct((1, length), bool)
  n = long_conv.fft_size(2 * length)
  kernels = jax.ShapeDtypeStruct((2, 768, n // 2 + 1), jnp.complex64)
  for given in (kernels, None):
    size = temporary_bytes(
        low_memory_encoder.encoder_layer, model, params, 0, h, mask, given
    )
    assert size <= 3.2 * length * 768 * 4, size


def test_memory_of_the_whole_layer_is_larger():
  """Negative control: the layer as used in training."""
  model, params, h = base_size(16384)
  layer = low_memory_encoder.make_layer(model)
  params = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
      params['encoder']['layers'],
  )
  mask = jax.ShapeDtypeStruct((1, 16384), bool)
  run = lambda p, h, mask: layer.apply({'params': p}, h, mask, True)[0]
  size = temporary_bytes(run, params, h, mask)
  assert size > 3.2 * 16384 * 768 * 4, size


@pytest.mark.parametrize('batch,length', ((1, 4096), (2, 16384), (1, 65536)))
def test_encoder_bytes(batch, length):
  """The estimate is at least XLA's number, and close to it."""
  model, params, _ = base_size(length)
  inputs = jax.ShapeDtypeStruct((batch, length), jnp.int32)
  encode = functools.partial(low_memory_encoder.encode, model)
  found = temporary_bytes(encode, params, inputs, with_output=True)
  estimate = low_memory_encoder.encoder_bytes(model, params, batch, length)
  ratio = estimate / found
  assert 1 <= ratio <= 1.3, ratio
