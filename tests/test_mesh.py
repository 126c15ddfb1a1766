"""Eight devices do what one does, along every axis, and gather no activation.

Each test runs this file in a process with eight host devices. What the devices
send each other is read off the compiled program.
"""

import collections
import functools
import json
import os
from pathlib import Path
import re
import subprocess
import sys

import jax
from jax.sharding import NamedSharding, PartitionSpec as P
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import default
from locost_jax import checkpoint
from locost_jax import generate
from locost_jax import models
from locost_jax import optim
from locost_jax import sharding
from locost_jax import train
from locost_jax.decode import Settings
from locost_jax.models import locost
from locost_jax.models import long_attention
from locost_jax.models import long_conv
from locost_jax.models import tokenwise

ROOT = Path(__file__).parent.parent
COLLECTIVES = ('all-gather', 'all-reduce', 'collective-permute', 'all-to-all',
               'reduce-scatter')
B, L, T = 8, 112, 24  # of no parameter


def run(function, *arguments):
  """Calls a function of this file in a process with eight devices."""
  path = os.pathsep.join([str(ROOT), str(ROOT / 'tests')])
  done = subprocess.run(
      [sys.executable, '-c', 'import json, sys, test_mesh; print(json.dumps('
       'getattr(test_mesh, sys.argv[1])(*json.loads(sys.argv[2]))))', function,
       json.dumps(arguments)], capture_output=True, text=True, check=False,
      env=dict(os.environ, PYTHONPATH=path, JAX_PLATFORMS='cpu', XLA_FLAGS=(
          os.environ['XLA_FLAGS'] +
          ' --xla_force_host_platform_device_count=8')))
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def make_config(**model):
  config = default.get_config()
  config.model.update(
      vocab_size=96, d_model=32, d_state=8, d_ff=64, d_kv=8, num_heads=8,
      num_layers=2, num_decoder_layers=2, dropout_rate=0.0)
  config.model.update(model)
  return config


def make_mesh(sizes):
  config = default.get_config().mesh
  config.data, config.fsdp, config.tensor, config.sequence = sizes
  return sharding.make_mesh(config)


def sent(compiled):
  """{collective: {shape: how many}} of a compiled program, per device.

  Several arrays in one message: '8,32+8,32'.
  """
  found = {name: collections.Counter() for name in COLLECTIVES}
  for result, name in re.findall(
      r' = (.*?) (%s)(?:-start)?\(' % '|'.join(COLLECTIVES),
      compiled.as_text()):
    found[name]['+'.join(re.findall(r'\[([\d,]*)\]', result))] += 1
  return found


def difference(a, b):
  """The largest difference relative to the largest number."""
  return float(np.abs(a - b).max() / np.abs(a).max())


# --- The mixer ---------------------------------------------------------------


def mixer(cases):
  """How far the convolution on each mesh is from that on a device.

  Args:
    cases: list of (sizes of the mesh, length, whether XLA's partitioner is left
      alone with the FFT, keys of the model).
  """
  return [_mixer(*case) for case in cases]


def _mixer(sizes, length, plain, model):
  config = models.build(make_config(**model).model).config
  random = np.random.default_rng(0)
  p = locost.BiSSM(config).init(
      jax.random.key(0), method='parameters')['params']
  u = jnp.asarray(random.normal(size=(B, length, config.d_model)), jnp.float32)

  def convolve(u, p):
    return locost.convolve(config, u, *locost.discretise(config, p))

  def partitioned(u, p):
    spectrum = locost.spectrum(
        config, *locost.discretise(config, p), length, 0, config.d_model)
    return long_conv.spectral_conv(
        u, spectrum, locost.circular_size(config, length))

  def with_gradients(convolve):
    loss = lambda u, p: (convolve(u, p)**2).mean()
    return jax.jit(lambda u, p: (convolve(u, p), jax.grad(loss, (0, 1))(u, p)))

  y, gradients = with_gradients(convolve)(u, p)
  mesh = make_mesh(sizes)
  with jax.set_mesh(mesh):
    u = jax.device_put(u, NamedSharding(mesh, P(
        long_conv.ROWS, long_conv.SEQUENCE, long_conv.TENSOR)))
    compiled = with_gradients(partitioned if plain else convolve).lower(
        u, p).compile()
    found, found_gradients = compiled(u, p)
  return dict(
      outputs=difference(y, found),
      gradients=max(map(difference, *map(jax.tree.leaves, (
          gradients, found_gradients)))),
      sent=sent(compiled))


