"""Estimates what a run will need before it begins: `main --dry_run`.

The train step and the program that evaluations write with are compiled for the
largest batches that the config allows, on the run's mesh, from shapes alone:
nothing is computed, no parameter is made. Memory is XLA's own account of the
programs, per device; what JAX, the data pipeline and the allocator take besides
is not in it. Of devices that are not here (`topology`) the compiler itself says
what they cannot hold.
"""

import copy
import math

import jax
import jax.numpy as jnp

from locost_jax.data import order
from locost_jax.data import pages as pages_lib
from locost_jax.devices import memory
from locost_jax.devices import sharding
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hosts import collective
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.runs import counted_flops
from locost_jax.runs import dry_run_report
from locost_jax.runs import train_run
from locost_jax.training import optim
from locost_jax.training import train


def dry_run(phases, workdir, devices=None):
  """Checks what a run checks, and compiles its programs; makes no file.

  Args:
    phases: from `phases.make_phases`.
    workdir: WORKDIR.
    devices: from `topology.devices`, to compile for; None: those of this run.

  Returns:
    {'phases': [...]}, each of them `measure_phase`'s.
  """
  setups = [assemble.Setup(phase, devices) for phase in phases]
  vocabulary = checks.check_all(setups, workdir)
  for setup in setups:
    if vocabulary is not None:
      setup.use_vocabulary(vocabulary)
    elif not setup.config.model.vocab_size:  # one will be trained
      setup.config.model.vocab_size = setup.config.data.vocabulary_size
  if begun_from := train_run.check_init(setups[0]):
    collective.log(begun_from)
  return {'phases': [measure_phase(setup, devices) for setup in setups]}


def measure_phase(setup, devices=None):
  """Compiles a phase's programs; where they do not fit, also ways out.

  Args:
    setup: an assemble.Setup, vocab_size filled in.
    devices: as in `dry_run`.

  Returns:
    dict: name, task, steps, parameters; what `compile_programs` returns;
    available (bytes a device has left, None if unknown), fits, and
    changes: a list of dicts (config, total, fits), the last of which fits if
    any was found.
  """
  config = setup.config
  collective.log(f'{setup.name or "the step"}: compiling')
  found = dict(
      name=setup.name,
      task=setup.task,
      steps=config.train.steps,
      parameters=parameters.count(setup.shapes),
      **compile_programs(setup),
  )
  available = None if devices is not None else available_bytes()

  def fits(total):
    return total is not None and (available is None or total <= available)

  found.update(
      available=available,
      fits=fits(dry_run_report.peak_bytes(found)),
      changes=[],
  )
  step_fits = fits(found['memory'] and found['memory']['total'])
  ways = () if found['fits'] else ways_out(setup, step_fits)
  for change in ways:
    said = ' '.join(f'config.{key}={value}' for key, value in change.items())
    collective.log(f'it does not fit; compiling with {said}')
    phase = setup.phase._replace(config=changed(config, change))
    total = dry_run_report.peak_bytes(
        compile_programs(assemble.Setup(phase, devices))
    )
    found['changes'].append(dict(config=change, total=total, fits=fits(total)))
    if fits(total):
      break
  return found


def compile_programs(setup):
  """Compiles the train step, and what evaluations write with.

  Args:
    setup: an assemble.Setup, vocab_size filled in.

  Returns:
    dict: batch (documents, input_tokens, target_tokens), mesh (axis -> size),
    device (its kind), flops (of a step, all devices together) and, bytes per
    device, memory of a step: state (parameters and optimiser), arguments,
    temporary, output, reused (of the output, in place of arguments) and total;
    evaluating: documents, input_tokens, tokens, temporary, total (the state
    with it); None where evaluations write nothing. What the compiler refuses
    because of its memory is None, and `refused` says in its words why.
  """
  config, mesh = setup.config, setup.mesh
  documents, *read, T = largest_batch(config)
  if config.data.pages not in pages_lib.LOCALITIES:
    # Tokens and chunks are filled up; pages are cut.
    read[0] += -read[0] % mesh.shape[sharding.SEQUENCE]
  with jax.set_mesh(mesh):
    programs = train.make_programs(config, setup.model, mesh)
    state = sharding.abstract(
        jax.eval_shape(lambda: programs.init(jax.random.key(0))),
        programs.shardings,
    )
    step = programs.step.trace(
        state,
        {
            key: _array(mesh, (documents, *shape), key, dtype)
            for key, shape, dtype in (
                ('encoder_input_tokens', read, jnp.int32),
                ('decoder_input_tokens', (T,), jnp.int32),
                ('decoder_target_tokens', (T,), jnp.int32),
                ('decoder_loss_weights', (T,), jnp.float32),
            )
        },
    )
    results = dict(
        batch=dict(
            documents=documents,
            input_tokens=math.prod(read),
            target_tokens=T,
        ),
        mesh=dict(mesh.shape),
        device=mesh.devices.flat[0].device_kind,
        flops=counted_flops.count(step.jaxpr),
        memory=None,
        evaluating=None,
        refused=None,
    )
    try:
      results['memory'] = account(step.lower().compile(), bytes_of(state))
      if metric_table.of_summaries(config.eval.metrics):
        results['evaluating'] = _compile_writing(setup, read, state)
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      results['refused'] = (
          str(error).partition('RESOURCE_EXHAUSTED: ')[2].split('\n')[0]
      )
  return results


