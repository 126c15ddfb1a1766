"""A layer, the encoder or a whole model, also next to PyTorch's models.

A whole model reads documents and writes --tokens (table 4 of LOCOST). The
weights are random, so exactly --tokens are written, the end mark last.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bench import programs
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder


def prepare(spec):
  """Returns the calls, see `programs`: of a layer, or the whole encoder.

  Kernels depend on the parameters and the length only. 'made': computed in each
  call; 'kept': computed once.
  """
  model, params = programs.make(spec)
  B, L, part = spec['batch_size'], spec['length'], spec['part']
  facts = dict(tokens=B * L)
  if part == 'layer':
    return _layer_cases(spec, model, params, facts)
  facts['documents'] = B
  args = params, *programs.make_inputs(spec)
  if 'kernels kept' in part:
    facts['kernel_bytes'] = low_memory_encoder.kernel_bytes(model, L)
    if facts['kernel_bytes'] > generate.KEPT_BYTES:
      return {part: (None, facts)}  # the library does not keep them either
    args += (low_memory_encoder.kernels(model, params, L),)
  encode = programs.compile_encoder(model, *args)
  if spec['question'] != 'generate':
    return {part: programs.case(encode, *args, **facts)}
  write = programs.compile_writer(spec, model, params, encode.out_info)
  size = max(map(programs.temp_bytes, (encode, write)))
  facts = dict(documents=B, written=spec['tokens'], temp_bytes=size)
  return {part: (lambda: np.asarray(write(params, encode(*args))), facts)}


def _layer_cases(spec, model, params, facts):
  """Returns the calls of one layer: kernels made, and kernels given."""
  model = model.clone(config=dataclasses.replace(model.config, num_layers=1))
  layers = jax.tree.map(lambda p: p[:1], params['encoder']['layers'])
  params = dict(params, encoder=dict(params['encoder'], layers=layers))
  B, L, D = spec['batch_size'], spec['length'], model.config.d_model
  h = jax.random.normal(jax.random.key(1), (B, L, D), model.dtype)
  args = params, h, jnp.ones((B, L), bool)
  kernels = low_memory_encoder.kernels(model, params, L)
  apply = lambda params, *rest: low_memory_encoder.encoder_layer(
      model, params, 0, *rest
  )
  made = programs.compile_program(apply, *args)
  given = programs.compile_program(apply, *args, kernels)
  return {
      'layer, kernels made': programs.case(made, *args, **facts),
      'layer, kernels given': programs.case(given, *args, kernels, **facts),
  }
