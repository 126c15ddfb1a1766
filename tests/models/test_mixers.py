"""Every mixer's FLOPs, memory and keys.

Each test runs for every row of `models.MODELS`.
"""

import functools

import jax
import jax.numpy as jnp
import pytest

from configs import default
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.models import low_memory_encoder
from locost_jax.models import parameters
from tests.models import small
from tests.ops.compiled import temporary_bytes

B, L, T = 2, 1024, 64


CASES = [
    *((name, {}) for name in models.MODELS),
    ('pagesum', dict(decoding='global')),
    ('simcas', dict(select='none')),
]


@pytest.fixture(scope='module', params=CASES)
def model(request):
  """A model of base width; with T5's keys if default.py has none for it."""
  name, changes = request.param
  config = getattr(default, name, default.t5)()
  config.update(dict(name=name, vocab_size=500, **changes))
  config.update(dict(num_layers=2, num_decoder_layers=2))
  return models.build(config, remat='none')


def tokens(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def test_flops_match_the_traced_step(model):
  inputs = (B, 4, L // 4) if model.config.page_forms else (B, L)
  small.check_flops(model, inputs, (B, T))


def test_memory_matches_xla(model):
  encode = functools.partial(low_memory_encoder.encode, model)
  params = parameters.abstract_params(model)
  taken = temporary_bytes(encode, params, tokens(B, L), with_output=True)
  estimate = low_memory_encoder.encoder_bytes(model, params, B, L)
  assert taken <= estimate <= 2 * taken


def test_every_parameter_has_a_place_on_a_mesh(model):
  """Of its rank; no row may replicate a large array."""
  shapes = parameters.flatten(parameters.abstract_params(model))
  for path, leaf in shapes.items():
    spec = sharding.spec_of(path)
    if path.startswith(('confidence/', 'selector/')):
      continue
    assert len(spec) in (0, leaf.ndim)  # another rank would fail only later
    if path.endswith(('kernel', 'token_embedding/embedding')):
      assert sorted(filter(None, spec)) == ['fsdp', 'tensor']
      assert spec[0] is None or leaf.ndim == 2  # never over layers