def _compile_writing(setup, read, state):
  """`evaluating` of `compile_programs`, with a state in memory."""
  config, mesh = setup.config, setup.mesh
  settings = evaluate.settings_of(config)
  rows, seeds = config.eval.batch_size, None
  if decode_settings.method_of(settings) == 'sample':
    seeds = _array(mesh, (rows,), dtype=jnp.uint32)
  params, kernels = lora.without(state.params), ()
  if config.train.lora.rank:  # merged ones exist next to those of the state
    kernels = ((config.train.lora.paths, 0.0),)
  shared, _ = optim.split(params, kernels)
  inputs = _array(mesh, (rows, *read), 'encoder_input_tokens')
  programs = [
      account(program, bytes_of(state))
      for program in _writing_programs(
          setup.model, params, inputs, settings, seeds
      )
  ]
  taken = max(programs, key=lambda taken: taken['total'])
  temporary = taken['temporary']
  if len(programs) > 1:  # and the memory that one hands to the other
    temporary = taken['total'] - bytes_of(params)
  return dict(
      documents=rows,
      input_tokens=math.prod(read),
      tokens=settings.max_length,
      temporary=temporary,
      total=taken['total'] + taken['state'] - bytes_of(shared),
  )


def _writing_programs(model, params, inputs, settings, seeds):
  """Yields the programs of `generate.generate`, compiled.

  Where the model compacts its memory there are two, to read and to write. How
  much is left is not known before, so the second is given all of it. Compacting
  needs less than reading, whose temporary arrays are gone by then.

  Args:
    model: the Flax module.
    params, inputs, seeds: shapes on the mesh; seeds may be None.
    settings: see `generate`.
  """
  if not hasattr(model, 'compact_memory'):
    write = generate.generate_in_one_program.trace(
        model, params, inputs, None, settings, seeds
    )
    yield write.lower().compile()
    return
  traced = generate.encode.trace(model, params, inputs, None)
  read = traced.lower().compile()
  yield read
  memory = jax.tree.map(
      lambda x, sharding: jax.ShapeDtypeStruct(
          x.shape, x.dtype, sharding=sharding
      ),
      traced.out_info,
      read.output_shardings,
  )
  write = generate.decode_memory.trace(model, params, memory, settings, seeds)
  yield write.lower().compile()


def _array(mesh, shape, key='', dtype=jnp.int32):
  """The shape of an array of a batch, where it lies on the mesh."""
  return jax.ShapeDtypeStruct(
      shape, dtype, sharding=sharding.batch_sharding(mesh, key)
  )


def account(compiled, state):
  """XLA's account of a program's memory; see `compile_programs`."""
  sizes = compiled.memory_analysis()
  taken = dict(
      state=state,
      arguments=sizes.argument_size_in_bytes,
      temporary=sizes.temp_size_in_bytes,
      output=sizes.output_size_in_bytes,
      reused=sizes.alias_size_in_bytes,
  )
  taken['total'] = (
      taken['arguments']
      + taken['temporary']
      + taken['output']
      - taken['reused']
  )
  return taken


def bytes_of(tree):
  """Bytes of a device's part of some arrays, given as shapes on a mesh."""
  return sum(
      math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
      for x in jax.tree.leaves(tree)
  )


def largest_batch(config):
  """(documents, input tokens, target tokens) of a step's largest shape.

  Where documents are in pages or chunks, (documents, pages, tokens of a page,
  targets).
  """
  data, settings = config.data, config.train
  read = (data.max_input_length,)
  if data.pages in pages_lib.LOCALITIES:
    read = data.num_pages, data.page_length
  elif data.pages:
    read = pages_lib.max_chunks(data), data.page_length
  documents = settings.batch_size
  if settings.batch_tokens:
    documents = order.rows_in_budget(settings.batch_tokens, math.prod(read))
  return documents, *read, data.max_target_length


def ways_out(setup, step_fits=False):
  """Changes of the config that take less memory, least harm first.

  All but the last, which reads less, leave the results as they are. Where the
  step fits it is evaluations that do not.
  """
  config, documents = setup.config, sharding.batch_parts(setup.mesh)
  rows = largest_batch(config)[0] // documents
  lean = {}
  if step_fits:
    if config.eval.batch_size > documents:
      lean = {'eval.batch_size': documents}
      yield lean
  else:
    if config.train.remat != 'full':
      lean = {'train.remat': 'full'}
      yield lean
    if rows > config.train.accumulate:
      lean = {**lean, 'train.accumulate': rows}
      yield lean
  is_paged = config.data.pages in pages_lib.LOCALITIES
  key = 'page_length' if is_paged else 'max_input_length'
  if config.data[key] > 1:
    yield {**lean, f'data.{key}': config.data[key] // 2}


def changed(config, change):
  """A copy of the config with {'train.remat': 'full', ...} set."""
  config = copy.deepcopy(config)
  for key, value in change.items():
    section, name = key.split('.')
    config[section][name] = value
  return config


def available_bytes():
  """Bytes that one device may still take; devices of a CPU share memory."""
  free = memory.free_device_bytes()
  if free is not None:
    return free
  free = memory.free_host_bytes()
  return None if free is None else free // jax.local_device_count()
