"""Programs for tests of meshes, in processes with eight host devices.

`run` calls functions that return JSON. The messages between devices are read
from the compiled program.
"""

import collections
import functools
import json
import os
import re

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import optax

from configs import default
from locost_jax import models
from locost_jax.config.decode_settings import Settings
from locost_jax.devices import sharding
from locost_jax.generation import generate
from locost_jax.models import locost
from locost_jax.models import parameters
from locost_jax.ops import copy_attention
from locost_jax.ops import long_attention
from locost_jax.ops import tokenwise
from locost_jax.ops.mesh import ROWS
from locost_jax.ops.mesh import SEQUENCE
from locost_jax.ops.mesh import TENSOR
from locost_jax.workdir import checkpointer as checkpointer_lib
from tests import batches
from tests import forked
from tests import small_training
from tests.models import small

COLLECTIVES = (
    'all-gather',
    'all-reduce',
    'collective-permute',
    'all-to-all',
    'reduce-scatter',
)
B, L, T = 8, 112, 24  # equal to no size of a parameter
# Of a model that has these keys.
SIZES = dict.fromkeys(('d_state', 'd_kv', 'num_heads'), 8)
SIZES |= dict(vocab_size=96, d_model=32, d_ff=64, decoder_d_ff=64, num_layers=1)
SIZES |= dict(num_decoder_layers=1, dropout_rate=0.0)


def run(function, *arguments, module='tests.mesh_program', devices=8):
  """Calls a function of a module in a process with N devices."""
  flags = f' --xla_force_host_platform_device_count={devices}'
  found = forked.call(
      *(module, function, *arguments),
      JAX_PLATFORMS='cpu',
      XLA_FLAGS=os.environ['XLA_FLAGS'] + flags,
  )
  return json.loads(json.dumps(found))


def make_config(name='locost', **model):
  """Returns the config of a small model without dropout."""
  config = default.get_config()
  config.model = getattr(default, name)()
  own = {key: SIZES[key] for key in SIZES if key in config.model}
  config.model.update(own | model)
  return config


def mesh_config(sizes):
  config = default.get_config().mesh
  config.data, config.fsdp, config.tensor, config.sequence = sizes
  return config


def make_mesh(sizes, devices=None):
  return sharding.make_mesh(mesh_config(sizes), devices)


def sent(compiled):
  """Returns {collective: {shape: count}} of a compiled program, per device.

  Several arrays in one message have the shape '8,32+8,32'.
  """
  found = {name: collections.Counter() for name in COLLECTIVES}
  for result, name in re.findall(
      r' = (.*?) (%s)(?:-start)?\(' % '|'.join(COLLECTIVES), compiled.as_text()
  ):
    found[name]['+'.join(re.findall(r'\[([\d,]*)\]', result))] += 1
  return found


def difference(a, b):
  """Returns the largest difference relative to a's largest number, if any."""
  return float(np.abs(a - b).max() / (np.abs(a).max() or 1))


def difference_of_trees(a, b):
  """Returns the largest `difference` of two trees' leaves.

  A bias added to every score of a softmax has no gradient except rounding
  errors, so it is compared with the largest number of all leaves.
  """
  a, b = parameters.flatten(a), parameters.flatten(b)
  largest = max(float(np.abs(x).max()) for x in a.values())
  return max(
      float(np.abs(a[path] - b[path]).max()) / largest
      if re.search('(_attention/key|confidence)/bias', path)
      else difference(a[path], b[path])
      for path in a
  )


def mixer(cases):
  """Returns how much the convolution on each mesh differs from one device's.

  Args:
    cases: list of (sizes of the mesh, length, whether XLA's partitioner handles
      the FFT alone, keys of the model).
  """
  return [_mixer(*case) for case in cases]


def _with_gradients(convolve):
  loss = lambda u, p: (convolve(u, p) ** 2).mean()
  return jax.jit(lambda u, p: (convolve(u, p), jax.grad(loss, (0, 1))(u, p)))


@functools.cache
def _convolution(length, keys):
  """Returns (config, convolution, its arguments, results on one device)."""
  config = models.build(make_config(**dict(keys)).model).config
  init = functools.partial(locost.BiSSM(config).init, method=lambda x: x.all)
  p = small.drawn(jax.eval_shape(init, jax.random.key(0))['params'], 0.3)
  shape = config.d_model, B, length
  u = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)

  def convolve(u, p):
    return locost.convolve(config, u, *locost.discretise(config, p))

  return config, convolve, (u, p), _with_gradients(convolve)(u, p)


