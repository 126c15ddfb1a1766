"""PageSum and SimCAS: reading pages or chunks, choosing states, writing."""

import jax

from bench import programs
from locost_jax import models


def prepare(spec):
  """Returns the calls, see `programs`.

  'encode' and 'write' (spec['tokens'] tokens, caches included). With a selector
  also 'select', the selection alone; 'compact', removing the states that were
  not selected; 'encode all' and 'write all', with every token kept.
  """
  model, params = programs.make(spec)
  inputs, _ = programs.make_inputs(spec)
  length = spec['config']['data']['page_length']
  args = params, inputs.reshape(len(inputs), -1, length)
  encode = programs.compile_encoder(model, *args)
  calls = {'encode': programs.case(encode, *args, pages=args[1].shape[1])}
  memory = jax.block_until_ready(encode(*args))

  def write(memory):
    program = programs.compile_writer(spec, model, params, memory)
    return programs.case(program, params, memory, written=spec['tokens'])

  if spec['config']['model'].get('select') != 'ppo':
    return calls | {'write': write(memory)}
  config = dict(spec['config']['model'], select='none')
  whole = models.build(config, dtype=spec['dtype'])
  encode_all = programs.compile_encoder(whole, *args)
  apply = lambda method: lambda params, *arguments: model.apply(
      {'params': params}, *arguments, method=method
  )
  seen = jax.jit(apply('chunk_states'))(*args)
  select = programs.compile_program(apply('choose'), params, *seen)
  selected = int(memory['mask'].sum()) // spec['batch_size']
  compact = lambda: jax.block_until_ready(model.compact_memory(memory))
  return calls | {
      'encode all': programs.case(encode_all, *args),
      'select': programs.case(select, params, *seen, selected=selected),
      'compact': (compact, {}),
      'write': write(compact()),
      'write all': write(encode_all(*args)),
  }
