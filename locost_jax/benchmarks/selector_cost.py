"""Measures SimCAS's selector: its share of inference time and training time.

`select` compares, in interleaved rounds, a model with a selector with the same
model that keeps every token (`model.select='none'`); `turn` compares train
steps with and without a turn of the selector.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax import models
from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import test_cases
from locost_jax.benchmarks import timing
from locost_jax.errors import InputError
from locost_jax.models import low_memory_encoder

COMMANDS = 'select', 'turn'
# selector.every for steps without a turn.
NEVER = 1 << 30


def check(config, lengths):
  """Raises an InputError without a selector, or for lengths in part chunks.

  Args:
    config: the whole config.
    lengths: tokens of a document.
  """
  model, chunk = config.model, config.data.page_length
  if 'chunks' not in models.page_forms(model) or model.get('select') != 'ppo':
    raise InputError(
        f'bench {" and ".join(COMMANDS)}: config.model.name={model.name!r} '
        f'with select={model.get("select")!r} has no active selector: '
        "expected --config=configs/simcas.py with config.model.select='ppo'"
    )
  for length in lengths:
    if length % chunk:
      raise InputError(
          f'--lengths={length}: expected multiples of config.data.page_length='
          f'{chunk}'
      )


def measure_selecting(spec, report):
  """Measures encoding and decoding, with the selector and with all tokens.

  seconds: 'encode', with selection; 'select', the selection by itself;
  'compact', removing the states that were not selected; 'write', decoding
  spec['tokens'] tokens, caches included; 'encode all' and 'write all', the same
  with every token. share_of_encode is select / encode; share_of_all is (select
  + compact) / (encode + compact + write).
  """
  model, params = test_cases.make(spec)
  whole = models.build(dict(spec['model'], select='none'), dtype=spec['dtype'])
  inputs = _make_chunks(spec)
  report('compiling')
  encode, encode_all = (
      jax_programs.compile_program(
          functools.partial(low_memory_encoder.encode, model), params, inputs
      )
      for model in (model, whole)
  )
  memory, memory_all = encode(params, inputs), encode_all(params, inputs)
  compacted = model.compact_memory(memory)
  result = jax_programs.time_programs(
      {
          'encode': jax_programs.timed_call(encode, params, inputs),
          'encode all': jax_programs.timed_call(encode_all, params, inputs),
          'select': _select_call(model, params, inputs),
          'compact': jax_programs.timed_call(model.compact_memory, memory),
          'write': _write_call(spec, model, params, compacted),
          'write all': _write_call(spec, model, params, memory_all),
      },
      spec,
      report,
  )
  seconds = result['seconds']
  chosen = seconds['select'] + seconds['compact']
  everything = seconds['encode'] + seconds['compact'] + seconds['write']
  return dict(
      result,
      chunks=inputs.shape[1],
      tokens=spec['tokens'],
      selected=int(memory['mask'].sum()) // spec['batch_size'],
      slots=compacted['mask'][0].size,
      share_of_encode=seconds['select'] / seconds['encode'],
      share_of_all=chosen / everything,
      temp_bytes=jax_programs.temp_bytes(encode),
      temp_bytes_all=jax_programs.temp_bytes(encode_all),
  )


def _select_call(model, params, inputs):
  """Returns a function () -> seconds of the selection alone."""
  apply = lambda method: lambda params, *arguments: model.apply(
      {'params': params}, *arguments, method=method
  )
  seen = jax.jit(apply('chunk_states'))(params, inputs)
  select = jax_programs.compile_program(apply('choose'), params, *seen)
  return jax_programs.timed_call(select, params, *seen)


def _write_call(spec, model, params, memory):
  """Returns a function () -> seconds of decoding from a memory, with caches."""
  write = test_cases.make_writer(spec, model)
  program = jax_programs.compile_program(write, params, memory)
  return jax_programs.timed_call(program, params, memory)


def measure_turn(spec, report):
  """Measures a train step of the objective 'simcas'.

  seconds: 'step', without a turn of the selector, and 'step with turn'. share
  is the share of training time that turns take, with one turn every
  config.selector.every steps.
  """
  from ml_collections import ConfigDict

  from locost_jax.training import objectives  # seconds to import

  config = ConfigDict(spec['config'])
  config.train.update(objective='simcas', accumulate=1)
  config.optim.update(
      schedule='constant', warmup_steps=0, flat_steps=0, cooldown_steps=0
  )
  every = config.selector.every
  model, params = test_cases.make(spec)
  shapes = jax.eval_shape(lambda: params)
  targets, _ = test_cases.make_inputs(dict(spec, length=spec['tokens']))
  batch = dict(
      encoder_input_tokens=_make_chunks(spec),
      decoder_input_tokens=targets,
      decoder_target_tokens=targets,
      decoder_loss_weights=jnp.ones(targets.shape, jnp.float32),
  )
  states, calls, temp_bytes = [], {}, {}
  for name, number in ('step', NEVER), ('step with turn', 1):
    report(f'compiling, {name}')
    config.selector.every = number
    objective = objectives.make(config, model, shapes)
    if not states:
      states.append(jax.jit(objective.init)(jax.random.key(spec['seed'])))
      del params
    program = jax.jit(objective.step, donate_argnums=0)
    program = program.lower(states[0], batch).compile()
    temp_bytes[name] = jax_programs.temp_bytes(program)
    calls[name] = functools.partial(_run_step, program, states, batch)
  result = jax_programs.time_programs(
      {
          name: functools.partial(timing.timed, call)
          for name, call in calls.items()
      },
      spec,
      report,
  )
  step, with_turn = (result['seconds'][name] for name in calls)
  extra = max(0.0, with_turn - step)
  return dict(
      result,
      chunks=spec['length'] // spec['page_length'],
      target_tokens=spec['tokens'],
      every=every,
      turn_in_steps=extra / step,
      share=extra / (every * step + extra),
      turns=int(states[0].opt_state['turns']),
      temp_bytes=temp_bytes,
  )


def _make_chunks(spec):
  """Returns random tokens [B, C, L]."""
  inputs, _ = test_cases.make_inputs(spec)
  return inputs.reshape(len(inputs), -1, spec['page_length'])


def _run_step(program, states, batch):
  """Runs a step and replaces the state in the list `states`."""
  states[0] = jax.block_until_ready(program(states[0], batch))[0]
