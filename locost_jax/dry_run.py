"""What a run will need, told before it begins: `main --dry_run`.

The train step is compiled for the largest batch that the config allows, on the
run's mesh, from shapes alone: nothing is computed, no parameter is made. Memory
is XLA's own account of the program, per device; what JAX, the data pipeline and
the allocator take besides is not in it.
"""

import copy
import json
import math

import jax
import jax.numpy as jnp

from locost_jax import counted_flops
from locost_jax import memory
from locost_jax import parts
from locost_jax import sharding
from locost_jax import train
from locost_jax.data import order


def measure(phases):
  """Returns what the report shows.

  Args:
    phases: of `workdir.make_phases`, all checked, vocab_size filled in.

  Returns:
    {'phases': [...]}, each of them `measure_phase`'s.
  """
  return {'phases': [measure_phase(phase) for phase in phases]}


def measure_phase(phase):
  """Compiles a phase's step; where it does not fit, also ways to make it fit.

  Returns:
    dict: name, task, steps, parameters; what `compile_step` tells; available
    (bytes a device has left, None if nobody tells), fits, and changes: a list
    of dicts (config, memory, fits), the last of which fits if any was found.
  """
  config = phase.config
  parts.tell(f'{phase.name or "the step"}: compiling')
  model = parts.build(config)
  found = dict(
      name=phase.name, task=parts.task_name(phase), steps=config.train.steps,
      parameters=parts.count_parameters(model), **compile_step(config))
  available = available_bytes()
  fits = lambda memory: available is None or memory['total'] <= available
  found.update(available=available, fits=fits(found['memory']), changes=[])
  for change in ways_out(config) if not found['fits'] else ():
    said = ' '.join(f'config.{key}={value}' for key, value in change.items())
    parts.tell(f'it does not fit; compiling with {said}')
    told = compile_step(changed(config, change))['memory']
    found['changes'].append(
        dict(config=change, memory=told, fits=fits(told)))
    if fits(told):
      break
  return found


def compile_step(config):
  """Compiles the train step for the largest batch, without running it.

  Args:
    config: the whole config of a phase.

  Returns:
    dict: batch (documents, input_tokens, target_tokens), mesh (axis -> size),
    platform, flops (of all devices together) and memory, bytes per device:
    state (parameters and optimiser), arguments, temporary, output, reused (of
    the output, in place of arguments) and total.
  """
  mesh = sharding.make_mesh(config.mesh)
  with jax.set_mesh(mesh):
    programs = train.make_programs(config, parts.build(config), mesh)
    state = sharding.abstract(
        jax.eval_shape(programs.init, jax.random.key(0)), programs.shardings)
    documents, L, T = largest_batch(config)
    L += -L % mesh.shape[sharding.SEQUENCE]
    def array(length, key, dtype=jnp.int32):
      return {key: jax.ShapeDtypeStruct(
          (documents, length), dtype,
          sharding=sharding.batch_sharding(mesh, key))}
    traced = programs.step.trace(
        state, array(L, 'encoder_input_tokens')
        | array(T, 'decoder_input_tokens') | array(T, 'decoder_target_tokens')
        | array(T, 'decoder_loss_weights', jnp.float32))
    sizes = traced.lower().compile().memory_analysis()
  taken = dict(
      state=sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
                for x in jax.tree.leaves(state)),
      arguments=sizes.argument_size_in_bytes,
      temporary=sizes.temp_size_in_bytes, output=sizes.output_size_in_bytes,
      reused=sizes.alias_size_in_bytes)
  taken['total'] = (taken['arguments'] + taken['temporary'] + taken['output']
                    - taken['reused'])
  return dict(
      batch=dict(documents=documents, input_tokens=L, target_tokens=T),
      mesh=dict(mesh.shape), platform=mesh.devices.flat[0].platform,
      flops=counted_flops.count(traced.jaxpr), memory=taken)


def largest_batch(config):
  """(documents, input tokens, target tokens) of a step's largest shape."""
  data, settings = config.data, config.train
  documents = settings.batch_size
  if settings.batch_tokens:
    documents = order.rows_in_budget(
        settings.batch_tokens, data.max_input_length)
  return documents, data.max_input_length, data.max_target_length


def ways_out(config):
  """Changes of the config that take less memory, least harm first.

  The first two leave the results as they are; the last reads less.
  """
  lean = {} if config.train.remat == 'full' else {'train.remat': 'full'}
  if lean:
    yield lean
  mesh = sharding.make_mesh(config.mesh)
  rows = largest_batch(config)[0] // sharding.batch_parts(mesh)
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
    name, task, steps, parameters, batch, mesh, platform, flops, memory,
    available, fits, changes,
):
  """The lines of a phase; the arguments are what `measure_phase` returns."""
  devices = math.prod(mesh.values())
  axes = ' '.join(f'{axis}={size}' for axis, size in mesh.items())
  yield f'{name or "training"} on {task}, {steps} steps; nothing was run'
  yield _line('largest batch', f"{batch['documents']} documents, "
              f"{batch['input_tokens']} -> {batch['target_tokens']} tokens")
  yield _line('devices', f'{devices} {platform}, {axes}')
  yield _line('parameters', f'{parameters / 1e6:.1f}M')
  each = f', {flops / devices:.3g} on each device' if devices > 1 else ''
  yield _line('a step', f'{flops:.3g} FLOPs in matrix products and '
              f'transforms{each}')
  yield '  memory of a device'
  for key, text in (
      ('arguments', f"{_show(memory['state'])} parameters and optimiser, and "
       'the batch'),
      ('temporary', 'gradients and what they are made from'),
      ('output', f"{_show(memory['reused'])} of it in place of arguments"),
      ('total', '')):
    yield _line(f'  {key}', f'{_show(memory[key]):>9}  {text}'.rstrip())
  if available is not None:
    yield _line('  available', f'{_show(available):>9}')
  if available is None:
    yield '  this device does not tell how much memory it has'
  elif fits:
    yield f"  it fits: {memory['total'] / available:.0%} of what is available"
  else:
    yield '  IT DOES NOT FIT; with'
    for change in changes:
      flags = ' '.join(f'--config.{key}={value}'
                       for key, value in change['config'].items())
      verdict = 'fits' if change['fits'] else 'does not fit'
      yield (f"    {_show(change['memory']['total']):>9}  {verdict:12}  "
             f'{flags}')
    if memory['state'] > available:
      yield ('    the parameters and the optimiser alone do not fit: a smaller '
             'model, optim.name=adafactor, or more devices')
    elif not changes[-1:] or not changes[-1]['fits']:
      yield '    still too large: a smaller train.batch_size or more devices'


def _line(title, text):
  return f'  {title:15}{text}'


def _show(number):
  return memory.show(number)
