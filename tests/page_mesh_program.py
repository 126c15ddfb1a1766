"""Programs for tests of pages and chunks, in processes with eight devices.

Each function returns JSON; `mesh_program.run` calls them.
"""

import functools
import json
from unittest import mock

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
import numpy as np

from locost_jax import models
from locost_jax.config.decode_settings import Settings
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.models import selector as selector_lib
from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import tokenwise
from locost_jax.runs import assemble
from locost_jax.runs import dry_run
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import step as step_lib
from locost_jax.workdir import phases as phases_lib
from tests import batches
from tests import mesh_program
from tests.models import small

# Lengths of inputs, targets and summaries; they divide no size of a parameter.
B, P, L, T, S = 4, 8, 28, 11, 13
PAD, EOS = 1, 2
SIMCAS = dict(name='simcas', num_layers=2)
make_config = functools.partial(
    mesh_program.make_config,
    name='pagesum',
    num_heads=4,
    max_positions=30,
    pad_id=PAD,
)


def make_batch(name='pagesum'):
  """Returns ragged documents of a model."""
  random = np.random.default_rng(0)
  inputs = random.integers(3, 96, (B, P, L))
  if name == 'simcas':  # 1, 8, 3, 5 chunks; last chunks are padded inside
    inputs[..., -1] = EOS
    for row, count in enumerate((1, 8, 3, 5)):
      inputs[row, count - 1, 9:-1] = PAD
      inputs[row, count:] = PAD
  else:  # ragged pages; document b has b empty pages
    kept = random.integers(2, L + 1, (B, P, 1))
    kept[np.arange(P) >= P - np.arange(B)[:, None]] = 0
    inputs = np.where(np.arange(L) < kept, inputs, PAD)
  targets = random.integers(3, 96, (B, T))
  weights = np.arange(T) < random.integers(4, T, (B, 1))
  targets = np.where(weights, targets, PAD)
  return batches.as_batch(inputs, targets, weights, start=2)


def naively(function, *arguments):
  """A `mesh.by_page` that ignores the mesh and folds pages into rows."""
  P = jax.tree.leaves(arguments)[0].shape[1]
  fold = lambda x: x.reshape(-1, *x.shape[2:])
  result = function(*jax.tree.map(fold, arguments))
  return jax.tree.map(lambda x: x.reshape(-1, P, *x.shape[1:]), result)


def step(meshes, in_pieces=False, model=(), dtype='float32'):
  """`mesh_program.steps` of a model that reads pages."""
  config = make_config(**dict(model))
  batch = make_batch(config.model.name)
  return mesh_program.steps(config, batch, meshes, in_pieces, dtype)


def control(sizes):
  """Returns the messages of gradients and decoding with `naively`."""
  model = models.build(make_config().model, remat='none')
  settings = Settings(max_length=S, start_id=2, eos_id=2, pad_id=PAD)
  mesh = mesh_program.make_mesh(sizes)
  with (
      jax.set_mesh(mesh),
      mock.patch.object(mesh_lib, 'by_page', naively),
      mock.patch.object(mesh_lib, 'page_parts', lambda pages: 1),
  ):
    params = jax.eval_shape(
        lambda: step_lib.init_params(jax.random.key(0), model)
    )
    params = sharding.abstract_arrays(
        params, sharding.param_shardings(mesh, params)
    )
    batch = sharding.global_batch(make_batch(), mesh, PAD)

    def loss(params, batch):
      return step_lib.token_sums(params, batch, model)[0]

    learning = jax.jit(jax.grad(loss)).lower(params, batch)
    writing = generate.read_and_write.lower(
        model, params, batch['encoder_input_tokens'], None, settings
    )
    return [mesh_program.sent(x.compile()) for x in (learning, writing)]


def several(calls):
  """Returns what each [function, *arguments] returns."""
  return [globals()[name](*arguments) for name, *arguments in calls]


def written(meshes, model, options, factor, length):
  """Yields what is read and written on each mesh.

  Args:
    meshes: sizes; states are compared with those of the first mesh.
    model: keys of the model.
    options: keys of `Settings`.
    factor: of the parameters that write: larger ones, so that texts differ.
    length: most tokens written.

  Yields:
    ((model, params, inputs, None, settings), {states, mask, pages}).
  """
  config, first = make_config(**dict(model)), None
  built = models.build(config.model)
  settings = Settings(
      max_length=length, start_id=2, eos_id=2, pad_id=PAD, **options
  )
  drawn = small.drawn_params(built, 0.2)
  for sizes in meshes:
    mesh = mesh_program.make_mesh(sizes)
    with jax.set_mesh(mesh):
      params, batch = mesh_program.placed(
          drawn, mesh, make_batch(config.model.name), PAD
      )
      inputs = batch['encoder_input_tokens']
      memory = generate.read(built, params, inputs, None)
      mask = np.asarray(memory['mask'])
      states = np.where(mask[..., None], memory['states'], 0)
      first = states if first is None else first
      params = jax.jit(lambda p: jax.tree.map(lambda x: factor * x, p))(params)
      facts = dict(
          states=mesh_program.difference(first, states),
          mask=mask.tolist(),
          pages=memory['states'].sharding.shard_shape(states.shape)[1],
      )
      yield (built, params, inputs, None, settings), facts


