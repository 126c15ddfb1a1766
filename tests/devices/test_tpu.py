"""Programs compiled for TPUs and GPUs on a machine without them.

With libtpu (extra `tpu-aot`) or the CUDA plugin (`gpu-aot`) the compiler shows
the collectives and the memory of a program; without libtpu, programs are only
exported for TPUs.
"""

import importlib.util
import math
import re

import jax
from jax import export
import jax.numpy as jnp
import pytest

from configs import default
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.devices import sharding
from locost_jax.devices import topology
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.ops import long_attention
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
needs_cuda = pytest.mark.skipif(
    importlib.util.find_spec('jax_cuda12_plugin') is None,
    reason='compiling for GPUs needs the extra `gpu-aot`',
)
GPUS = ('h100:1x8',)
T = 24


def run(function, *arguments):
  """Calls a function of this file in a separate process, for libtpu."""
  return mesh_program.run(
      function, *arguments, module='tests.devices.test_tpu', devices=1
  )


def programs_of(mesh, L, T=T, dtype='bfloat16', num_beams=2, **changes):
  """Returns {name: (jitted function, arguments)} of a small model."""
  config = mesh_program.make_config(vocab_size=512, num_heads=4, **changes)
  rows = sharding.batch_parts(mesh)
  model = models.build(config.model, dtype, 'pieces')
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
  settings = decode_settings.Settings(max_length=T, num_beams=num_beams)
  encode = lambda params, inputs: generate.read(model, params, inputs, None)
  decode = lambda params, inputs: generate.generate(
      model, params, inputs, None, settings
  )

  def copy(params, inputs):  # a document's states once for each beam
    memory = generate.read(model, params, inputs, None)
    memory = jax.tree.map(lambda x: jnp.repeat(x, num_beams, 0), memory)
    return generate.write(model, params, memory, settings)

  return {
      'step': (programs.step, (state, batch)),
      'encode': (jax.jit(encode), read),
      'generate': (jax.jit(decode), read),
      'copy': (jax.jit(copy), read),
  }


def messages_of(name, sizes, L):
  """Returns {program: {collective: shapes}, 'fft': numbers} for a topology."""
  target, found = topology.find(name), {}
  mesh = mesh_program.make_mesh(sizes, target.devices)
  is_gpu = name in GPUS
  with jax.set_mesh(mesh):
    assert mesh_lib.platform() == ('gpu' if is_gpu else 'tpu')
    programs = programs_of(mesh, L)
    del programs['copy']
    for program, (function, arguments) in programs.items():
      lowered = function.lower(*arguments)
      compiled = lowered.compile(target.options if is_gpu else None)
      found[program] = {
          kind: sorted(shapes)
          for kind, shapes in mesh_program.sent(compiled).items()
      }
      found[program]['fft'] = len(re.findall(r' fft\(', compiled.as_text()))
  return found