def test_the_mixer_on_every_mesh():
  results = run('mixer', [
      ((1, 1, 1, 8), 96, False, {}),
      ((1, 1, 1, 4), 96, False, dict(variant='paper')),
      ((1, 1, 1, 2), 96, False, dict(bidirectional=False)),
      ((1, 1, 8, 1), 96, False, {}), ((2, 2, 1, 2), 96, False, {}),
      ((1, 2, 2, 2), 96, False, {})])
  for result in results:
    assert result['outputs'] < 1e-6 and result['gradients'] < 5e-6, result
    assert not any(result['sent'][name] for name in COLLECTIVES
                   if name not in ('all-reduce', 'collective-permute'))


def test_xla_alone_gathers():
  """The negative control: a plain FFT in jit."""
  for result in run('mixer', [((8, 1, 1, 1), 96, True, {}),
                              ((1, 1, 1, 8), 96, True, {})]):
    assert result['outputs'] < 1e-6 and result['sent']['all-gather']


def test_traffic_of_split_documents_does_not_grow():
  """Twice the length, the same messages; none of them has the length."""
  short, long = run('mixer', [
      ((1, 1, 1, 8), n, False, {}) for n in (208, 416)])
  assert short['sent'] == long['sent']
  # Four exchanges of 2 numbers, in 2 directions, forward and backward; the
  # forward pass stands twice in this program.
  moved = short['sent']['collective-permute']
  assert set(moved) == {f'{B},32,8'} and sum(moved.values()) in (32, 48)
  # What is reduced: gradients of parameters.
  assert all(int(n) <= 32 for shape in short['sent']['all-reduce']
             for n in re.findall(r'\d+', shape))


# --- A step of training ------------------------------------------------------


def make_batch():
  random = np.random.default_rng(0)
  inputs = random.integers(2, 96, (B, L))
  for i in range(B):
    inputs[i, L - 13 * i:] = 0
  weights = np.arange(T) < random.integers(4, T, (B, 1))
  targets = np.where(weights, random.integers(2, 96, (B, T)), 0)
  return dict(
      encoder_input_tokens=inputs.astype(np.int32),
      decoder_input_tokens=np.pad(
          targets, ((0, 0), (1, 0)))[:, :-1].astype(np.int32),
      decoder_target_tokens=targets.astype(np.int32),
      decoder_loss_weights=weights.astype(np.float32))


def step(meshes, in_pieces):
  """How far a step on each mesh is from that on one device."""
  if in_pieces:
    long_attention.LONG = 0
    tokenwise.CPU_PIECE = 24
  config = make_config()
  model = models.build(
      config.model, remat='pieces' if in_pieces else 'none')
  # An optimiser that does nothing and keeps the gradient.
  optimizer = optax.with_extra_args_support(optax.trace(0.0))
  results = []
  for sizes in [(1, 1, 1, 1), *meshes]:
    mesh = make_mesh(sizes)
    with jax.set_mesh(mesh):
      init = functools.partial(
          train.init_state, model=model, optimizer=optimizer)
      key = jax.random.key(0)
      placed = sharding.state_shardings(mesh, jax.eval_shape(init, key))
      state = jax.jit(init, out_shardings=placed)(key)
      function = jax.jit(
          functools.partial(
              train.train_step, model=model, optimizer=optimizer,
              schedule=optim.make_schedule(config.optim, 1),
              config=config.optim),
          out_shardings=(placed, sharding.replicated(mesh)))
      batch = sharding.global_batch(make_batch(), mesh)
      compiled = function.lower(state, batch).compile()
      after, metrics = jax.device_get(compiled(state, batch))
      results.append((after.opt_state.trace, metrics, sent(compiled)))
  (one, expected, _), *others = results
  return [dict(
      loss=abs(float(metrics['loss'] / expected['loss']) - 1),
      gradients=max(map(difference, jax.tree.leaves(one),
                        jax.tree.leaves(found))),
      sent=messages) for found, metrics, messages in others]


