"""One encoder layer: its kernels, its forward pass, and its backward pass."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import models
from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import test_cases
from locost_jax.errors import InputError
from locost_jax.models import low_memory_encoder
from locost_jax.ops import ssm_kernel

# Most bytes of one array of the materialised kernel, a slice of channels.
SLICE_BYTES = 1 << 28
# `products` runs over pieces of this many tokens.
PIECE = 2048


def check(command, config):
  """Raises an InputError for a model without long convolutions.

  Args:
    command: the command of bench.
    config: the whole config.
  """
  if not low_memory_encoder.comes_in_parts(models.build(config.model)):
    raise InputError(
        f'bench {command}: takes a layer of LOCOST apart, and config.model.name'
        f'={config.model.name!r}: expected a config of LOCOST; bench pages '
        'measures the encoder of PageSum, bench select and turn SimCAS'
    )


def measure_kernels(spec, report):
  """Compares the two-level kernels of one layer with the H x N x L array.

  Kernels of both directions. The materialised form is timed on the channels
  that fit into SLICE_BYTES, and its time is scaled to all channels.
  """
  D, N = spec['model']['d_model'], spec['model']['d_state']
  L = spec['length']
  log_z, w = test_cases.kernel_arguments(spec['model'], spec['seed'])
  channels = max(1, min(D, SLICE_BYTES // (8 * N * L)))
  two_level = jax_programs.compile_program(
      functools.partial(ssm_kernel.kernel, length=L), log_z, w
  )
  materialised = _materialised_kernels(log_z, w, channels, L)
  result = jax_programs.time_programs(
      {
          'two-level': jax_programs.timed_call(two_level, log_z, w),
          'materialised slice': jax_programs.timed_call(materialised),
      },
      spec,
      report,
  )
  seconds = result['seconds']
  seconds['materialised'] = seconds['materialised slice'] * D / channels
  ours = np.asarray(two_level(log_z, w))[:, :channels]
  theirs = np.asarray(materialised())
  return dict(
      result,
      channels=channels,
      ratio=seconds['materialised'] / seconds['two-level'],
      temp_bytes=jax_programs.temp_bytes(two_level),
      materialised_bytes=2 * D * N * L * 4,
      difference=float(abs(ours - theirs).max() / abs(theirs).max()),
  )


def _materialised_kernels(log_z, w, channels, L):
  """Returns a function () -> kernels [2, channels, L], by the array of powers.

  The array is exp(dtA l), complex [channels, N, L]; it is then multiplied
  with C.

  Args:
    log_z, w: from `test_cases.kernel_arguments`.
    channels: number of channels.
    L: length of the kernels.
  """
  z = jax.lax.complex(*(part[0, :channels] for part in log_z))
  c = jax.lax.complex(*(part[:, :channels] for part in w))
  powers = jax_programs.compile_program(
      lambda z: jnp.exp(z[..., None] * jnp.arange(L)), z
  )
  shape = jax.ShapeDtypeStruct((*z.shape, L), jnp.complex64)
  # Digits cancel in these sums, so each product needs full precision.
  multiply = jax_programs.compile_program(
      lambda c, table: 2
      * jnp.einsum('cdn,dnl->cdl', c, table, precision='highest').real,
      c,
      shape,
  )
  return lambda: multiply(c, powers(z))


def measure_layer(spec, report):
  """Measures a layer: kernels made, kernels given, and matrix products alone.

  Also measures its relative difference from the unblocked form,
  max |a - b| / max |b|, if that form fits into half of the free memory.
  """
  model, params = test_cases.first_layer(*test_cases.make(spec))
  B, L, D = spec['batch_size'], spec['length'], model.config.d_model
  args = params, *_make_input(model, spec)
  _, h, _ = args
  make_kernels = jax_programs.compile_program(
      lambda params: low_memory_encoder.kernels(model, params, L), params
  )
  kept = jax.tree.map(lambda k: k[0], make_kernels(params))
  apply = lambda params, h, mask, *kernels: low_memory_encoder.encoder_layer(
      model, params, 0, h, mask, *kernels
  )
  made = jax_programs.compile_program(apply, *args)
  given = jax_programs.compile_program(apply, *args, kept)
  weights = product_weights(model.config, model.dtype)
  alone = jax_programs.compile_program(products, h, weights)
  result = jax_programs.time_programs(
      {
          'kernels made': jax_programs.timed_call(made, *args),
          'kernels given': jax_programs.timed_call(given, *args, kept),
          'products alone': jax_programs.timed_call(alone, h, weights),
      },
      spec,
      report,
  )
  seconds, unit = result['seconds'], B * L * D * 4
  made_bytes, given_bytes = map(jax_programs.temp_bytes, (made, given))
  return dict(
      result,
      of_products=seconds['products alone'] / seconds['kernels given'],
      us_per_token={name: 1e6 * seconds[name] / (B * L) for name in seconds},
      temp_bytes=made_bytes,
      temp_bytes_given=given_bytes,
      temp_LD4=made_bytes / unit,
      temp_LD4_given=given_bytes / unit,
      **_compare_with_unblocked(
          model, args, lambda: given(*args, kept), unit, spec, report
      ),
  )


def _make_input(model, spec):
  """Returns a layer's input: random states [B, L, D] and a mask of ones."""
  B, L, D = spec['batch_size'], spec['length'], model.config.d_model
  h = jax.random.normal(jax.random.key(1), (B, L, D), model.dtype)
  return h, jnp.ones((B, L), bool)