@pytest.mark.parametrize(
    'name, sizes',
    [
        pytest.param('v5e:4x4', (4, 1, 1, 4), marks=needs_libtpu),
        pytest.param(*GPUS, (2, 1, 1, 4), marks=needs_cuda),
    ],
)
def test_chips_gather_no_activation(name, sizes):
  """A document over four chips: they pass SSM states, and gather nothing.

  But on GPUs, XLA gathers the scores of beams, [rows, V], for `top_k`.
  """
  L, is_gpu = 352, name in GPUS  # not the size of any parameter
  found = run('messages_of', name, sizes, L)
  transforms = [messages.pop('fft') for messages in found.values()]
  if is_gpu:  # of kernel, input and output, and as many of the gradient
    assert transforms == [6, 3, 3]
  for program, messages in found.items():
    for kind in 'all-gather', 'all-to-all', 'reduce-scatter':
      if (program, kind, is_gpu) != ('generate', 'all-gather', True):
        assert not messages[kind], (program, kind, messages)
    assert messages['collective-permute'], program
    assert all(
        str(L // 4) not in shape.split(',')
        for shapes in messages.values()
        for shape in shapes
    ), program


def kernels_of(cases):
  """Returns how many kernels of cuDNN's attention a step has, for each case."""
  target, found = topology.find(*GPUS), []
  mesh = mesh_program.make_mesh((8, 1, 1, 1), target.devices)
  with jax.set_mesh(mesh):
    for lengths, changes in cases:
      step, arguments = programs_of(mesh, *lengths, **changes)['step']
      program = step.lower(*arguments).compile(target.options).as_text()
      found.append(len(re.findall(r'"__cudnn\$fmha\w*"', program)))
  return found


@needs_cuda
def test_cudnn_attends_from_targets_to_long_inputs():
  """As in pretrain_c4, forward and backward; not where `choose` cannot."""
  long = 1024, 1024
  cases = [
      (long, {}),
      ((512, 1024), {}),
      (long, dict(dropout_rate=0.1)),
      (long, dict(dtype='float32')),
  ]
  assert run('kernels_of', cases) == [2, 0, 0, 0]


def largest_of(name, absorbed, num_beams):
  """Returns numbers per token of the largest arrays, with states as copies."""
  long_attention.ABSORBED, L, found = absorbed, 352, []
  target = topology.find(name) if name else None
  mesh = mesh_program.make_mesh((1, 1, 1, 1), target and target.devices[:1])
  with jax.set_mesh(mesh):
    programs = programs_of(mesh, L, num_beams=num_beams)
    for function, arguments in programs['generate'], programs['copy']:
      compiled = function.lower(*arguments).compile(target and target.options)
      shapes = re.findall(r'\w\[([\d,]+)\]', compiled.as_text())
      sizes = [tuple(map(int, shape.split(','))) for shape in shapes]
      found.append(max(math.prod(size) for size in sizes if L in size) / L)
  return found


@pytest.mark.parametrize('absorbed', [64, 4096])  # states; keys and values
@pytest.mark.parametrize(
    'name',
    [
        None,
        pytest.param('v5e:2x2', marks=needs_libtpu),
        pytest.param('h100:1x1', marks=needs_cuda),
    ],
)
def test_beams_share_the_states_of_a_document(name, absorbed):
  """Also inside fusions; a program that copies the states is noticed."""
  num_beams, width = 8, 32
  shared, copied = run('largest_of', name, absorbed, num_beams)
  assert shared < num_beams * width <= copied


def compile_for_cards():
  """Returns {name: (kind, bytes of arguments)} of a product for each card."""
  found = {}
  for name in topology.CARDS:
    target = topology.find(f'{name}:2x1')
    mesh = mesh_program.make_mesh((2, 1, 1, 1), target.devices)
    rows = jax.ShapeDtypeStruct(
        (64, 32), jnp.bfloat16, sharding=sharding.batch_sharding(mesh, '')
    )
    with jax.set_mesh(mesh):
      product = jax.jit(lambda x: x @ x.T).lower(rows).compile(target.options)
    kind = mesh.devices.flat[1].device_kind
    found[name] = kind, product.memory_analysis().argument_size_in_bytes
  return found


@needs_cuda
def test_the_compiler_takes_each_card():
  half = 32 * 32 * 2
  assert run('compile_for_cards') == {
      name: [card.kind, half] for name, card in topology.CARDS.items()
  }


def devices_of(name, others):
  """Returns the number of devices of TPU slices, found in nested processes."""
  count = len(topology.find(name).devices)
  return [count, *(run('devices_of', *others) if others else ())]


@needs_libtpu
def test_two_processes_use_libtpu(monkeypatch):
  """One inside the other; a TPU v4's chip is one device; a slice may be one."""
  monkeypatch.delenv('ALLOW_MULTIPLE_LIBTPU_LOAD', raising=False)
  others = 'v4:2x2x2', ('v5e:1x1', ())
  assert run('devices_of', 'v5e:4x4', others) == [16, 8, 1]


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
          topology.find('v5e:4x4').devices,
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


@needs_libtpu
def test_a_slice_that_does_not_exist():
  with pytest.raises(InputError, match='like v5e:4x4; libtpu says: '):
    topology.find('v5e:3x5')
