"""The models by name, and `build`, the only place that knows them all."""

import dataclasses
import difflib

import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import locost
from locost_jax.models import t5

# name -> (config dataclass, token mixer)
MODELS = {
    'locost': (locost.LocostConfig, locost.LocostMixer),
}
DTYPES = ('float32', 'bfloat16', 'float64')
REMAT = ('auto', 'none', 'pieces', 'full')


def build(config, dtype='float32', remat='auto'):
  """Makes the Flax module of a model config.

  Args:
    config: mapping with `name` and every key of that model's dataclass.
    dtype: of matmuls and activations: 'float32' or 'bfloat16' ('float64' for
      checks, with jax_enable_x64). The SSM, the FFT, softmax, norms and logits
      stay in float32 at least.
    remat: what the backward pass keeps of the L tokens of a layer. 'none': all
      that was computed. 'pieces': the encoder's layers run over pieces of long
      inputs and keep their input and the mixer's input and output; likewise the
      decoder's feed-forward over long targets. 'full': so too, and of all
      layers only the input is kept, the rest is computed again. 'auto': 'none'
      while that is little memory (`shell.AUTO_BYTES`), else 'pieces'. With
      dropout what is drawn depends on it.

  Returns:
    A module with the face of `models.t5.EncoderDecoder`.

  Raises:
    InputError: an unknown name, key or value, or a missing key.
  """
  values = dict(config)
  name = values.pop('name', None)
  if name not in MODELS:
    raise InputError(
        f'model.name={name!r} must be one of {", ".join(map(repr, MODELS))}')
  Config, mixer = MODELS[name]
  keys = {field.name: field.type for field in dataclasses.fields(Config)}
  for key in values:
    if key not in keys:
      near = difflib.get_close_matches(key, keys, 1)
      hint = f'; did you mean model.{near[0]}?' if near else ''
      raise InputError(f'model.{key} is not a key of {name}{hint}')
  missing = [key for key in keys if key not in values]
  if missing:
    raise InputError(f'model.{missing[0]} is missing: {name} needs it')
  for key, kind in keys.items():
    least = 0 if kind is float else 1
    if kind in (int, float) and not values[key] >= least:
      raise InputError(f'model.{key}={values[key]!r} must be at least {least}')
  if values['feed_forward'] not in ('gated-gelu', 'relu'):
    raise InputError(f"model.feed_forward={values['feed_forward']!r} must be "
                     "'gated-gelu' or 'relu'")
  if dtype == 'float16':
    raise InputError("dtype='float16': the T5 family's activations overflow in "
                     "it: use 'bfloat16' or 'float32'")
  if dtype not in DTYPES:
    raise InputError(f'dtype={dtype!r} must be one of '
                     f'{", ".join(map(repr, DTYPES))}')
  if remat not in REMAT:
    raise InputError(f'remat={remat!r} must be one of '
                     f'{", ".join(map(repr, REMAT))}')
  return t5.EncoderDecoder(Config(**values), mixer, jnp.dtype(dtype), remat)
