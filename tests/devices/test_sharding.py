"""The sharding table covers every parameter; checks of meshes and batches."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.ops import mesh as mesh_lib
from locost_jax.training import optim
from tests.workdir import states


def test_an_unknown_path_raises():
  with pytest.raises(ValueError, match='encoder/layers/mixer/ssn/log_dt'):
    sharding.spec_of('encoder/layers/mixer/ssn/log_dt')


def test_adapters_are_split_as_their_kernel():
  for kernel, a, b in [
      ('self_attention/query', 'fsdp', 'tensor'),
      ('feed_forward/wo', 'tensor', 'fsdp'),
  ]:
    kernel = f'decoder/layers/{kernel}'
    assert sharding.spec_of(f'{kernel}/lora_a') == P(None, a, None)
    assert sharding.spec_of(f'{kernel}/lora_b') == P(None, None, b)
  assert sharding.spec_of('logits/lora_a') == P('fsdp', None)
  assert sharding.spec_of('logits/lora_b') == P(None, 'tensor')
  with pytest.raises(ValueError, match='encoder/layers/mixer/kay/kernel'):
    sharding.spec_of('encoder/layers/mixer/kay/lora_a')


@pytest.mark.parametrize('name', ['adamw', 'adafactor'])
def test_optimiser_state_is_sharded_as_its_parameter(name):
  mesh = sharding.make_mesh(default.get_config().mesh)
  model = default.get_config().model
  model.vocab_size = 512
  shapes = parameters.abstract_params(models.build(model))
  config = default.get_config().optim
  config.name = name
  config.groups = (('decoder/.*', 0.0),)
  optimizer = optim.make_optimizer(config, 10, shapes)
  made = jax.eval_shape(optimizer.init, optim.split(shapes, config.groups)[0])
  array = jax.ShapeDtypeStruct((), jnp.int32)
  state = states.State(array, shapes, made, array)
  placed = sharding.state_shardings(mesh, state)
  assert placed.step.spec == P()
  path = 'encoder/layers/mixer/key/kernel'
  specs = {
      jax.tree_util.keystr(p, simple=True, separator='/'): leaf.spec
      for p, leaf in jax.tree_util.tree_leaves_with_path(placed.opt_state)
  }
  own = {p: spec for p, spec in specs.items() if p.endswith(path)}
  expected = sharding.spec_of(path) if name == 'adamw' else P()
  assert own and set(own.values()) == {expected}


def test_a_global_batch_keeps_its_rows():
  mesh = sharding.make_mesh(default.get_config().mesh)
  batch = {'inputs': np.arange(24).reshape(8, 3)}
  placed = sharding.global_batch(batch, mesh, 0)
  np.testing.assert_array_equal(placed['inputs'], batch['inputs'])
  assert placed['inputs'].sharding == sharding.batch_sharding(mesh)


def test_pages_are_split_over_sequence():
  """Their tokens are not, and a batch [B, P, L] gets no further pages."""
  mesh = sharding.make_mesh(default.get_config().mesh)
  batch = {'encoder_input_tokens': np.arange(24).reshape(2, 3, 4)}
  placed = sharding.global_batch(batch, mesh, 0)['encoder_input_tokens']
  np.testing.assert_array_equal(placed, batch['encoder_input_tokens'])
  assert placed.sharding.spec == P(('data', 'fsdp'), 'sequence')


def test_documents_on_several_devices():
  """Only for LOCOST, chunks, and pages that `sequence` divides."""
  mesh = jax.sharding.AbstractMesh(
      (1, 1, 1, 2), ('data', 'fsdp', 'tensor', 'sequence')
  )
  sharding.check_model(default.get_config().model, mesh)
  sharding.check_model(default.pagesum(), mesh, 4)
  sharding.check_model(default.simcas(), mesh, None)
  for name, pages, words in (
      ('pagesum', 7, 'mesh.sequence=2: does not divide data.num_pages=7'),
      ('pagesum', 1, 'mesh.sequence=2: does not divide data.num_pages=1'),
      ('bart', 0, 'mesh.sequence=2: only LOCOST and models that read pages or'),
      ('pegasus_x', 0, 'chunks can split a document .*, not pegasus_x'),
      ('bigbird_pegasus', 0, 'can split a document .*, not bigbird_pegasus'),
  ):
    with pytest.raises(InputError, match=words):
      sharding.check_model(getattr(default, name)(), mesh, pages)
  with (
      jax.sharding.use_abstract_mesh(mesh),
      pytest.raises(InputError, match='does not divide the 3 pages of a doc'),
  ):
    jax.eval_shape(mesh_lib.to_rows, jax.ShapeDtypeStruct((2, 3, 4), 'int32'))


def test_a_batch_that_the_devices_do_not_divide():
  mesh = jax.sharding.AbstractMesh((8, 1), ('data', 'fsdp'))
  sharding.check_batch_size(16, mesh, 'train.batch_size')
  for size in (12, 0):
    with pytest.raises(InputError) as error:
      sharding.check_batch_size(size, mesh, 'train.batch_size')
    assert f'train.batch_size={size}: expected a multiple of 8' in str(
        error.value
    )
