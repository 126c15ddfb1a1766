"""What a run will need, told before it begins: `main --dry_run`.

The train step and the program that evaluations write with are compiled for the
largest batches that the config allows, on the run's mesh, from shapes alone:
nothing is computed, no parameter is made. Memory is XLA's own account of the
programs, per device; what JAX, the data pipeline and the allocator take besides
is not in it. Of devices that are not here (`topology`) the compiler itself says
what they cannot hold.
"""

import copy
import json
import math

import jax
import jax.numpy as jnp

from locost_jax import counted_flops
from locost_jax import decode
from locost_jax import evaluate
from locost_jax import generate
from locost_jax import lora
from locost_jax import memory
from locost_jax import optim
from locost_jax import parts
from locost_jax import sharding
from locost_jax import train
from locost_jax.data import order


def measure(phases, devices=None):
  """Returns what the report shows.

  Args:
    phases: of `workdir.make_phases`, all checked, vocab_size filled in.
    devices: of `topology.devices`; None: those of this run.

  Returns:
    {'phases': [...]}, each of them `measure_phase`'s.
  """
  return {'phases': [measure_phase(phase, devices) for phase in phases]}


def measure_phase(phase, devices=None):
  """Compiles a phase's programs; where they do not fit, also ways out.

  Returns:
    dict: name, task, steps, parameters; what `compile_programs` tells;
    available (bytes a device has left, None if nobody tells), fits, and
    changes: a list of dicts (config, total, fits), the last of which fits if
    any was found.
  """
  config = phase.config
  parts.tell(f'{phase.name or "the step"}: compiling')
  found = dict(
      name=phase.name, task=parts.task_name(phase), steps=config.train.steps,
      parameters=parts.count_parameters(parts.build(config)),
      **compile_programs(config, devices))
  available = None if devices is not None else available_bytes()
  def fits(total):
    return total is not None and (available is None or total <= available)
  found.update(available=available, fits=fits(most(found)), changes=[])
  step_fits = fits(found['memory'] and found['memory']['total'])
  ways = () if found['fits'] else ways_out(config, devices, step_fits)
  for change in ways:
    said = ' '.join(f'config.{key}={value}' for key, value in change.items())
    parts.tell(f'it does not fit; compiling with {said}')
    total = most(compile_programs(changed(config, change), devices))
    found['changes'].append(
        dict(config=change, total=total, fits=fits(total)))
    if fits(total):
      break
  return found


def most(told):
  """Bytes of a device that the larger program takes; None if it is refused."""
  if told['refused']:
    return None
  evaluating = told['evaluating'] or {}
  return max(told['memory']['total'], evaluating.get('total', 0))


def compile_programs(config, devices=None):
  """Compiles the train step, and what evaluations write with.

  Args:
    config: the whole config of a phase.
    devices: as in `measure`.

  Returns:
    dict: batch (documents, input_tokens, target_tokens), mesh (axis -> size),
    device (its kind), flops (of a step, all devices together) and, bytes per
    device, memory of a step: state (parameters and optimiser), arguments,
    temporary, output, reused (of the output, in place of arguments) and total;
    evaluating: documents, input_tokens, tokens, temporary, total (the state
    with it); None where evaluations write nothing. What the compiler refuses
    for want of memory is None, and `refused` says in its words why.
  """
  mesh = sharding.make_mesh(config.mesh, devices)
  documents, L, T = largest_batch(config)
  L += -L % mesh.shape[sharding.SEQUENCE]
  with jax.set_mesh(mesh):
    programs = train.make_programs(config, parts.build(config), mesh)
    state = sharding.abstract(
        jax.eval_shape(lambda: programs.init(jax.random.key(0))),
        programs.shardings)
    step = programs.step.trace(state, {
        key: _array(mesh, (documents, length), key, dtype)
        for key, length, dtype in (
            ('encoder_input_tokens', L, jnp.int32),
            ('decoder_input_tokens', T, jnp.int32),
            ('decoder_target_tokens', T, jnp.int32),
            ('decoder_loss_weights', T, jnp.float32))})
    told = dict(
        batch=dict(documents=documents, input_tokens=L, target_tokens=T),
        mesh=dict(mesh.shape), device=mesh.devices.flat[0].device_kind,
        flops=counted_flops.count(step.jaxpr), memory=None, evaluating=None,
        refused=None)
    try:
      told['memory'] = account(step.lower().compile(), bytes_of(state))
      if 'rouge' in config.eval.metrics:
        told['evaluating'] = _compile_writing(config, mesh, L, state)
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      told['refused'] = str(error).partition('RESOURCE_EXHAUSTED: ')[2].split(
          '\n')[0]
  return told


def _compile_writing(config, mesh, L, state):
  """`evaluating` of `compile_programs`, beside a state."""
  settings = evaluate.decode_settings(config.decode)
  rows, seeds = config.eval.batch_size, None
  if decode.method_of(settings) == 'sample':
    seeds = _array(mesh, (rows,), dtype=jnp.uint32)
  params, kernels = lora.without(state.params), ()
  if config.train.lora.rank:  # merged ones are beside those of the state
    kernels = ((config.train.lora.paths, 0.0),)
  shared, _ = optim.split(params, kernels)
  write = generate.generate.trace(
      parts.build(config), params,
      _array(mesh, (rows, L), 'encoder_input_tokens'), None, settings, seeds)
  taken = account(write.lower().compile(), bytes_of(state))
  return dict(
      documents=rows, input_tokens=L, tokens=settings.max_length,
      temporary=taken['temporary'],
      total=taken['total'] + taken['state'] - bytes_of(shared))


