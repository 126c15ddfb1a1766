"""Measures the whole encoder, with the whole model loaded."""

import functools

import jax

from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import test_cases
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder


def prepare(spec, report):
  """Compiles a forward pass of the encoder.

  Args:
    spec: see `spec.make_spec`; also kept: whether the kernels are computed once
      and kept.
    report: function (line) that shows progress.

  Returns:
    (known, run), see `processes.serve`. If the kernels are too large to keep,
    known has too_large_to_keep and run is None.
  """
  report('compiling')
  model, params = test_cases.make(spec)
  inputs, mask = test_cases.make_inputs(spec)
  known, args = jax_programs.describe_device(), (params, inputs, mask)
  if spec['kept']:
    make = lambda params: low_memory_encoder.kernels(
        model, params, spec['length']
    )
    known['kernel_bytes'] = jax_programs.float_bytes(
        jax.eval_shape(make, params)
    )
    if known['kernel_bytes'] > generate.KEPT_BYTES:
      return dict(known, too_large_to_keep=True), None
    args += (jax.block_until_ready(jax.jit(make)(params)),)
  encode = jax_programs.compile_program(
      functools.partial(low_memory_encoder.encode, model), *args
  )
  call = jax_programs.timed_call(encode, *args)
  known['temp_bytes'] = jax_programs.temp_bytes(encode)
  return known, lambda: dict(seconds=call(), **jax_programs.describe_device())
