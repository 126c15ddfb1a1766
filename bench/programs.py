"""Makes models, inputs and compiled programs for measurements.

A spec is a dict that a worker gets:

  module             its `prepare(spec)` returns {name: (call, facts)}. call: a
                     function that blocks until it is done, None: not timed;
                     facts: numbers known before, see `rounds.summarise`
  question, part     what to measure, see `rounds.groups`
  length             of the input in tokens
  config             the whole config, as a dict
  tokens             to write, or of a target
  limit              most bytes of a worker process; None: no limit
  dtype, batch_size, repeats, seconds: the flags

temp_bytes is XLA's number for a compiled program, without its results.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.config import speed
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.generation import decode
from locost_jax.models import low_memory_encoder

# A program is timed only if it needs less than this share of the free memory.
SHARE_OF_FREE_MEMORY = 0.9


def check(question, config, lengths):
  """Raises an InputError if a question cannot measure this model."""
  model = models.make_config(config.model)
  name, reads_pages = config.model.name, model.page_forms
  size = config.data.page_length
  expected = ''
  if question == 'pages':
    if not reads_pages:
      expected = 'a model that reads pages, configs/pagesum.py or simcas.py'
    elif any(length % size for length in lengths):
      expected = f'--lengths: multiples of config.data.page_length={size}'
  elif question in ('encode', 'generate') and not reads_pages:
    models.check_length(model, lengths[-1], '--lengths')
  elif not model.comes_in_parts:
    expected = 'LOCOST; bench pages measures PageSum and SimCAS'
  if expected:
    raise InputError(
        f'bench {question}: config.model.name={name!r}: expected {expected}'
    )


def make(spec):
  """Returns (model, params), a model with random weights."""
  speed.keep_programs()
  speed.trim_after_compiling()
  model = models.build(spec['config']['model'], dtype=spec['dtype'])
  tokens = jnp.ones((1, 8), jnp.int32)
  init = jax.jit(lambda key: model.init(key, tokens, tokens)['params'])
  return model, jax.block_until_ready(init(jax.random.key(0)))


def make_inputs(spec, length=None):
  """Returns random token ids [B, length] and a mask of ones."""
  shape = spec['batch_size'], length or spec['length']
  size = spec['config']['model']['vocab_size']
  ids = np.random.default_rng(0).integers(min(3, size - 1), size, shape)
  return jnp.asarray(ids, jnp.int32), jnp.ones(shape, bool)


def compile_program(function, *args, **options):
  """Returns the compiled program of function(*args); options: of jax.jit."""
  return jax.jit(function, **options).lower(*args).compile()


def compile_encoder(model, *args):
  """Returns the compiled program of (params, inputs, mask) -> memory."""
  encode = functools.partial(low_memory_encoder.encode, model)
  return compile_program(encode, *args)


def case(program, *args, **facts):
  """Returns (call, facts) of a compiled program; call() returns its result."""
  facts['temp_bytes'] = temp_bytes(program)
  return lambda: jax.block_until_ready(program(*args)), facts


def temp_bytes(program):
  """Returns the temporary memory of a compiled program."""
  return int(program.memory_analysis().temp_size_in_bytes)


def fits(size, spec):
  """Whether a program with this much memory may be timed."""
  free = memory.free_device_bytes() or min(
      filter(None, [spec['limit'], memory.free_host_bytes(), float('inf')])
  )
  return size < SHARE_OF_FREE_MEMORY * free


def compile_writer(spec, model, params, memory):
  """Returns the program of (params, memory) -> tokens, with its caches.

  It writes exactly spec['tokens'] tokens, EOS only at the end.
  """
  tokens = spec['tokens']
  beams = spec['config']['decode']['num_beams']
  settings = decode_settings.Settings(
      max_length=tokens, min_length=tokens, num_beams=beams
  )

  def write(params, memory):
    apply = functools.partial(model.apply, {'params': params})
    shared, per_row = apply(memory, tokens, method='init_cache')
    step = functools.partial(apply, method='step')
    state = decode.begin(settings, per_row, spec['batch_size'])
    state = decode.advance(settings, step, shared, state, tokens)
    return decode.finish(settings, state)[0]

  return compile_program(write, params, memory)
