"""Estimates a run's memory and arithmetic before it starts: `main --dry_run`.

Compiles the train step, or with --evaluate the program that writes summaries,
for the largest batch of the config, on the run's mesh, from shapes alone:
nothing is computed and no parameter is allocated. The memory is what XLA
reports for the program, per device; it does not include what JAX, the data
pipeline and the allocator need. For devices that are not present, see
`topology`; they need neither the corpus nor the vocabulary of the run.
"""

import json
import math

import jax
import jax.numpy as jnp

from locost_jax.config import decode_settings
from locost_jax.config import tables
from locost_jax.data import pages as pages_lib
from locost_jax.devices import collective
from locost_jax.devices import compiling
from locost_jax.devices import memory
from locost_jax.devices import sharding
from locost_jax.devices import topology as topology_lib
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.models import flops
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.telemetry import step_times
from locost_jax.training import objectives
from locost_jax.training import warm_start

# Tokens of a vocabulary that is not here: BART's, T5's has 32,128.
_RELEASED_TOKENS = 50_265

# The words of a report that depend on the program.
_TRAINING = dict(
    what='step',
    state='parameters and optimiser',
    temporary='gradients and what they are made from',
    advice='train.remat=full, a larger train.accumulate,\n'
    '  shorter inputs, a smaller model, optim.name=adafactor',
)
_EVALUATION = dict(
    what='program',
    state='parameters',
    temporary='states of the documents and of their beams',
    advice='a smaller eval.batch_size, shorter inputs,\n'
    '  decode.num_beams=1, a smaller model',
)


def dry_run(phases, workdir, topology=None, evaluates=False):
  """Runs all checks of a run and compiles its train steps; writes no file.

  Args:
    topology: devices to compile for, see `topology`; None: this machine's.
      With a name, files, vocabulary and train.init_from are not checked.
    evaluates: compile the last phase's `compile_summaries` instead.

  Returns:
    {'phases': [...]}, each from `measure_phase`.
  """
  target = None
  if topology:
    target = topology_lib.find(topology_lib.name_slice(topology))
  devices = target and target.devices
  setups = [assemble.Setup(phase, devices) for phase in phases]
  if target:
    checks.check_configs(setups, workdir)
    vocabulary = _find_vocabulary(setups, workdir)
  else:
    vocabulary = checks.check_all(setups, workdir)
  for setup in setups:
    setup.expect_vocabulary(vocabulary)
  if not target:
    first = setups[0]
    _, report = warm_start.load(first.config, first.shapes, first.directory)
    if report:
      collective.log(report)
  shown = setups[-1:] if evaluates else setups
  return {'phases': [measure_phase(x, target, evaluates) for x in shown]}


def _find_vocabulary(setups, workdir):
  """Returns the run's vocabulary; None: it is not here, or will be trained."""
  if all(setup.config.model.vocab_size for setup in setups):
    return None
  try:
    return checks.choose_vocabulary(setups, workdir)
  except InputError as error:
    collective.log(f'{error}; assuming model.vocab_size={_RELEASED_TOKENS}')
  for setup in setups:
    setup.config.model.vocab_size = _RELEASED_TOKENS
  return None


def measure_phase(setup, target=None, evaluates=False):
  """Compiles a program of a phase, for this machine or a topology.Target.

  Returns:
    dict: name, task, steps, parameters; the results of `compile_step` or
    `compile_summaries`; available (free bytes of a device, None if unknown) and
    fits; of a target also note, and memory has a margin; of its step
    tokens_per_second (at peak FLOP/s).
  """
  compile_program = compile_summaries if evaluates else compile_step
  what = 'the evaluation' if evaluates else setup.name or 'the step'
  what = f'{what}: compiling'
  collective.log(what)
  try:
    with compiling.show_seconds(what):
      found = compile_program(setup, target and target.options)
  except (MemoryError, OverflowError) as error:
    raise InputError(
        f'{what}: its largest batch is too large for this machine: {error}; '
        'expected smaller data.max_input_length and data.max_target_length'
    ) from None
  if target:
    for key in 'memory', 'reading':
      if program := found.get(key):
        more = int(target.margin * program['temporary'])
        found[key] = program | dict(margin=more, total=program['total'] + more)
    found |= dict(available=target.available, note=target.note)
    if found['flops']:
      documents, read, written = found['batch'].values()
      # Steps in a second.
      steps = step_times.peak_flops(found['device']) / found['flops']
      steps *= math.prod(found['mesh'].values())
      found['tokens_per_second'] = documents * (read + written) * steps
  else:
    found['available'] = memory.available_bytes(parts=jax.local_device_count())
  available = found['available']
  total = found['memory'] and found['memory']['total']
  return dict(
      name=setup.name,
      task=setup.task,
      steps=setup.config.train.steps,
      parameters=parameters.count(setup.shapes),
      **found,
      fits=total is not None and (available is None or total <= available),
  )


