"""Decoding: compares the caches of the input, and times a token."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import test_cases
from locost_jax.benchmarks import timing
from locost_jax.models import low_memory_encoder

# The form of the cache that has only the selected states.
SELECTED = 'selected'


class _Form(NamedTuple):
  """One form of the input's cache (`test_cases.CACHES`, SELECTED), compiled."""

  begin: Any  # (params, encoded) -> (shared, per_row)
  write: Any  # (params, (shared, per_row)) -> tokens


def measure_decoding(spec, report):
  """Measures decoding with each form of the input's cache.

  times: 'encode'; for each form 'cache FORM' (making the cache from the encoder
  states) and 'step FORM', the time per token of generating spec['tokens']
  tokens, greedily or with spec['num_beams'] beams. A form that does not fit
  into memory has its cache_bytes but no times. A model with a selector also has
  the form 'selected'; its other forms keep all states and mask those not
  selected.
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

  A model with a selector also has the form SELECTED.

  Args:
    spec: see `spec.make_spec`.
    model: the Flax module.
    params: its parameters.
    encoded: output of `encode`.

  Returns:
    ({name: _Form} of the forms that fit, {name: bytes of the cache} of all).
  """
  forms, cache_bytes = {}, {}
  selects = hasattr(model, 'compact_memory')
  for name in test_cases.CACHES + (SELECTED,) * selects:
    # compact_memory is not compiled: its shapes depend on the selection.
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
  """Times making the caches.

  Args:
    forms: {name: _Form}.
    params: parameters.
    encoded: output of `encode`.
    interleave: function calls -> times, see `timing.time_interleaved`.

  Returns:
    ({'cache NAME': times}, {name: cache}).
  """
  caches = {}

  def make_cache(name):
    caches.pop(name, None)  # free the old cache first: two may not fit

    def run():
      caches[name] = jax.block_until_ready(forms[name].begin(params, encoded))

    return timing.timed(run)

  times = interleave(
      {f'cache {name}': functools.partial(make_cache, name) for name in forms}
  )
  return times, caches


def _time_steps(forms, params, caches, tokens, interleave):
  """Times a decoding step: ({'step NAME': times}, {name: generated tokens})."""
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
  """Whether all forms generated the same tokens; None for a single form."""
  if len(written) < 2:
    return None
  first, *others = written.values()
  return all(bool((other == first).all()) for other in others)
