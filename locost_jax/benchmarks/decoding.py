"""Decoding: the caches of the input compared, and the time per token."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import test_cases
from locost_jax.benchmarks import timing
from locost_jax.models import low_memory_encoder

# The form of the cache that has the selected states alone.
SELECTED = 'selected'


class _Form(NamedTuple):
  """One form of the input's cache (`test_cases.CACHES`, SELECTED), compiled."""

  begin: Any  # (params, encoded) -> (shared, per_row)
  write: Any  # (params, (shared, per_row)) -> tokens


def measure_decoding(spec, report):
  """Measures writing after reading, with each form of the input's cache.

  times: 'encode'; for each form 'cache FORM' (all that is made of the encoder
  states before the first step) and 'step FORM', the time per token of
  writing spec['tokens'] tokens, greedily or with spec['num_beams'] beams. A
  form that does not fit has its cache_bytes and no times. A model that selects
  what is decoded has the form 'selected' too; the others then attend to all of
  the input, under the mask of what was selected.
  """
  model, params = test_cases.make(spec)
  inputs, mask = test_cases.make_inputs(spec)
  encode = jax_programs.compile_program(
      functools.partial(low_memory_encoder.encode, model), params, inputs, mask
  )
  interleave = lambda calls: timing.time_interleaved(
      calls, spec['repeats'], spec['seconds'], report
  )
  times = interleave(
      {'encode': jax_programs.timed_call(encode, params, inputs, mask)}
  )
  encoded = jax.block_until_ready(encode(params, inputs, mask))
  forms, cache_bytes = _compile_forms(spec, model, params, encoded)
  cache_times, caches = _time_caches(forms, params, encoded, interleave)
  step_times, written = _time_steps(
      forms, params, caches, spec['tokens'], interleave
  )
  times |= cache_times | step_times
  seconds = timing.medians(times)
  return dict(
      times=times,
      seconds=seconds,
      cache_bytes=cache_bytes,
      tokens=spec['tokens'],
      same_tokens=_are_same(written),
      first_token={
          name: seconds['encode']
          + seconds[f'cache {name}']
          + seconds[f'step {name}']
          for name in forms
      },
      temp_bytes={
          name: jax_programs.temp_bytes(form.write)
          for name, form in forms.items()
      },
  )


def _compile_forms(spec, model, params, encoded):
  """Compiles the forms of the cache that fit into memory together.

  A model that selects what is decoded has one form more, of those states alone.

  Args:
    spec: see `spec.make_spec`.
    model: the Flax module.
    params: its parameters.
    encoded: what `encode` gives.

  Returns:
    ({name: _Form} of those that fit, {name: bytes of the cache} of all).
  """
  forms, cache_bytes = {}, {}
  selects = hasattr(model, 'compact_memory')
  for name in test_cases.CACHES + (SELECTED,) * selects:
    # Compacting is no program: it looks at how many states were selected.
    prepare = model.compact_memory if name == SELECTED else lambda x: x
    make = lambda params, memory, name=name: test_cases.init_cache(
        model,
        params,
        memory,
        spec['tokens'],
        None if name == SELECTED else name,
    )
    memory = prepare(encoded)
    shapes = jax.eval_shape(make, params, memory)
    cache_bytes[name] = jax_programs.float_bytes(shapes[0])
    together = sum(cache_bytes[other] for other in forms) + cache_bytes[name]
    if not jax_programs.fits(together, spec):
      continue
    write = lambda params, caches: test_cases.write(
        model,
        params,
        *caches,
        spec['batch_size'],
        spec['tokens'],
        spec['num_beams'],
    )
    begin = jax_programs.compile_program(make, params, memory)
    forms[name] = _Form(
        lambda params, encoded, begin=begin, prepare=prepare: begin(
            params, prepare(encoded)
        ),
        jax_programs.compile_program(write, params, shapes),
    )
  return forms, cache_bytes


def _time_caches(forms, params, encoded, interleave):
  """Times how long the caches take to make.

  Args:
    forms: {name: _Form}.
    params: parameters.
    encoded: what `encode` gives.
    interleave: calls -> times, see `timing.time_interleaved`.

  Returns:
    ({'cache NAME': times}, {name: cache}).
  """
  caches = {}

  def make_cache(name):
    caches.pop(name, None)  # the old one first: two may not fit

    def run():
      caches[name] = jax.block_until_ready(forms[name].begin(params, encoded))

    return timing.timed(run)

  times = interleave(
      {f'cache {name}': functools.partial(make_cache, name) for name in forms}
  )
  return times, caches


def _time_steps(forms, params, caches, tokens, interleave):
  """Times a step of writing: ({'step NAME': times}, {name: tokens written})."""
  written = {}

  def write(name):
    def run():
      written[name] = np.asarray(forms[name].write(params, caches[name]))

    return timing.timed(run) / tokens

  times = interleave(
      {f'step {name}': functools.partial(write, name) for name in forms}
  )
  return times, written


def _are_same(written):
  """Whether all forms wrote the same tokens; None if there is only one."""
  if len(written) < 2:
    return None
  first, *others = written.values()
  return all(bool((other == first).all()) for other in others)
