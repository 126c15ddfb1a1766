"""Models, weights and inputs to measure with, and parts of a model alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import decode
from locost_jax import models
from locost_jax.models import in_pieces
from locost_jax.models import layers
from locost_jax.models import locost
from locost_jax.models import pairs
from locost_jax.models import ssm

# How the input is kept for decoding, whatever `init_cache` chooses by length.
CACHES = ('keys and values', 'absorbed')


def make(spec):
  """Returns (model, params): random weights of a config.

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


def make_learner(spec):
  """What a train step of a config needs, with random weights and tokens.

  Args:
    spec: as in `make` and `make_inputs`, with optim (the whole of config.optim)
      and tokens (of a target).

  Returns:
    (model, state, batch, compile_step): compile_step(remat) gives the compiled
    step, which takes the state's memory.
  """
  from locost_jax import optim  # with what training needs: seconds to import
  from locost_jax import train
  from ml_collections import ConfigDict
  config = ConfigDict(spec['optim'])
  model, params = make(spec)
  inputs, _ = make_inputs(spec)
  targets, _ = make_inputs(dict(spec, length=spec['tokens']))
  batch = dict(encoder_input_tokens=inputs, decoder_input_tokens=targets,
               decoder_target_tokens=targets,
               decoder_loss_weights=jnp.ones(targets.shape, jnp.float32))
  optimizer = optim.make_optimizer(config, 1000, params)
  state = train.TrainState(
      jnp.int32(0), params, optimizer.init(params),
      jax.random.key_data(jax.random.key(0)), jnp.int32(0))

  def compile_step(remat):
    step = functools.partial(
        train.train_step, model=model.clone(remat=remat), config=config,
        optimizer=optimizer, schedule=optim.make_schedule(config, 1000))
    return jax.jit(step, donate_argnums=0).lower(state, batch).compile()

  return model, state, batch, compile_step


def first_layer(model, params):
  """Returns the model cut down to its first encoder layer, and its params."""
  config = dataclasses.replace(model.config, num_layers=1)
  encoder = dict(params['encoder'], layers=jax.tree.map(
      lambda p: p[:1], params['encoder']['layers']))
  return model.clone(config=config), dict(params, encoder=encoder)


def unblocked_layer(model, params, index, h, mask):
  """`in_pieces.encoder_layer` with every intermediate result at full length."""
  own = jax.tree.map(lambda p: p[index], params['encoder']['layers'])
  return in_pieces.make_layer(model).apply({'params': own}, h, mask, True)[0]


def plain_layer(config, params, h, mask):
  """An encoder layer as its equations read, every array whole.

  In jnp with JAX's own gradients; only the kernels are made by `ssm`.

  Args:
    config: a `locost.LocostConfig`; of the exact convolution.
    params: of `in_pieces.make_layer`.
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
        'bias', jnp.zeros(())).astype(h.dtype)

  x = norm(h, 'mixer_norm')
  u = layers.at_least_float32(project(x, mixer['key'])) * mask[..., None]
  k = locost.circular_kernel(
      config, *locost.discretise(config, mixer['ssm']), L)
  n = k.shape[1]
  y = jnp.fft.irfft(
      jnp.fft.rfft(u, n, axis=1) * jnp.fft.rfft(k).T, n, axis=1)[:, :L]
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
  """(log z, w) of one layer as the release initialises it, for `ssm.kernel`.

  Args:
    model_config: dict with d_model (D) and d_state (N).
    seed: of log dt and C.

  Returns:
    Pairs (re, im) of [1, D, N] and of [2, D, N], two directions.
  """
  D, N = model_config['d_model'], model_config['d_state']
  keys = jax.random.split(jax.random.key(seed))
  log_dt = ssm.init_log_dt(keys[0], (1, D))
  log_A_real = ssm.init_log_A_real(None, (1, D, N))
  A_imag = ssm.init_A_imag(None, (1, D, N))
  B = ssm.init_ones(None, (1, D, N, 2))
  C = ssm.init_complex_normal(keys[1], (2, D, N, 2))
  b = ssm.input_weights_zoh(log_dt, log_A_real, A_imag, B)
  w = pairs.multiply((C[..., 0], C[..., 1]), b)
  return ssm.discretise(log_dt, log_A_real, A_imag), w


def init_cache(model, params, memory, max_length, form):
  """(shared, per_row) of `EncoderDecoder.init_cache`.

  Args:
    model: the Flax module.
    params: its parameters.
    memory: of `encode`.
    max_length: tokens to be written.
    form: of CACHES, or None: what the model chooses for this length.
  """
  def keys_and_values(model, states):
    return model.decoder.cross_cache(states)
  variables = {'params': params}
  shared, per_row = model.apply(
      variables, memory, max_length, method='init_cache')
  if form is None:
    return shared, per_row
  if form == 'absorbed':
    return memory, per_row
  cross = model.apply(variables, memory['states'], method=keys_and_values)
  return {'cross': cross, 'mask': memory['mask']}, per_row


def write(model, params, shared, per_row, batch_size, tokens, num_beams):
  """Decodes exactly `tokens` tokens, eos at the end at most: int32 [B, T]."""
  settings = decode.Settings(
      max_length=tokens, min_length=tokens, num_beams=num_beams)
  step = functools.partial(model.apply, {'params': params}, method='step')
  state = decode.begin(settings, per_row, batch_size)
  state = decode.advance(settings, step, shared, state, tokens)
  return decode.finish(settings, state)[0]
