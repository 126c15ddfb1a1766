"""Measures a whole model: encoding a document and decoding a summary.

Table 4 of LOCOST gives samples per second of whole models. The weights are
random, so exactly spec['tokens'] tokens are generated, the end mark last.
"""

import functools

import jax
import numpy as np

from locost_jax import models
from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import test_cases
from locost_jax.benchmarks import timing
from locost_jax.errors import InputError
from locost_jax.models import low_memory_encoder


def check(config, lengths):
  """Raises an InputError for a page model, or lengths the model cannot read.

  Args:
    config: the whole config.
    lengths: tokens of a document.
  """
  if models.page_forms(config.model):
    raise InputError(
        f'bench generate: config.model.name={config.model.name!r} reads pages: '
        'expected a model that reads one sequence; bench pages and select '
        'measure the others'
    )
  models.check_length(config.model, lengths[-1], '--lengths')


def compile_whole(spec):
  """Compiles encoding and decoding.

  Args:
    spec: see `spec.make_spec`.

  Returns:
    (call, temp_bytes): call() returns tokens, int32 [B, spec['tokens']];
    temp_bytes is the larger temporary memory of the two programs.
  """
  model, params = test_cases.make(spec)
  inputs, mask = test_cases.make_inputs(spec)
  read = functools.partial(low_memory_encoder.encode, model)
  encode = jax_programs.compile_program(read, params, inputs, mask)
  encoded = jax.eval_shape(read, params, inputs, mask)
  write = test_cases.make_writer(spec, model)
  decode = jax_programs.compile_program(write, params, encoded)
  return (
      lambda: np.asarray(decode(params, encode(params, inputs, mask))),
      max(map(jax_programs.temp_bytes, (encode, decode))),
  )


def measure_generating(spec, report):
  """Measures how many documents are summarised per second."""
  report('compiling')
  call, temp_bytes = compile_whole(spec)
  result = jax_programs.time_programs(
      {'whole': functools.partial(timing.timed, call)}, spec, report
  )
  return dict(
      result,
      tokens=spec['tokens'],
      temp_bytes=temp_bytes,
      samples_per_second=spec['batch_size'] / result['seconds']['whole'],
  )


def prepare(spec, report):
  """Compiles encoding and decoding, for a comparison with other models.

  Returns:
    (known, run), see `processes.serve`.
  """
  report('compiling')
  call, temp_bytes = compile_whole(spec)
  known = dict(jax_programs.describe_device(), temp_bytes=temp_bytes)
  return known, lambda: dict(
      seconds=timing.timed(call), **jax_programs.describe_device()
  )
