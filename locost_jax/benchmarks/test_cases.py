"""Makes models, weights, inputs and parts of models for measurements."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import models
from locost_jax.generation import decode
from locost_jax.generation import decode_settings
from locost_jax.models import layers
from locost_jax.models import locost
from locost_jax.models import low_memory_encoder
from locost_jax.ops import complex_pairs
from locost_jax.ops import ssm
from locost_jax.training import step as step_lib

# Forms of the input's cache; a model's `init_cache` chooses by length.
CACHES = ('keys and values', 'absorbed')


def make(spec):
  """Returns (model, params), a model with random weights.

  Args:
    spec: dict with model (the whole of config.model), dtype and seed.
  """
  model = models.build(spec['model'], dtype=spec['dtype'])
  tokens = jnp.ones((1, 8), jnp.int32)
  init = jax.jit(lambda key: model.init(key, tokens, tokens)['params'])
  return model, jax.block_until_ready(init(jax.random.key(spec['seed'])))


def make_inputs(spec):
  """Returns random token ids [B, L] and a mask of ones."""
  shape = spec['batch_size'], spec['length']
  generator = np.random.default_rng(spec['seed'])
  first = min(3, spec['model']['vocab_size'] - 1)
  ids = generator.integers(first, spec['model']['vocab_size'], shape, np.int32)
  return jnp.asarray(ids), jnp.ones(shape, bool)


def make_train_step(spec):
  """Makes a train step of a config, with random weights and tokens.

  Args:
    spec: see `make` and `make_inputs`, with optim (the whole of config.optim)
      and tokens (of a target).

  Returns:
    (model, state, batch, compile_step): compile_step(remat) returns the
    compiled step, which donates (reuses) the memory of the state.
  """
  from ml_collections import ConfigDict

  from locost_jax.training import optim  # seconds to import

  config = ConfigDict(spec['optim'])
  model, params = make(spec)
  inputs, _ = make_inputs(spec)
  targets, _ = make_inputs(dict(spec, length=spec['tokens']))
  batch = dict(
      encoder_input_tokens=inputs,
      decoder_input_tokens=targets,
      decoder_target_tokens=targets,
      decoder_loss_weights=jnp.ones(targets.shape, jnp.float32),
  )
  optimizer = optim.make_optimizer(config, 1000, params)
  state = step_lib.TrainState(
      jnp.int32(0),
      params,
      optimizer.init(params),
      jax.random.key_data(jax.random.key(0)),
      jnp.int32(0),
  )

  def compile_step(remat):
    step = functools.partial(
        step_lib.train_step,
        model=model.clone(remat=remat),
        config=config,
        optimizer=optimizer,
        schedule=optim.make_schedule(config, 1000),
    )
    return jax.jit(step, donate_argnums=0).lower(state, batch).compile()

  return model, state, batch, compile_step


def first_layer(model, params):
  """Returns the model with only its first encoder layer, and its params."""
  config = dataclasses.replace(model.config, num_layers=1)
  encoder = dict(
      params['encoder'],
      layers=jax.tree.map(lambda p: p[:1], params['encoder']['layers']),
  )
  return model.clone(config=config), dict(params, encoder=encoder)


def unblocked_layer(model, params, index, h, mask):
  """Applies an encoder layer without blocks, all arrays at full length."""
  own = jax.tree.map(lambda p: p[index], params['encoder']['layers'])
  return low_memory_encoder.make_layer(model).apply(
      {'params': own}, h, mask, True
  )[0]


def plain_layer(config, params, h, mask):
  """Applies an encoder layer by its plain equations, all arrays at full length.

  Uses jnp and JAX's own gradients; only the kernels come from `locost`.

  Args:
    config: a `locost.LocostConfig` with the exact convolution.
    params: parameters of `low_memory_encoder.make_layer`.
    h: [B, L, D].
    mask: bool [B, L].

  Returns:
    [B, L, D].
  """
  mixer, ff, L = params['mixer'], params['feed_forward'], h.shape[1]

  def norm(x, name):
    x = layers.at_least_float32(x)
    mean = jnp.mean(x**2, -1, keepdims=True) + config.layer_norm_epsilon
    return (x / jnp.sqrt(mean) * params[name]['scale']).astype(h.dtype)

  def project(x, p):
    return x @ p['kernel'].astype(h.dtype) + p.get(
        'bias', jnp.zeros(())
    ).astype(h.dtype)

  x = norm(h, 'mixer_norm')
  u = layers.at_least_float32(project(x, mixer['key'])) * mask[..., None]
  k = locost.circular_kernel(
      config, *locost.discretise(config, mixer['ssm']), L
  )
  n = k.shape[1]
  y = jnp.fft.irfft(jnp.fft.rfft(u, n, axis=1) * jnp.fft.rfft(k).T, n, axis=1)[
      :, :L
  ]
  y = y.astype(h.dtype)
  if config.gating:
    y = y * project(x, mixer['gate'])
  h = h + project(y, mixer['output'])
  x = norm(h, 'feed_forward_norm')
  if config.feed_forward == 'gated-gelu':
    hidden = jax.nn.gelu(project(x, ff['wi_0'])) * project(x, ff['wi_1'])
  else:
    hidden = jax.nn.relu(project(x, ff['wi']))
  return h + project(hidden, ff['wo'])


def kernel_arguments(model_config, seed):
  """Makes (log z, w) of one layer, initialised like the release.

  Args:
    model_config: dict with d_model (D) and d_state (N).
    seed: of log dt and C.

  Returns:
    Pairs (re, im) of shapes [1, D, N] and [2, D, N], two directions.
  """
  D, N = model_config['d_model'], model_config['d_state']
  keys = jax.random.split(jax.random.key(seed))
  log_dt = ssm.init_log_dt()(keys[0], (1, D))
  log_A_real = ssm.init_A('s4d-lin', 0)(None, (1, D, N))
  A_imag = ssm.init_A('s4d-lin', 1)(None, (1, D, N))
  B = ssm.init_ones(None, (1, D, N, 2))
  C = ssm.init_complex_normal(keys[1], (2, D, N, 2))
  b = ssm.input_weights_zoh(log_dt, log_A_real, A_imag, B)
  w = complex_pairs.multiply((C[..., 0], C[..., 1]), b)
  return ssm.discretise(log_dt, log_A_real, A_imag), w


def init_cache(model, params, memory, max_length, form):
  """Makes (shared, per_row), see `EncoderDecoder.init_cache`.

  Args:
    model: the Flax module.
    params: its parameters.
    memory: output of `encode`.
    max_length: number of tokens to generate.
    form: one of CACHES; None: the form that the model chooses for this length.
  """

  def keys_and_values(model, states):
    return model.decoder.cross_cache(states)

  variables = {'params': params}
  shared, per_row = model.apply(
      variables, memory, max_length, method='init_cache'
  )
  if form is None:
    return shared, per_row
  if form == 'absorbed':
    return memory, per_row
  cross = model.apply(variables, memory['states'], method=keys_and_values)
  return {'cross': cross, 'mask': memory['mask']}, per_row


def make_writer(spec, model):
  """Returns a function (params, memory) -> tokens, int32 [B, T], with caches.

  Args:
    spec: see `spec.make_spec`.
    model: the Flax module.
  """
  tokens = spec['tokens']

  def write_all(params, memory):
    caches = init_cache(model, params, memory, tokens, None)
    return write(
        model, params, *caches, spec['batch_size'], tokens, spec['num_beams']
    )

  return write_all


def write(model, params, shared, per_row, batch_size, tokens, num_beams):
  """Decodes exactly `tokens` tokens, EOS only at the end: int32 [B, T]."""
  settings = decode_settings.Settings(
      max_length=tokens, min_length=tokens, num_beams=num_beams
  )
  step = functools.partial(model.apply, {'params': params}, method='step')
  state = decode.begin(settings, per_row, batch_size)
  state = decode.advance(settings, step, shared, state, tokens)
  return decode.finish(settings, state)[0]