def _mixer(sizes, length, plain, model):
  config, convolve, (u, p), (y, gradients) = _convolution(
      length, tuple(model.items())
  )

  def partitioned(u, p):
    spectrum = locost.spectrum(
        config, *locost.discretise(config, p), length, 0, config.d_model
    )
    n = locost.transform_of(config, length).n
    # Transforms of [B, D, L]: XLA's CPU backend has no FFT for the layout that
    # the partitioner chooses for [D, B, L].
    y = jnp.fft.irfft(jnp.fft.rfft(u.swapaxes(0, 1), n) * spectrum, n)
    return y[..., :length].swapaxes(0, 1)

  mesh = make_mesh(sizes)
  with jax.set_mesh(mesh):
    u = jax.device_put(u, NamedSharding(mesh, P(TENSOR, ROWS, SEQUENCE)))
    function = _with_gradients(partitioned if plain else convolve)
    compiled = function.lower(u, p).compile()
    found, found_gradients = compiled(u, p)
  return dict(
      outputs=difference(y, found),
      gradients=max(
          map(difference, *map(jax.tree.leaves, (gradients, found_gradients)))
      ),
      sent=sent(compiled),
  )


def make_batch():
  random = np.random.default_rng(0)
  inputs = random.integers(2, 96, (B, L))
  for i in range(B):
    inputs[i, L - 13 * i :] = 0
  weights = np.arange(T) < random.integers(4, T, (B, 1))
  targets = np.where(weights, random.integers(2, 96, (B, T)), 0)
  return batches.as_batch(inputs, targets, weights)


def placed(params, mesh, batch, pad_id=0):
  """Returns parameters and a batch, both on a mesh."""
  params = jax.device_put(params, sharding.param_shardings(mesh, params))
  return params, sharding.global_batch(batch, mesh, pad_id)


def step(meshes, in_pieces, dtype='float32'):
  """`steps` of LOCOST."""
  return steps(make_config(), make_batch(), meshes, in_pieces, dtype)


def windowed(models, meshes):
  """`steps` of BARTs with other encoders: {name: keys} -> {name: results}."""
  results = {}
  for name, keys in models.items():
    config = make_config(name, **dict(num_layers=2, pad_id=0) | keys)
    results[name] = steps(config, make_batch(), meshes, True, 'float64')
  return results


def steps(config, batch, meshes, in_pieces, dtype):
  """Returns how much a step on each mesh differs from one device's.

  batch has numpy arrays; in_pieces: also for its short texts.
  """
  jax.config.update('jax_enable_x64', dtype == 'float64')
  if in_pieces:
    long_attention.LONG = 0
    tokenwise.CPU_PIECE = 24
  remat = 'pieces' if in_pieces else 'none'
  model = models.build(config.model, dtype=dtype, remat=remat)
  pad_id = model.config.pad_id
  # An optimiser that changes nothing and keeps the gradient.
  optimizer = optax.with_extra_args_support(optax.trace(0.0))
  make_step = functools.partial(
      small_training.make_step, config, model, optimizer
  )
  start, shapes = small.drawn_state(make_step()[0], 0.2, dtype)
  results = []
  for sizes in [(1, 1, 1, 1), *meshes]:
    mesh = make_mesh(sizes)
    with jax.set_mesh(mesh):
      placed = sharding.state_shardings(mesh, shapes)
      state = jax.device_put(start, placed)
      _, function = make_step((placed, sharding.replicated(mesh)))
      placed_batch = sharding.global_batch(batch, mesh, pad_id)
      compiled = function.lower(state, placed_batch).compile()
      after, metrics = jax.device_get(compiled(state, placed_batch))
      after = after.opt_state.trace, after.params
      results.append((after, metrics, sent(compiled)))
  (one, expected, _), *others = results
  return [
      dict(
          loss=abs(float(metrics['loss'] / expected['loss']) - 1),
          gradients=difference_of_trees(one[0], found[0]),
          parameters=difference_of_trees(one[1], found[1]),
          flops=float(metrics['flops'] / expected['flops']),
          sent=messages,
      )
      for found, metrics, messages in others
  ]


