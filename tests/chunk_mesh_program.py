"""Programs for tests of chunks on a mesh, in processes with eight devices.

Each function returns JSON; `mesh_program.run` calls them.
"""

import jax
import numpy as np

from configs import default
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.generation import generate
from locost_jax.generation.decode_settings import Settings
from locost_jax.models import chunk_memory
from locost_jax.training import optim
from locost_jax.training import train
from tests import mesh_program

B, C, L, T, S = 4, 8, 28, 11, 9
COUNTS = 1, 8, 3, 5
PAD, EOS = 1, 2


def make_config(**model):
  config = mesh_program.small_bart(default.simcas(), layers=2)
  config.model.update(model)
  return config


def make_batch():
  """Returns documents of 1, 8, 3, 5 chunks; last chunks are padded inside."""
  random = np.random.default_rng(0)
  inputs = random.integers(3, 96, (B, C, L))
  inputs[..., -1] = EOS
  for row, count in enumerate(COUNTS):
    inputs[row, count - 1, 9:-1] = PAD
    inputs[row, count:] = PAD
  return mesh_program.with_targets(random, inputs, T)


def step(meshes, model, dtype='float32'):
  """Returns how much a step on each mesh differs from one device's."""
  jax.config.update('jax_enable_x64', dtype == 'float64')
  config = make_config(**model)
  return mesh_program.steps(config, make_batch(), meshes, 'none', dtype)


def turns(meshes):
  """Takes three steps of the objective 'simcas', the second with a turn.

  Returns:
    The largest relative differences of each other mesh from the first:
    `selector` and `others` (parameters) and `metrics`.
  """
  config = make_config()
  config.train.update(steps=3, batch_size=B, objective='simcas')
  # A large eps keeps Adam from amplifying rounding errors.
  config.optim.update(learning_rate=1e-3, eps=1e-3)
  config.selector.update(every=2, limit=8, learning_rate=1e-3, kl=1e9)
  model = models.build(config.model)
  results = []
  for sizes in meshes:
    mesh = mesh_program.make_mesh(sizes)
    with jax.set_mesh(mesh):
      programs = train.make_programs(config, model, mesh)
      state = jax.jit(programs.init, out_shardings=programs.shardings)(
          jax.random.key(0)
      )
      batch = sharding.global_batch(make_batch(), mesh, PAD)
      seen = []
      for _ in range(3):
        state, metrics = programs.step(state, batch)
        seen.append(jax.device_get(metrics))
    results.append((jax.device_get(state.params), seen))
  (one, expected), *others = results
  groups = ((r'selector/.*', 1.0), (r'.*', 0.0))
  selector, rest = optim.split(one, groups)
  return [
      dict(
          selector=mesh_program.difference_of_trees(
              selector, optim.split(params, groups)[0]
          ),
          others=mesh_program.difference_of_trees(
              rest, optim.split(params, groups)[1]
          ),
          turns=int(seen[-1]['turns']),
          reward=float(seen[-1]['reward']),
          metrics=max(
              float(abs(step[key] - right[key]) / (1e-3 + abs(right[key])))
              for step, right in zip(seen, expected)
              for key in right
              if not key.startswith('grad_norm/')
          ),
      )
      for params, seen in others
  ]


def write(meshes, settings, model):
  """Encodes and generates on each mesh, from a compact memory.

  Args:
    meshes: sizes; states are compared with those of the first mesh.
    settings: keys of `Settings`.
    model: keys of the model.
  """
  built = models.build(make_config(**model).model)
  settings = Settings(
      max_length=S, start_id=2, eos_id=2, pad_id=PAD, **settings
  )
  results, first = [], None
  for sizes in meshes:
    mesh = mesh_program.make_mesh(sizes)
    with jax.set_mesh(mesh):
      params = mesh_program.new_params(built, mesh)
      batch = sharding.global_batch(make_batch(), mesh, PAD)
      inputs = batch['encoder_input_tokens']
      encode = lambda params: generate.encode(built, params, inputs, None)
      encoded = encode(params)
      mask = np.asarray(encoded['mask'])
      states = np.where(mask[..., None], encoded['states'], 0)
      first = states if first is None else first
      # Larger parameters, so that the texts differ.
      params = jax.tree.map(lambda x: 2 * x, params)
      memory = encode(params)
      small = built.compact_memory(memory)
      found = generate.generate(built, params, inputs, None, settings)
      whole = generate.decode_memory(built, params, memory, settings)
    results.append(
        dict(
            tokens=np.asarray(found[0]).tolist(),
            scores=np.asarray(found[1]).tolist(),
            whole=np.asarray(whole[0]).tolist(),
            mask=mask.tolist(),
            states=mesh_program.difference(first, states),
            most=int(chunk_memory.selected_counts(memory).max()),
            slots=small['mask'][0].size,
            here=small['states'].sharding.shard_shape(small['states'].shape),
            chunks=memory['states'].sharding.shard_shape(states.shape)[1],
        )
    )
  return results
