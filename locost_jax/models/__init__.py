"""The models by name, and `build`, the only place that knows them all."""

import dataclasses

import jax.numpy as jnp

from locost_jax.config import model_keys
from locost_jax.errors import check_choice
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.models import bart
from locost_jax.models import bigbird_pegasus
from locost_jax.models import encoder_decoder
from locost_jax.models import led
from locost_jax.models import locost
from locost_jax.models import longt5
from locost_jax.models import pagesum
from locost_jax.models import pegasus_x
from locost_jax.models import self_attention
from locost_jax.models import simcas


def _around(mixer):
  """(config, dtype, remat) -> the T5-style model around this token mixer."""
  return lambda config, dtype, remat: encoder_decoder.EncoderDecoder(
      config, mixer, dtype, remat
  )


# name -> (config dataclass, (config, dtype, remat) -> Flax module)
MODELS = {
    'locost': (locost.LocostConfig, _around(locost.LocostMixer)),
    't5': (self_attention.T5Config, _around(self_attention.SelfAttention)),
    'longt5': (longt5.LongT5Config, _around(longt5.LongT5Attention)),
    'bart': (bart.BartConfig, bart.Bart),
    'led': (led.LEDConfig, led.LED),
    'pegasus_x': (pegasus_x.PegasusXConfig, pegasus_x.PegasusX),
    'bigbird_pegasus': (
        bigbird_pegasus.BigBirdPegasusConfig,
        bigbird_pegasus.BigBirdPegasus,
    ),
    'pagesum': (pagesum.PageSumConfig, pagesum.PageSum),
    'simcas': (simcas.SimCASConfig, simcas.SimCAS),
}
DTYPES = ('float32', 'bfloat16', 'float64')
REMAT = ('auto', 'none', 'pieces', 'full')


def check_padding(config, token, where):
  """Raises an InputError if a model has another padding than a vocabulary."""
  if token != config.pad_id:
    raise InputError(
        f"{where}: its padding is {token}, the model's "
        f'{config.pad_id}: they do not belong together'
    )


def check_length(config, length, what, way_out=''):
  """Raises an InputError for more tokens than a model has positions."""
  most = config.max_positions
  if most is not None and length > most:
    raise InputError(
        f'{what}: {length} tokens, but the model reads and writes '
        f'at most {most}{way_out}'
    )


def make_config(config):
  """Returns the checked config of a model, a frozen dataclass.

  Args:
    config: mapping with `name` and the keys of that model's dataclass; a key
      that is absent has the dataclass's default, if it has one.
  """
  values = dict(config)
  name = values.pop('name', None)
  check_choice('model.name', name, MODELS)
  Config, _ = MODELS[name]
  fields = {field.name: field for field in dataclasses.fields(Config)}
  for key, value in values.items():
    if key not in fields:
      hint = suggest(key, list(fields), 'model.')
      raise InputError(f'model.{key} is not a key of {name}{hint}')
    own = model_keys.MODELS.get(name, {}).get(key)
    if own and (problem := own.kind.problem(key, value)):
      raise InputError(f'model.{key}={value!r}: {problem}')
  for key, field in fields.items():
    if key not in values and field.default is dataclasses.MISSING:
      raise InputError(f'model.{key} is missing: {name} needs it')
  if not values['vocab_size']:
    raise InputError('model.vocab_size=0: expected that of the vocabulary')
  return Config(**values)


def check_numerics(dtype, remat):
  """Raises an InputError for a dtype or remat that `build` does not take."""
  if dtype == 'float16':
    raise InputError(
        "dtype='float16': the T5 family's activations overflow in "
        "it: use 'bfloat16' or 'float32'"
    )
  check_choice('dtype', dtype, DTYPES)
  check_choice('remat', remat, REMAT)


def build(config, dtype='float32', remat='auto'):
  """Makes the Flax module of a model config.

  Args:
    dtype: of matmuls and activations: 'float32' or 'bfloat16' ('float64' for
      checks, with jax_enable_x64). The SSM, the FFT, softmax, norms and logits
      stay in float32 at least.
    remat: what the backward pass keeps of a layer. 'none': everything computed.
      'pieces': the encoder's layers run over pieces of long inputs and keep
      their input, the mixer's input and output, and its kernels if they are
      small (`locost.KEPT_BYTES`); likewise the decoder's feed-forward over long
      targets. 'full': also in pieces, but all layers keep only their input and
      recompute the rest. 'auto': 'none' if that takes little memory
      (`stack.AUTO_BYTES`), else 'pieces'. Dropout masks depend on it.

  Returns:
    A module with the interface of `models.encoder_decoder.Model`.
  """
  checked = make_config(config)
  check_numerics(dtype, remat)
  _, make = MODELS[config['name']]
  return make(checked, jnp.dtype(dtype), remat)