def write(meshes):
  """Returns the generated tokens on each mesh."""
  model = models.build(make_config().model)
  drawn, texts = small.drawn_params(model, 0.2), []
  for sizes in meshes:
    mesh = make_mesh(sizes)
    long_attention.ABSORBED = 64  # steps read states instead of keys and values
    with jax.set_mesh(mesh):
      params, inputs = placed(drawn, mesh, make_batch())
      tokens, _ = generate.generate(
          model,
          params,
          inputs['encoder_input_tokens'],
          None,
          Settings(max_length=9, num_beams=2),
      )
      texts.append(np.asarray(tokens).tolist())
  return texts


def place(lengths):
  """Shards batches of these lengths over 8 devices; returns them as lists."""
  keys, mesh = ('encoder_input_tokens', 'encoder_positions'), (1, 1, 1, 8)
  place = functools.partial(
      sharding.global_batch, mesh=make_mesh(mesh), pad_id=1
  )
  full = [{key: np.full((2, length), 5) for key in keys} for length in lengths]
  return jax.tree.map(lambda x: np.asarray(x).tolist(), [*map(place, full)])


def restore(directory, meshes):
  """Saves a state on the first mesh and compares the restored one on each."""
  config = make_config()
  init, _ = small_training.make_step(config, models.build(config.model))
  checkpointer = checkpointer_lib.Checkpointer(directory, config.checkpoint)
  first, abstract = small.drawn_state(init, 0.2)
  equal, parts = [], []
  for sizes in meshes:
    mesh = make_mesh(sizes)
    with jax.set_mesh(mesh):
      placed = sharding.state_shardings(mesh, abstract)
      if not equal:
        checkpointer.save(5, jax.device_put(first, placed), {})
        checkpointer.wait()
      state = checkpointer.restore(
          5, sharding.abstract_arrays(abstract, placed)
      )
    kernel = state.params['encoder']['layers']['mixer']['key']['kernel']
    parts.append(len({str(part.index) for part in kernel.addressable_shards}))
    leaves = map(jax.tree.leaves, (first, jax.device_get(state)))
    equal.append(all(map(np.array_equal, *leaves)))
  checkpointer.close()
  return equal, parts


def copied(meshes):
  """Compares `ops.copy_attention` on meshes with one device."""
  rng = np.random.default_rng(0)
  shapes = (8, 6, 4), (8, 96, 4)
  queries, keys = (jnp.asarray(rng.normal(size=x), jnp.float32) for x in shapes)
  mask = np.arange(96) < rng.integers(1, 97, (8, 1))
  targets, tokens = (rng.integers(0, 10, x[:2]) for x in shapes)
  weights = jnp.asarray(rng.normal(size=(8, 6, 2)), jnp.float32)
  written, read = (rng.integers(0, 3, (*x[:2], 2)) for x in shapes)

  def arguments(queries, weights, keys):
    return (
        copy_attention.Queries(queries, weights, written),
        copy_attention.Source(keys, mask, tokens, read),
    )

  def loss(*floats):
    log_mass, _ = copy_attention.at_targets(*arguments(*floats), targets, 5)
    return jnp.where(log_mass > -1e9, log_mass, 0).sum(), log_mass

  @jax.jit
  def everything(*floats):
    (_, found), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(
        *floats
    )
    c = copy_attention.of_all(*arguments(*floats), 10, 5)
    return {'all': c, 'targets': jnp.exp(found), 'gradients': gradients}

  expected = everything(queries, weights, keys)
  results = []
  for sizes in meshes:
    mesh = make_mesh(sizes)
    with jax.set_mesh(mesh):
      placed = [
          jax.device_put(x, NamedSharding(mesh, spec))
          for x, spec in (
              (queries, P(ROWS)),
              (weights, P(ROWS)),
              (keys, P(ROWS, SEQUENCE)),
          )
      ]
      compiled = everything.lower(*placed).compile()
      found = compiled(*placed)
    numbers = {
        key: difference_of_trees(found[key], expected[key]) for key in expected
    }
    numbers['gathered'] = sum(sent(compiled)['all-gather'].values())
    results.append((sizes, numbers))
  return results