def write(meshes, settings, model=(), reads_states=False):
  """Encodes and generates on each mesh; returns the messages too.

  Args:
    reads_states: whether steps read states instead of keys and values.
  """
  if reads_states:
    long_attention.ABSORBED = 1
  results = []
  for arguments, facts in written(meshes, model, settings, 3, S):
    compiled = generate.read_and_write.lower(*arguments).compile()
    tokens, scores = compiled(*arguments[1:4])
    results.append(
        facts
        | dict(
            tokens=np.asarray(tokens).tolist(),
            scores=np.asarray(scores).tolist(),
            sent=mesh_program.sent(compiled),
        )
    )
  return results


def rows():
  """Checks order and random numbers of rows of pages on 2 x 4 devices.

  Returns:
    (whether the pages come back unchanged, whether each device had only the
    rows of its own pages, count of random numbers, count of different ones).
  """
  x = np.arange(B * P * 3.0).reshape(B, P, 3)
  own = PartitionSpec(mesh_lib.ROWS)

  def draw(key, x):
    key = mesh_lib.own_key(key, *mesh_lib.ROWS)
    return jax.random.uniform(key, x.shape), jnp.broadcast_to(x.sum(), (1,))

  def function(x):
    drawn, sums = mesh_lib.on_mesh(
        draw,
        (PartitionSpec(), own),
        (own, own),
        jax.random.key(0),
        x,
    )
    return x, drawn, jnp.repeat(sums, 4)

  with jax.set_mesh(mesh_program.make_mesh((2, 1, 1, 4))):
    same, drawn, sums = jax.jit(functools.partial(mesh_lib.by_page, function))(
        x
    )
  parts = x.reshape(2, 2, 4, 2, 3).sum((1, 3, 4))
  expected = parts.repeat(2, 0).repeat(2, 1)
  return (
      np.array_equal(x, same),
      np.array_equal(expected, sums),
      drawn.size,
      len(np.unique(drawn)),
  )


def refused():
  """Returns the error message for 6 pages on 4 devices."""
  batch = {'encoder_input_tokens': np.ones((2, 6, L), np.int32)}
  try:
    sharding.global_batch(batch, mesh_program.make_mesh((2, 1, 1, 4)), PAD)
  except InputError as error:
    return str(error)


def gradients_of_jitted():
  """Returns how much gradients through a jitted model differ on a mesh.

  jit makes JAX trace the backward pass separately from the model.
  """
  long_attention.LONG = 0
  tokenwise.CPU_PIECE = 24
  model = models.build(make_config().model, remat='pieces')
  batch = make_batch()

  @jax.jit
  def loss(params, inputs, targets):
    apply = functools.partial(model.apply, {'params': params})
    states, _ = apply(inputs, targets, method='states')
    return (states**2).mean()

  found, params = [], small.drawn_params(model, 0.2)
  for sizes in (1, 1, 1, 1), (2, 1, 1, 4):
    with jax.set_mesh(mesh_program.make_mesh(sizes)):
      read = batch['encoder_input_tokens'], batch['decoder_input_tokens']
      found.append(jax.device_get(jax.grad(loss)(params, *read)))
  return mesh_program.difference_of_trees(*found)


def dry_runs(meshes):
  """Returns the dry run of each mesh, with long pages."""
  results = []
  for sizes in meshes:
    config = make_config(max_positions=256)
    config.mesh = mesh_program.mesh_config(sizes)
    config.data.pages = 'spatial'
    config.data.update(num_pages=P, page_length=256, max_target_length=16)
    config.train.batch_size = 2
    config.eval.metrics = ('loss',)
    setup = assemble.Setup(phases_lib.Phase('', None, config))
    results.append(dry_run.compile_step(setup))
  return json.loads(json.dumps(results))


def turns(meshes):
  """Takes three steps of the objective 'simcas', the second with a turn.

  Returns:
    The largest relative differences of each other mesh from the first:
    `selector` and `others` (parameters) and `metrics`.
  """
  config = make_config(name='simcas')
  config.train.update(steps=3, batch_size=B, objective='simcas')
  # A large eps keeps Adam from amplifying rounding errors.
  config.optim.update(learning_rate=1e-3, eps=1e-3)
  config.selector.update(every=2, limit=8, learning_rate=1e-3, kl=1e9)
  model = models.build(config.model)
  results, start = [], None
  for sizes in meshes:
    mesh = mesh_program.make_mesh(sizes)
    with jax.set_mesh(mesh):
      programs = objectives.make_programs(config, model, mesh)
      if start is None:
        start = jax.device_get(small.drawn_state(programs.init, 0.2)[0])
      state = jax.device_put(start, programs.shardings)
      batch = sharding.global_batch(make_batch('simcas'), mesh, PAD)
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


def write_compact(meshes, settings, model):
  """Encodes and generates on each mesh, from a compact memory."""
  results = []
  for arguments, facts in written(meshes, SIMCAS | model, settings, 2, 9):
    built, params, inputs, _, chosen = arguments
    memory = generate.read(built, params, inputs, None)
    compact = built.compact_memory(memory)
    found = generate.generate(*arguments)
    whole = generate.write(built, params, memory, chosen)
    results.append(
        facts
        | dict(
            tokens=np.asarray(found[0]).tolist(),
            scores=np.asarray(found[1]).tolist(),
            whole=np.asarray(whole[0]).tolist(),
            most=int(selector_lib.selected_counts(memory).max()),
            slots=compact['mask'][0].size,
            here=compact['states'].sharding.shard_shape(
                compact['states'].shape
            ),
        )
    )
  return results
