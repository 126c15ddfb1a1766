"""Programs compiled for a TPU slice on a machine without TPUs.

With libtpu (extra `tpu-aot`) its compiler shows the collectives and the memory
of a program; without libtpu, programs are only exported for TPUs.
"""

import importlib.util

import jax
from jax import export
import jax.numpy as jnp
import pytest

from configs import default
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.ops import mesh as mesh_lib
from locost_jax.runs import assemble
from locost_jax.runs import dry_run
from locost_jax.training import objectives
from locost_jax.workdir import phases as phases_lib
from tests import mesh_program

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec('libtpu') is None,
    reason='compiling for TPUs needs the extra `tpu-aot`',
)
T = 24


def run(function, *arguments):
  """Calls a function of this file in a separate process, for libtpu."""
  return mesh_program.run(
      function, *arguments, module='tests.devices.test_tpu', devices=1
  )


def programs_of(mesh, L):
  """Returns {name: (jitted function, arguments)} of a small bfloat16 model."""
  config = mesh_program.make_config(vocab_size=512, num_heads=4)
  rows = sharding.batch_parts(mesh)
  model = models.build(config.model, 'bfloat16', 'pieces')
  programs = objectives.make_programs(config, model, mesh)
  state = sharding.abstract_arrays(
      jax.eval_shape(lambda: programs.init(jax.random.key(0))),
      programs.shardings,
  )

  def array(length, key, dtype=jnp.int32):
    return jax.ShapeDtypeStruct(
        (rows, length), dtype, sharding=sharding.batch_sharding(mesh, key)
    )

  batch = dict(encoder_input_tokens=array(L, 'encoder_input_tokens'))
  batch.update(
      (key, array(T, key))
      for key in ('decoder_input_tokens', 'decoder_target_tokens')
  )
  batch['decoder_loss_weights'] = array(T, 'decoder_loss_weights', jnp.float32)
  read = state.params, batch['encoder_input_tokens']
  settings = decode_settings.Settings(max_length=T, num_beams=2)
  encode = lambda params, inputs: generate.read(model, params, inputs, None)
  decode = lambda params, inputs: generate.generate(
      model, params, inputs, None, settings
  )
  return {
      'step': (programs.step, (state, batch)),
      'encode': (jax.jit(encode), read),
      'generate': (jax.jit(decode), read),
  }


def compiled_for_tpus(sizes, L):
  """Returns {program: {collective: shapes}} on a slice of 16 chips."""
  mesh = mesh_program.make_mesh(sizes, dry_run.topology_devices('v5e:4x4'))
  with jax.set_mesh(mesh):
    assert mesh_lib.platform() == 'tpu'
    compiled = {
        name: function.lower(*arguments).compile()
        for name, (function, arguments) in programs_of(mesh, L).items()
    }
  return {
      name: {
          kind: sorted(shapes)
          for kind, shapes in mesh_program.sent(program).items()
      }
      for name, program in compiled.items()
  }


@needs_libtpu
def test_chips_gather_no_activation():
  """A document over four chips: they pass SSM states, and gather nothing."""
  L = 352  # not the size of any parameter
  for name, messages in run('compiled_for_tpus', (4, 1, 1, 4), L).items():
    for kind in 'all-gather', 'all-to-all', 'reduce-scatter':
      assert not messages[kind], (name, kind, messages)
    assert messages['collective-permute'], name
    assert all(
        str(L // 4) not in shape.split(',')
        for shapes in messages.values()
        for shape in shapes
    ), name


def memory_of_a_chip(sizes, L):
  """Runs `main --dry_run` of the paper's model, one document per row."""
  config = default.get_config()
  config.model.vocab_size = 32100
  config.mesh = mesh_program.mesh_config(sizes)
  config.data.update(max_input_length=L, max_target_length=512)
  config.train.update(dtype='bfloat16', batch_size=sizes[0] * sizes[1])
  return dry_run.compile_step(
      assemble.Setup(
          phases_lib.Phase('', None, config),
          dry_run.topology_devices('v5e:4x4'),
      )
  )


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize('sizes', [(16, 1, 1, 1), (4, 1, 1, 4)])
def test_the_papers_model_fits(sizes):
  """16K tokens fit in 16 GiB, by the compiler's report; nothing runs."""
  result = run('memory_of_a_chip', sizes, 16384)
  assert result['refused'] is None and result['device'] == 'TPU v5 lite'
  assert result['memory']['state'] > 3 * 4 * 234e6
  assert result['memory']['total'] < 16 << 30


def test_programs_are_exported_for_tpus(monkeypatch):
  """Lowered to StableHLO, without libtpu."""
  monkeypatch.setattr(mesh_lib, 'platform', lambda: 'tpu')
  mesh = mesh_program.make_mesh((1, 1, 1, 1))
  with jax.set_mesh(mesh):
    for name, (function, arguments) in programs_of(mesh, 352).items():
      exported = export.export(function, platforms=['tpu'])(*arguments)
      assert exported.platforms == ('tpu',), name
      # FFTs of a power of two are fast on TPUs; other platforms use 720.
      assert 'x1024xf32>' in exported.mlir_module(), name
      assert 'x720xf32>' not in exported.mlir_module(), name


def test_a_topology_without_libtpu(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(InputError, match='needs libtpu, which is not installed'):
    dry_run.topology_devices('v5e:4x4')


@needs_libtpu
@pytest.mark.parametrize('name', ['v9', 'v5e:3x5'])
def test_a_slice_that_does_not_exist(name):
  with pytest.raises(InputError, match='expected a TPU slice like v5e:4x4'):
    dry_run.topology_devices(name)