def compile_step(setup, options=None):
  """Compiles the train step, with options of the compiler.

  Returns:
    A dict with these keys; memory is in bytes per device.
      batch: documents, input_tokens, target_tokens.
      mesh: {axis: size}.
      device: kind of device.
      flops: of a step, on all devices together.
      memory: state (parameters and optimiser), arguments, temporary, output,
        reused (the part of the output in place of arguments), total. None if
        the compiler refuses the step.
      refused: the compiler's message that it needs too much memory, or None.
  """
  config, mesh = setup.config, setup.mesh
  B, *_, T = largest_batch(config)
  inputs = _inputs(setup, B)
  batch = dict(encoder_input_tokens=inputs)
  for key in 'decoder_input_tokens', 'decoder_target_tokens':
    batch[key] = _array(mesh, (B, T))
  batch['decoder_loss_weights'] = _array(mesh, (B, T), jnp.float32)
  with jax.set_mesh(mesh):
    programs = objectives.make_programs(config, setup.model, mesh)
    state = sharding.abstract_arrays(
        jax.eval_shape(lambda: programs.init(jax.random.key(0))),
        programs.shardings,
    )
    step = programs.step.trace(state, batch)
    found = _compile(step, batch, setup, options, (*inputs.shape, T), state)
  found['flops'] = flops.of_step(setup.model, inputs.shape, (B, T))
  return found


def compile_summaries(setup, options=None):
  """Compiles the program that reads an evaluation's batch and writes summaries.

  Returns:
    See `compile_step`; state is the parameters, flops None; reading: memory of
    reading alone. A model whose memory `is_compacted` reads and writes in two
    programs: the one that needs more memory, if nothing is dropped.
  """
  config, mesh, model = setup.config, setup.mesh, setup.model
  settings, seeds = decode_settings.of_run(config), None
  inputs = _inputs(setup, config.eval.batch_size)
  if decode_settings.method_of(settings) == 'sample':
    seeds = _array(mesh, inputs.shape[:1], jnp.uint32)
  with jax.set_mesh(mesh):
    params = sharding.abstract_arrays(
        setup.shapes, sharding.param_shardings(mesh, setup.shapes)
    )
    read = generate.read.trace(model, params, inputs, None)
    taken, write, given = inputs, generate.read_and_write, (inputs, None)
    if model.config.is_compacted:
      taken = jax.tree.map(
          lambda x: _array(mesh, x.shape, x.dtype, 'encoder_'), read.out_info
      )
      write, given = generate.write, (taken,)
    written = write.trace(model, params, *given, settings, seeds)
    shape = *inputs.shape, settings.max_length
    found = [
        _compile(*program, setup, options, shape, params)
        for program in ((read, inputs), (written, taken))
    ]
  needed = lambda x: x['memory']['total'] if x['memory'] else math.inf
  return max(found, key=needed) | dict(reading=found[0]['memory'])


def _inputs(setup, documents):
  """Returns the abstract array of the longest inputs."""
  _, *read, _ = largest_batch(setup.config)
  if setup.config.data.pages not in pages_lib.LOCALITIES:
    # Tokens and chunks are padded; pages are cut.
    read[0] += -read[0] % setup.mesh.shape[sharding.SEQUENCE]
  return _array(setup.mesh, (documents, *read), key='encoder_')


def _array(mesh, shape, dtype=jnp.int32, key=''):
  placed = sharding.batch_sharding(mesh, key)
  return jax.ShapeDtypeStruct(shape, dtype, sharding=placed)


def _compile(traced, taken, setup, options, shape, state):
  """Returns `compile_step`'s results.

  Args:
    taken: abstract arrays that the program takes besides the state.
    shape: (*shape of the inputs, target tokens).
  """
  (documents, *read, written), mesh = shape, setup.mesh
  found = dict(
      batch=dict(
          documents=documents,
          input_tokens=math.prod(read),
          target_tokens=written,
      ),
      mesh=dict(mesh.shape),
      device=mesh.devices.flat[0].device_kind,
      flops=None,
      memory=None,
      refused=None,
  )
  try:
    sizes = traced.lower().compile(options).memory_analysis()
  except jax.errors.JaxRuntimeError as error:
    _, is_refused, message = str(error).partition('RESOURCE_EXHAUSTED: ')
    if not is_refused:
      raise
    return found | dict(refused=message.split('\n')[0])
  found['memory'] = needed = dict(
      state=_bytes(state),
      arguments=sizes.argument_size_in_bytes,
      temporary=sizes.temp_size_in_bytes,
      output=sizes.output_size_in_bytes,
      reused=sizes.alias_size_in_bytes,
  )
  # Also parameters that this program does not read are in memory.
  total = _bytes((state, taken)) + needed['temporary'] + needed['output']
  needed['total'] = total - needed['reused']
  return found


