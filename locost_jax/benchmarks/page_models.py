"""Measures encoding and decoding of a page model against the number of pages.

Decoding is compared, in interleaved rounds, with two models that have the same
weights: BART with a batch row for each page, which computes logits for every
row and no page weights; and one decoder that attends to the states of all
pages, as in BART over the whole document (`decoding='global'`).
"""

import dataclasses

import jax

from locost_jax import models
from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import test_cases
from locost_jax.benchmarks import timing
from locost_jax.errors import InputError
from locost_jax.models import low_memory_encoder

_BART_LACKS = ('decoding', 'padding')


def check(config, lengths):
  """Raises an InputError for a model without pages, or lengths in part pages.

  Args:
    config: the whole config.
    lengths: tokens of a document.
  """
  if not models.page_forms(config.model):
    raise InputError(
        f'bench pages: {config.model.name} reads no pages; expected '
        '--config=configs/finetune.py:pagesum or configs/pagesum.py'
    )
  page = config.data.page_length
  for length in lengths:
    if length % page:
      raise InputError(
          f'--lengths={length}: expected multiples of config.data.page_length='
          f'{page}'
      )


def measure_pages(spec, report):
  """Measures a document of spec['length'] / spec['page_length'] pages.

  seconds: 'encode', and the time per token of decoding spec['tokens'] tokens
  with 'pages', 'rows' and 'global', see the top of this module.
  """
  B, L = spec['batch_size'], spec['page_length']
  P = spec['length'] // L
  model, params = test_cases.make(spec)
  inputs, _ = test_cases.make_inputs(dict(spec, batch_size=B * P, length=L))
  inputs = inputs.reshape(B, P, L)
  read = lambda params, inputs: low_memory_encoder.encode(model, params, inputs)
  encode = jax_programs.compile_program(read, params, inputs)
  encoded = jax.block_until_ready(encode(params, inputs))
  calls = {'encode': jax_programs.timed_call(encode, params, inputs)}
  cache_bytes = {}
  for name, other, rows, memory in _forms(spec, model, encoded):
    own = {key: params[key] for key in params if key != 'confidence'}
    own = params if other is model else own
    caches = test_cases.init_cache(other, own, memory, spec['tokens'], None)
    cache_bytes[name] = jax_programs.float_bytes(caches)
    calls[name] = _write_call(spec, other, own, caches, rows)
  times = timing.time_interleaved(
      calls, spec['repeats'], spec['seconds'], report
  )
  seconds = timing.medians(times)
  return dict(
      times=times,
      seconds=seconds,
      pages=P,
      temp_bytes=jax_programs.temp_bytes(encode),
      cache_bytes=cache_bytes,
      to_rows=seconds['pages'] / seconds['rows'],
      to_global=seconds['pages'] / seconds['global'],
  )


def _forms(spec, model, encoded):
  """Yields (name, model, batch rows, memory) of each compared form."""
  B = spec['batch_size']
  yield 'pages', model, B, encoded
  config = {k: v for k, v in spec['model'].items() if k not in _BART_LACKS}
  bart = models.build(dict(config, name='bart'), dtype=spec['dtype'])
  by_row = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), encoded)
  yield 'rows', bart, len(by_row['mask']), by_row
  config = dataclasses.replace(model.config, decoding='global')
  yield 'global', model.clone(config=config), B, encoded


def _write_call(spec, model, params, caches, rows):
  """Returns a function () -> seconds per token."""
  tokens, beams = spec['tokens'], spec['num_beams']
  write = jax_programs.compile_program(
      lambda params, caches: test_cases.write(
          model, params, *caches, rows, tokens, beams
      ),
      params,
      caches,
  )
  call = jax_programs.timed_call(write, params, caches)
  return lambda: call() / tokens
