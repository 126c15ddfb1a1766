"""Estimates a run's memory and arithmetic before it starts: `main --dry_run`.

Compiles the train step and the generation program of evaluations for the
largest batches of the config, on the run's mesh, from shapes alone: nothing is
computed and no parameter is allocated. The memory is what XLA reports for the
programs, per device; it does not include what JAX, the data pipeline and the
allocator need. For devices that are not present (`topology`), the compiler
reports when the programs do not fit.
"""

import copy
import math

import jax
import jax.numpy as jnp

from locost_jax.config import decode_settings
from locost_jax.data import order
from locost_jax.data import pages as pages_lib
from locost_jax.devices import memory
from locost_jax.devices import sharding
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
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
  """Runs all checks of a run and compiles its programs; writes no file.

  Args:
    devices: the devices to compile for, from `topology.devices`; None: this
      machine's.

  Returns:
    {'phases': [...]}, each from `measure_phase`.
  """
  setups = [assemble.Setup(phase, devices) for phase in phases]
  vocabulary = checks.check_all(setups, workdir)
  for setup in setups:
    if vocabulary is not None:
      setup.use_vocabulary(vocabulary)
    elif not setup.config.model.vocab_size:  # a vocabulary will be trained
      setup.config.model.vocab_size = setup.config.data.vocabulary_size
  if warm_start_report := train_run.check_init(setups[0]):
    collective.log(warm_start_report)
  return {'phases': [measure_phase(setup, devices) for setup in setups]}


def measure_phase(setup, devices=None):
  """Compiles a phase's programs; if they do not fit, also smaller variants.

  Args:
    setup: an assemble.Setup, vocab_size filled in.

  Returns:
    dict: name, task, steps, parameters; the results of `compile_programs`;
    available (free bytes of a device, None if unknown), fits, and changes: a
    list of dicts (config, total, fits), which ends with the first change that
    fits.
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
  changes = () if found['fits'] else propose_changes(setup, step_fits)
  for change in changes:
    keys = ' '.join(f'config.{key}={value}' for key, value in change.items())
    collective.log(f'it does not fit; compiling with {keys}')
    phase = setup.phase._replace(config=changed(config, change))
    total = dry_run_report.peak_bytes(
        compile_programs(assemble.Setup(phase, devices))
    )
    found['changes'].append(dict(config=change, total=total, fits=fits(total)))
    if fits(total):
      break
  return found


def compile_programs(setup):
  """Compiles the train step and the generation program of evaluations.

  Args:
    setup: an assemble.Setup, vocab_size filled in.

  Returns:
    A dict with these keys; memory is in bytes per device.
      batch: documents, input_tokens, target_tokens.
      mesh: {axis: size}.
      device: kind of device.
      flops: of a step, on all devices together.
      memory: of a step: state (parameters and optimiser), arguments, temporary,
        output, reused (the part of the output in place of arguments), total.
        None if the compiler refuses the step.
      evaluating: documents, input_tokens, tokens, temporary, total (including
        the state). None if evaluations generate nothing, or if refused.
      refused: the compiler's message that a program needs too much memory, or
        None.
  """
  config, mesh = setup.config, setup.mesh
  documents, *read, T = largest_batch(config)
  if config.data.pages not in pages_lib.LOCALITIES:
    # Tokens and chunks are padded; pages are cut.
    read[0] += -read[0] % mesh.shape[sharding.SEQUENCE]
  with jax.set_mesh(mesh):
    programs = train.make_programs(config, setup.model, mesh)
    state = sharding.abstract_arrays(
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
        results['evaluating'] = _compile_generation(setup, read, state)
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      results['refused'] = (
          str(error).partition('RESOURCE_EXHAUSTED: ')[2].split('\n')[0]
      )
  return results


def _compile_generation(setup, read, state):
  """Returns `evaluating` of `compile_programs`, with a state in memory."""
  config, mesh = setup.config, setup.mesh
  settings = evaluate.settings_of(config)
  rows, seeds = config.eval.batch_size, None
  if decode_settings.method_of(settings) == 'sample':
    seeds = _array(mesh, (rows,), dtype=jnp.uint32)
  params, kernels = lora.without(state.params), ()
  if config.train.lora.rank:  # merged kernels exist next to the state's
    kernels = ((config.train.lora.paths, 0.0),)
  shared, _ = optim.split(params, kernels)
  inputs = _array(mesh, (rows, *read), 'encoder_input_tokens')
  programs = [
      account(program, bytes_of(state))
      for program in _generation_programs(
          setup.model, params, inputs, settings, seeds
      )
  ]
  taken = max(programs, key=lambda taken: taken['total'])
  temporary = taken['temporary']
  if len(programs) > 1:  # include the encoder memory passed between them
    temporary = taken['total'] - bytes_of(params)
  return dict(
      documents=rows,
      input_tokens=math.prod(read),
      tokens=settings.max_length,
      temporary=temporary,
      total=taken['total'] + taken['state'] - bytes_of(shared),
  )


def _generation_programs(model, params, inputs, settings, seeds):
  """Yields the compiled programs of `generate.generate`.

  A model that compacts its encoder memory has two, to read and to write. The
  compacted size is not known in advance, so the second takes the whole memory.
  Compacting itself needs less than reading, whose temporary arrays are freed by
  then.

  Args:
    params, inputs, seeds: shapes on the mesh; seeds may be None.
  """
  if not model.config.is_compacted:
    write = generate.read_and_write.trace(
        model, params, inputs, None, settings, seeds
    )
    yield write.lower().compile()
    return
  traced = generate.read.trace(model, params, inputs, None)
  read = traced.lower().compile()
  yield read
  memory = jax.tree.map(
      lambda x, sharding: jax.ShapeDtypeStruct(
          x.shape, x.dtype, sharding=sharding
      ),
      traced.out_info,
      read.output_shardings,
  )
  write = generate.write.trace(model, params, memory, settings, seeds)
  yield write.lower().compile()


def _array(mesh, shape, key='', dtype=jnp.int32):
  """Returns the ShapeDtypeStruct of an array of a batch, sharded on the mesh."""
  return jax.ShapeDtypeStruct(
      shape, dtype, sharding=sharding.batch_sharding(mesh, key)
  )


def account(compiled, state):
  """Returns a program's memory as XLA reports it; see `compile_programs`."""
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
  """Returns the bytes per device of a tree of sharded shapes."""
  return sum(
      math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
      for x in jax.tree.leaves(tree)
  )


def largest_batch(config):
  """Returns (documents, input tokens, target tokens) of a step's largest shape.

  With pages or chunks: (documents, pages, tokens of a page, target tokens).
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


def propose_changes(setup, step_fits=False):
  """Yields changes of the config that need less memory, least harmful first.

  All but the last, which halves the input length, leave the results as they
  are.

  Args:
    setup: an assemble.Setup that does not fit.
    step_fits: whether the train step fits, so that only evaluations do not.
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
  """Returns a copy of the config with {'train.remat': 'full', ...} set."""
  config = copy.deepcopy(config)
  for key, value in change.items():
    section, name = key.split('.')
    config[section][name] = value
  return config


def available_bytes():
  """Returns the free bytes of one device, or None; CPU devices share memory."""
  free = memory.free_device_bytes()
  if free is not None:
    return free
  free = memory.free_host_bytes()
  return None if free is None else free // jax.local_device_count()