def _bytes(arrays):
  """Returns the bytes of a tree of abstract arrays on each device."""
  return sum(
      math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
      for x in jax.tree.leaves(arrays)
  )


def largest_batch(config):
  """Returns (documents, input tokens, target tokens) of a step's largest shape.

  With pages or chunks: (documents, pages, tokens of a page, target tokens).
  """
  data = config.data
  read = (data.max_input_length,)
  if data.pages in pages_lib.LOCALITIES:
    read = data.num_pages, data.page_length
  elif data.pages:
    read = pages_lib.max_chunks(data), data.page_length
  return config.train.batch_size, *read, data.max_target_length


def format_json(phases):
  """Returns the results of `dry_run.dry_run` as one JSON object."""
  return json.dumps({'phases': phases})


def format_text(phases):
  """Returns the results of `dry_run.dry_run` as text."""
  return '\n\n'.join(
      '\n'.join((*_lines(phase), *_target_lines(phase))) for phase in phases
  )


def _lines(phase):
  """Yields the lines of a phase, from `measure_phase`."""
  batch, mesh, show = phase['batch'], phase['mesh'], memory.format_bytes
  devices, operations = math.prod(mesh.values()), phase['flops']
  work = f'evaluation on {phase["task"]}'
  step_text, texts = '', _EVALUATION
  if operations:
    name = phase['name'] or 'training'
    work = f'{name} on {phase["task"]}, {phase["steps"]} steps'
    each = f', {operations / devices:.3g} on each device' if devices > 1 else ''
    step_text, texts = f'{operations:.3g} FLOPs{each}', _TRAINING
  axes = ' '.join(f'{axis}={size}' for axis, size in mesh.items())
  read, written = batch['input_tokens'], batch['target_tokens']
  yield f'{work}; nothing was run'
  for title, text in (
      (
          'largest batch',
          f'{batch["documents"]} documents, {read} -> {written} tokens',
      ),
      ('devices', f'{devices} x {phase["device"]}, {axes}'),
      ('parameters', f'{phase["parameters"] / 1e6:.1f}M'),
      ('a step', step_text),
  ):
    if text:
      yield f'  {title:15}  {text}'
  yield '  memory of a device'
  rows, available = [], phase['available']
  if step := phase['memory']:
    state, reused = show(step['state']), show(step['reused'])
    rows += [
        ('arguments', f'{state} {texts["state"]}, and the batch'),
        ('temporary', texts['temporary']),
        ('output', f'{reused} of it in place of arguments'),
    ]
    rows += [('margin', 'see below')] if step.get('margin') else []
    rows.append(('total', ''))
  rows = [[f'    {key}', show(step[key]), text] for key, text in rows]
  if alone := phase.get('reading'):
    rows.append(['    to read only', show(alone['total']), ''])
  if available is not None:
    rows.append(['    available', show(available), ''])
  yield from tables.align(rows, left=(0, 2), least=(15, 9, 0))
  if phase['refused']:
    yield f'  the compiler refuses the {texts["what"]}:\n    {phase["refused"]}'
  if not phase['fits']:
    yield f'  IT DOES NOT FIT: try {texts["advice"]}, or more devices'
  elif available is not None:
    yield f'  it fits: {step["total"] / available:.0%} of what is available'
  else:
    yield '  the compiler takes it; the free memory is unknown'


def _target_lines(phase):
  """Yields the lines about a topology.Target, if there is one."""
  if 'note' not in phase:
    return
  step, show = phase['memory'], memory.format_bytes
  taken = f'{show(step["total"])} of' if step else 'more than'
  work = ''
  if phase['flops']:
    speed = f'at best {phase["tokens_per_second"]:,.0f} tokens/s'
    work = f', {phase["flops"]:.3g} FLOPs a step, {speed} by the data sheet'
  yield f'  {phase["note"]}'
  yield f'  {taken} {show(phase["available"])} a device{work}'