def _compare_with_unblocked(model, args, ours, unit, spec, report):
  """Compares a layer with its unblocked form.

  Args:
    model: the Flax module.
    args: (params, h, mask) of the layer.
    ours: function () -> the layer's output.
    unit: bytes of one float32 array [B, L, D].
    spec, report: see `measurements.prepare`.

  Returns:
    dict(difference, temp_LD4_unblocked); difference is None if the unblocked
    form does not fit.
  """
  unblocked = jax_programs.compile_program(
      lambda params, h, mask: test_cases.unblocked_layer(
          model, params, 0, h, mask
      ),
      *args,
  )
  needed = jax_programs.temp_bytes(unblocked)
  difference = None
  if needed + 2 * unit < jax_programs.free_bytes(spec) / 2:
    report('the unblocked form')
    b = unblocked(*args).astype(jnp.float32)
    a = ours().astype(jnp.float32)
    difference = float(jnp.abs(a - b).max() / jnp.abs(b).max())
  return dict(difference=difference, temp_LD4_unblocked=needed / unit)


def product_weights(config, dtype):
  """Makes random matrices with the shapes of a layer's dense layers.

  Returns:
    Three lists: two or three [D, D] (key, gate, output); one or two [D, F]; one
    [F, D].
  """
  D, F = config.d_model, config.d_ff
  shapes = (
      [(D, D)] * (3 if config.gating else 2),
      [(D, F)] * (2 if config.feed_forward == 'gated-gelu' else 1),
      [(F, D)],
  )
  keys = iter(jax.random.split(jax.random.key(2), 6))
  return [
      [
          jax.random.normal(next(keys), shape, dtype) * shape[0] ** -0.5
          for shape in group
      ]
      for group in shapes
  ]


def products(h, weights):
  """Computes only a layer's dense products, over pieces of PIECE tokens.

  Args:
    h: [B, L, D].
    weights: from `product_weights`.

  Returns:
    [pieces, B, L / pieces, D].
  """
  square, up, down = weights
  B, L, D = h.shape
  count = max(1, L // PIECE)

  def piece(x):
    for matrix in square:
      x = x @ matrix
    return sum(x @ matrix for matrix in up) @ down[0]

  # The last L % count tokens, less than one in PIECE, are left out.
  pieces = h[:, : L // count * count].reshape(B, count, -1, D).swapaxes(0, 1)
  return jax.lax.map(piece, pieces)


def measure_backward(spec, model, report):
  """Measures the forward and backward pass of a layer in three forms.

  The plain equations, the model's layer, and the model's layer in pieces. A
  form that does not fit into memory is compiled but not timed.
  """
  layer = low_memory_encoder.make_layer(model)
  h, mask = _make_input(model, spec)
  params = jax.jit(lambda key: layer.init(key, h[:, :8], mask[:, :8], True))(
      jax.random.key(spec['seed'])
  )
  forms = {
      'plain layer': lambda params, h, mask: test_cases.plain_layer(
          model.config, params['params'], h, mask
      ),
      'layer': lambda params, h, mask: layer.apply(params, h, mask, True)[0],
      'layer in pieces': lambda params, h, mask: layer.apply(
          params, h, mask, True, True
      )[0],
  }
  calls, used = {}, {}
  for name, form in forms.items():
    report(f'compiling, {name}')
    program = jax_programs.compile_program(
        functools.partial(_forward_and_backward, form), params, h, mask
    )
    size = jax_programs.temp_bytes(program)
    used[name] = size / (h.size * 4)
    if jax_programs.fits(size, spec):
      calls[name] = jax_programs.timed_call(program, params, h, mask)
  result = jax_programs.time_programs(calls, spec, report)
  seconds = result['seconds']
  ratio = None
  if len(seconds) == len(forms):
    ratio = seconds['layer in pieces'] / seconds['plain layer']
  return dict(result, layer_LD4=used, layer_ratio=ratio)


def _forward_and_backward(form, params, h, mask):
  """Returns the layer's output and the gradients of (params, h)."""
  out, pull = jax.vjp(lambda params, h: form(params, h, mask), params, h)
  return out, pull(h)
