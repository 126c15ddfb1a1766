"""Decoding: compares the forms of the input's cache, and times a token."""

import jax
import numpy as np

from bench import programs


def prepare(spec):
  """Returns the calls, see `programs`.

  'encode'; for each form of the cache 'cache FORM' (making it from the
  encoder's states) and 'step FORM' (writing spec['tokens'] tokens). A form that
  does not fit into memory next to the others has its cache_bytes only.
  """
  model, params = programs.make(spec)
  args = params, *programs.make_inputs(spec)
  encode = programs.compile_encoder(model, *args)
  calls, together = {'encode': programs.case(encode, *args)}, 0
  memory = jax.block_until_ready(encode(*args))
  begin, write = programs.writer(spec, model)

  def keys_and_values(params, memory):
    cross = model.apply(
        {'params': params},
        memory['states'],
        method=lambda model, states: model.decoder.cross_cache(states),
    )
    shared = {'cross': cross, 'mask': memory['mask']}
    return shared, begin(params, memory)[1]

  def absorbed(params, memory):
    return memory, begin(params, memory)[1]

  for form, make in (
      ('keys and values', keys_and_values),
      ('absorbed', absorbed),
  ):
    shapes = jax.eval_shape(make, params, memory)
    size = programs.float_bytes(shapes[0])
    facts = dict(written=spec['tokens'], cache_bytes=size)
    if not programs.fits(together + size, spec):
      calls[f'step {form}'] = None, facts
      continue
    together += size
    cache = programs.compile_program(make, params, memory)
    step = programs.compile_program(write, params, shapes)
    calls |= _calls(form, cache, step, params, memory, facts)
  return calls


def _calls(form, cache, step, params, memory, facts):
  """Returns {'cache FORM': (call, facts), 'step FORM': (call, facts)}."""
  made = [cache(params, memory)]

  def make_again():
    made.clear()  # free the old cache first: two may not fit
    made.append(jax.block_until_ready(cache(params, memory)))

  return {
      f'cache {form}': (
          make_again,
          dict(temp_bytes=programs.temp_bytes(cache)),
      ),
      f'step {form}': (
          lambda: np.asarray(step(params, made[0])),
          dict(facts, temp_bytes=programs.temp_bytes(step)),
      ),
  }