def _array(mesh, shape, key='', dtype=jnp.int32):
  """The shape of an array of a batch, where it lies on the mesh."""
  return jax.ShapeDtypeStruct(
      shape, dtype, sharding=sharding.batch_sharding(mesh, key))


def account(compiled, state):
  """XLA's account of a program's memory; see `compile_programs`."""
  sizes = compiled.memory_analysis()
  taken = dict(
      state=state, arguments=sizes.argument_size_in_bytes,
      temporary=sizes.temp_size_in_bytes, output=sizes.output_size_in_bytes,
      reused=sizes.alias_size_in_bytes)
  taken['total'] = (taken['arguments'] + taken['temporary'] + taken['output']
                    - taken['reused'])
  return taken


def bytes_of(tree):
  """Bytes of a device's part of some arrays, given as shapes on a mesh."""
  return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
             for x in jax.tree.leaves(tree))


def largest_batch(config):
  """(documents, input tokens, target tokens) of a step's largest shape."""
  data, settings = config.data, config.train
  documents = settings.batch_size
  if settings.batch_tokens:
    documents = order.rows_in_budget(
        settings.batch_tokens, data.max_input_length)
  return documents, data.max_input_length, data.max_target_length


def ways_out(config, devices=None, step_fits=False):
  """Changes of the config that take less memory, least harm first.

  All but the last, which reads less, leave the results as they are. Where the
  step fits it is evaluations that do not.
  """
  documents = sharding.batch_parts(sharding.make_mesh(config.mesh, devices))
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
  if config.data.max_input_length > 1:
    yield {**lean, 'data.max_input_length': config.data.max_input_length // 2}


def changed(config, change):
  """A copy of the config with {'train.remat': 'full', ...} set."""
  config = copy.deepcopy(config)
  for key, value in change.items():
    section, name = key.split('.')
    config[section][name] = value
  return config


def available_bytes():
  """What one device may still take; devices of a CPU share the machine's."""
  free = memory.free_device_bytes()
  if free is not None:
    return free
  free = memory.free_host_bytes()
  return None if free is None else free // jax.local_device_count()


def fill_vocab_size(phases, vocabulary):
  """Sets model.vocab_size in all phases.

  Args:
    phases: of `workdir.make_phases`.
    vocabulary: None: one will be trained, of data.vocabulary_size tokens.
  """
  for phase in phases:
    if vocabulary is not None:
      parts.fill_vocab_size(phase.config, vocabulary)
    elif not phase.config.model.vocab_size:
      phase.config.model.vocab_size = phase.config.data.vocabulary_size


# --- The report --------------------------------------------------------------


def format_json(phases):
  return json.dumps({'phases': phases})


def format_text(phases):
  return '\n\n'.join('\n'.join(_lines(**phase)) for phase in phases)


def _lines(
    name, task, steps, parameters, batch, mesh, device, flops, memory,
    evaluating, refused, available, fits, changes,
):
  """The lines of a phase; the arguments are what `measure_phase` returns."""
  devices = math.prod(mesh.values())
  axes = ' '.join(f'{axis}={size}' for axis, size in mesh.items())
  yield f'{name or "training"} on {task}, {steps} steps; nothing was run'
  yield _line('largest batch', f"{batch['documents']} documents, "
              f"{batch['input_tokens']} -> {batch['target_tokens']} tokens")
  yield _line('devices', f'{devices} x {device}, {axes}')
  yield _line('parameters', f'{parameters / 1e6:.1f}M')
  each = f', {flops / devices:.3g} on each device' if devices > 1 else ''
  yield _line('a step', f'{flops:.3g} FLOPs in matrix products and '
              f'transforms{each}')
  yield '  memory of a device'
  if memory:
    for key, text in (
        ('arguments', f"{_show(memory['state'])} parameters and optimiser, and "
         'the batch'),
        ('temporary', 'gradients and what they are made from'),
        ('output', f"{_show(memory['reused'])} of it in place of arguments"),
        ('total', '')):
      yield _line(f'  {key}', f'{_show(memory[key]):>9}  {text}'.rstrip())
  if evaluating:
    yield _line('  evaluating', f"{_show(evaluating['total']):>9}  "
                f"{_show(evaluating['temporary'])} of it to write "
                f"{evaluating['documents']} documents, "
                f"{evaluating['input_tokens']} -> {evaluating['tokens']} "
                'tokens')
  if available is not None:
    yield _line('  available', f'{_show(available):>9}')
  if fits:
    if available is not None:
      share = most(dict(memory=memory, evaluating=evaluating,
                        refused=refused)) / available
      yield f'  it fits: {share:.0%} of what is available'
    else:
      yield '  the compiler takes it; how much memory is free, nobody tells'
    return
  if refused:
    yield f'  the compiler refuses {"to evaluate" if memory else "the step"}:'
    yield f'    {refused}'
  yield '  IT DOES NOT FIT; with'
  for change in changes:
    flags = ' '.join(f'--config.{key}={value}'
                     for key, value in change['config'].items())
    verdict = 'fits' if change['fits'] else 'does not fit'
    total = '' if change['total'] is None else _show(change['total'])
    yield f'    {total:>9}  {verdict:12}  {flags}'
  if memory and available is not None and memory['state'] > available:
    yield ('    the parameters and the optimiser alone do not fit: a smaller '
           'model, optim.name=adafactor, or more devices')
  elif not changes[-1:] or not changes[-1]['fits']:
    yield '    still too large: smaller batches or model, or more devices'


def _line(title, text):
  return f'  {title:15}{text}'


def _show(number):
  return memory.show(number)