def is_activation(shape):
  """Whether a shape has a length, of all of it or of a device's part."""
  numbers = map(int, re.findall(r'\d+', shape))
  return bool({L, L // 2, L // 8, T} & set(numbers))


@pytest.mark.parametrize('meshes, in_pieces', [
    ([(8, 1, 1, 1), (1, 8, 1, 1), (1, 1, 1, 8)], False),
    ([(1, 1, 1, 8), (2, 2, 1, 2)], True)])
def test_a_step_gathers_no_activation(meshes, in_pieces):
  for sizes, result in zip(meshes, run('step', meshes, in_pieces)):
    assert result['loss'] < 1e-6 and result['gradients'] < 1e-5, sizes
    for name in 'all-gather', 'all-to-all', 'reduce-scatter':
      moved = result['sent'][name]
      assert not list(filter(is_activation, moved)), (sizes, name, moved)
    # Parameters are, where they are cut.
    assert bool(result['sent']['all-gather']) == (sizes[1] > 1)


def test_tensor_parallel_blocks():
  """Two sums per layer's block, forward and backward, and no more."""
  meshes = [(1, 1, 8, 1), (1, 2, 2, 2)]
  for sizes, result in zip(meshes, run('step', meshes, False)):
    assert result['loss'] < 1e-6 and result['gradients'] < 1e-5, sizes
    rows, length = B // sizes[1], L // sizes[3]
    # 2 layers of the encoder, a mixer and a feed-forward each; the lookup of
    # tokens in a table that is cut by the vocabulary; what all
    # cross-attentions give back to the encoder.
    reduced = sum(
        count for shape, count in result['sent']['all-reduce'].items()
        if f'{rows},{length},32' in shape)
    assert reduced == 2 * 2 * 2 + 1 + 1, result['sent']
    for name in 'all-gather', 'all-to-all':
      assert not any(f'{rows},{length}' in shape or f'{B},{L}' in shape
                     for shape in result['sent'][name]), (sizes, name)


# --- Writing -----------------------------------------------------------------


def write(meshes):
  """Tokens written on each mesh."""
  model = models.build(make_config().model)
  texts = []
  for sizes in meshes:
    mesh = make_mesh(sizes)
    long_attention.ABSORBED = 64  # states are read in place of keys and values
    with jax.set_mesh(mesh):
      params = jax.jit(functools.partial(train.init_params, model=model))(
          jax.random.key(0))
      params = jax.device_put(params, sharding.param_shardings(mesh, params))
      inputs = sharding.global_batch(make_batch(), mesh)
      tokens, _ = generate.generate(
          model, params, inputs['encoder_input_tokens'], None,
          Settings(max_length=9, num_beams=2))
      texts.append(np.asarray(tokens).tolist())
  return texts


def test_the_same_is_written_on_every_mesh():
  one, *others = run('write', [
      (1, 1, 1, 1), (1, 1, 1, 8), (1, 2, 2, 2), (8, 1, 1, 1)])
  assert len({tuple(row) for row in one}) > 1
  for other in others:
    assert other == one


# --- Another mesh ------------------------------------------------------------


def restore(directory, meshes):
  """Saves a state on the first mesh and restores it on each: all equal?"""
  config = make_config()
  model = models.build(config.model)
  shapes = jax.eval_shape(
      lambda: train.init_params(jax.random.key(0), model))
  optimizer = optim.make_optimizer(config.optim, 9, shapes)
  init = functools.partial(
      train.init_state, model=model, optimizer=optimizer)
  checkpointer, first = checkpoint.Checkpointer(
      directory, config.checkpoint), None
  equal, parts = [], []
  for sizes in meshes:
    mesh = make_mesh(sizes)
    with jax.set_mesh(mesh):
      abstract = jax.eval_shape(init, jax.random.key(0))
      placed = sharding.state_shardings(mesh, abstract)
      if first is None:
        state = jax.jit(init, out_shardings=placed)(jax.random.key(0))
        checkpointer.save(5, state, {}, {})
        checkpointer.wait()
        first = jax.device_get(state)
      state = checkpointer.restore(5, sharding.abstract(abstract, placed))
    kernel = state.params['encoder']['layers']['mixer']['key']['kernel']
    parts.append(len({str(part.index) for part in kernel.addressable_shards}))
    equal.append(all(map(np.array_equal, jax.tree.leaves(first),
                         jax.tree.leaves(jax.device_get(state)))))
  checkpointer.close()
  return equal, parts


def test_a_checkpoint_goes_from_mesh_to_mesh(tmp_path):
  equal, parts = run('restore', str(tmp_path), [
      (1, 2, 2, 2), (1, 1, 1, 1), (8, 1, 1, 1), (1, 1, 1, 8), (1, 4, 2, 1)])
  assert all(equal) and parts == [4, 1, 1, 1, 8]
