"""One row of each benchmark: everything that is measured at one length.

Every function takes a spec (`child`) and returns a dict: times {name: seconds
of each round}, seconds {name: median}, and what else belongs to its command.
Programs are compiled before they are timed.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import energy
from locost_jax import generate
from locost_jax import memory
from locost_jax.benchmarks import measure
from locost_jax.benchmarks import subjects
from locost_jax.models import in_pieces
from locost_jax.models import ssm

# Bytes of one array of the materialised kernel: a slice of channels.
SLICE_BYTES = 1 << 28
# Policies of memory that `train` compares.
POLICIES = ('none', 'pieces', 'full')
# Of the memory that is left, what a program that is timed may take.
SHARE_OF_ROOM = 0.9
# Matrix products alone run over pieces of this many tokens.
PIECE = 2048


def prepare(spec, tell):
  """Returns (what is told of the device, run) for a `child`."""
  if spec['what'] == 'encoder':
    return _prepare_encoder(spec, tell)
  if spec['what'] == 'learner':
    return _prepare_learner(spec, tell)
  return device(), lambda: dict(ROWS[spec['what']](spec, tell), **device())


def device():
  """What a row tells of the first device."""
  first = jax.local_devices()[0]
  return dict(platform=first.platform, device=first.device_kind,
              device_peak_bytes=memory.peak_device_bytes())


def _compile(function, *args):
  return jax.jit(function).lower(*args).compile()


def _call(run, *args):
  """() -> seconds of run(*args), results ready."""
  return lambda: measure.timed(
      lambda: jax.block_until_ready(run(*args)))


def _turns(calls, spec, tell):
  times = measure.take_turns(calls, spec['repeats'], spec['seconds'], tell)
  return dict(times=times, seconds=measure.medians(times))


def _bytes(tree):
  """Bytes of the floating-point arrays of a tree (of shapes or arrays)."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)
             if jnp.issubdtype(leaf.dtype, jnp.inexact))


def _room(spec):
  """Bytes that may still be taken, as far as that is known."""
  on_device = memory.free_device_bytes()
  if on_device is not None:
    return on_device
  known = [room for room in (spec['limit'], memory.free_host_bytes()) if room]
  return min(known, default=float('inf'))


def kernel(spec, tell):
  """Kernels of one layer, both directions: two levels against H x N x L.

  The materialised form computes the array of all powers exp(dtA l), complex
  [channels, N, L], and then multiplies it with C; on as many channels as fit
  SLICE_BYTES, its time scaled to all of them.
  """
  D, N = spec['model']['d_model'], spec['model']['d_state']
  L = spec['length']
  log_z, w = subjects.kernel_arguments(spec['model'], spec['seed'])
  channels = max(1, min(D, SLICE_BYTES // (8 * N * L)))
  z = jax.lax.complex(*(part[0, :channels] for part in log_z))
  c = jax.lax.complex(*(part[:, :channels] for part in w))
  two_level = _compile(
      functools.partial(ssm.kernel, length=L), log_z, w)
  powers = _compile(lambda z: jnp.exp(z[..., None] * jnp.arange(L)), z)
  shape = jax.ShapeDtypeStruct((channels, N, L), jnp.complex64)
  # The slowest lags have cancelled digits: the full precision of each product.
  multiply = _compile(lambda c, table: 2 * jnp.einsum(
      'cdn,dnl->cdl', c, table, precision='highest').real, c, shape)
  materialised = lambda: multiply(c, powers(z))
  result = _turns({'two-level': _call(two_level, log_z, w),
                   'materialised slice': _call(materialised)}, spec, tell)
  seconds = result['seconds']
  seconds['materialised'] = seconds['materialised slice'] * D / channels
  ours = np.asarray(two_level(log_z, w))[:, :channels]
  theirs = np.asarray(materialised())
  return dict(
      result, channels=channels, ratio=seconds['materialised'] /
      seconds['two-level'], temp_bytes=measure.temp_bytes(two_level),
      materialised_bytes=2 * D * N * L * 4,
      difference=float(abs(ours - theirs).max() / abs(theirs).max()))


def layer(spec, tell):
  """One encoder layer: kernels made, kernels given, its products alone.

  Also its relative difference from the unblocked form, |a - b| / |b| in the
  largest element, where that form fits half the memory left.
  """
  model, params = subjects.first_layer(*subjects.make(spec))
  B, L, D = spec['batch_size'], spec['length'], model.config.d_model
  h = jax.random.normal(jax.random.key(1), (B, L, D), model.dtype)
  mask = jnp.ones((B, L), bool)
  make_kernels = _compile(
      lambda params: in_pieces.kernels(model, params, L), params)
  kept = jax.tree.map(lambda k: k[0], make_kernels(params))
  apply = lambda params, h, mask, *kernels: in_pieces.encoder_layer(
      model, params, 0, h, mask, *kernels)
  made = _compile(apply, params, h, mask)
  given = _compile(apply, params, h, mask, kept)
  weights = product_weights(model.config, model.dtype)
  alone = _compile(products, h, weights)
  result = _turns({
      'kernels made': _call(made, params, h, mask),
      'kernels given': _call(given, params, h, mask, kept),
      'products alone': _call(alone, h, weights)}, spec, tell)
  seconds, unit = result['seconds'], B * L * D * 4
  result.update(
      of_products=seconds['products alone'] / seconds['kernels given'],
      us_per_token={name: 1e6 * seconds[name] / (B * L) for name in seconds},
      temp_bytes=measure.temp_bytes(made),
      temp_bytes_given=measure.temp_bytes(given),
      temp_LD4=measure.temp_bytes(made) / unit,
      temp_LD4_given=measure.temp_bytes(given) / unit, difference=None)
  unblocked = _compile(lambda params, h, mask: subjects.unblocked_layer(
      model, params, 0, h, mask), params, h, mask)
  result['temp_LD4_unblocked'] = measure.temp_bytes(unblocked) / unit
  if measure.temp_bytes(unblocked) + 2 * unit < _room(spec) / 2:
    tell('the unblocked form')
    b = unblocked(params, h, mask).astype(jnp.float32)
    a = given(params, h, mask, kept).astype(jnp.float32)
    result['difference'] = float(jnp.abs(a - b).max() / jnp.abs(b).max())
  return result


def product_weights(config, dtype):
  """Matrices of the shapes of a layer's dense products, each list a group.

  Returns:
    [D x D] of key, gate and output; [D x F] one or two; [F x D].
  """
  D, F = config.d_model, config.d_ff
  shapes = ([(D, D)] * (3 if config.gating else 2),
            [(D, F)] * (2 if config.feed_forward == 'gated-gelu' else 1),
            [(F, D)])
  keys = iter(jax.random.split(jax.random.key(2), 6))
  return [[jax.random.normal(next(keys), shape, dtype) * shape[0] ** -0.5
           for shape in group] for group in shapes]


def products(h, weights):
  """A layer's dense products alone, one after the other, over pieces of L."""
  square, up, down = weights
  B, L, D = h.shape
  count = max(1, L // PIECE)
  def piece(x):
    for matrix in square:
      x = x @ matrix
    return sum(x @ matrix for matrix in up) @ down[0]
  # What does not divide, less than a token in 2048, is left out.
  pieces = h[:, :L // count * count].reshape(B, count, -1, D).swapaxes(0, 1)
  return jax.lax.map(piece, pieces)


def _prepare_encoder(spec, tell):
  """The whole encoder with the whole model loaded, kernels made or kept."""
  tell('compiling')
  model, params = subjects.make(spec)
  inputs, mask = subjects.make_inputs(spec)
  told, args = device(), (params, inputs, mask)
  if spec['kept']:
    make = lambda params: in_pieces.kernels(model, params, spec['length'])
    told['kernel_bytes'] = _bytes(jax.eval_shape(make, params))
    if told['kernel_bytes'] > generate.KEPT_BYTES:
      return dict(told, too_large_to_keep=True), None
    args += (jax.block_until_ready(jax.jit(make)(params)),)
  encode = _compile(functools.partial(in_pieces.encode, model), *args)
  call = _call(encode, *args)
  told['temp_bytes'] = measure.temp_bytes(encode)
  return told, lambda: dict(seconds=call(), **device())


def _prepare_learner(spec, tell):
  """A train step as `main` takes it, by default."""
  tell('compiling')
  _, state, batch, compile_step = subjects.make_learner(spec)
  step, states = compile_step('auto'), [state]
  del state

  def run():
    states[0] = jax.block_until_ready(step(states[0], batch))[0]
  return dict(device(), temp_bytes=measure.temp_bytes(step)), (
      lambda: dict(seconds=measure.timed(run), **device()))


def decode(spec, tell):
  """Writing after reading: the caches of the input side by side.

  times: 'encode'; for each form 'cache FORM' (all that is made of the encoder
  states before the first step) and 'step FORM', the time per token of
  writing spec['tokens'] tokens, greedily or with spec['num_beams'] beams.
  """
  model, params = subjects.make(spec)
  B, tokens = spec['batch_size'], spec['tokens']
  inputs, mask = subjects.make_inputs(spec)
  encode = _compile(functools.partial(in_pieces.encode, model),
                    params, inputs, mask)
  times = measure.take_turns({'encode': _call(encode, params, inputs, mask)},
                             spec['repeats'], spec['seconds'], tell)
  encoded = jax.block_until_ready(encode(params, inputs, mask))
  begin, write, cache_bytes, caches, written = {}, {}, {}, {}, {}
  for form in subjects.CACHES:
    make = lambda params, encoded, form=form: subjects.init_cache(
        model, params, encoded, tokens, form)
    shapes = jax.eval_shape(make, params, encoded)
    cache_bytes[form] = _bytes(shapes[0])
    if sum(cache_bytes[made] for made in begin) + cache_bytes[form] > (
        0.9 * _room(spec)):
      continue  # told as a form without times
    begin[form] = _compile(make, params, encoded)
    write[form] = _compile(lambda params, caches: subjects.write(
        model, params, *caches, B, tokens, spec['num_beams']), params, shapes)
  def make_cache(form):
    caches.pop(form, None)  # the old one first: two may not fit
    def run():
      caches[form] = jax.block_until_ready(begin[form](params, encoded))
    return measure.timed(run)
  times.update(measure.take_turns(
      {f'cache {form}': functools.partial(make_cache, form) for form in begin},
      spec['repeats'], spec['seconds'], tell))
  def write_all(form):
    def run():
      written[form] = np.asarray(write[form](params, caches[form]))
    return measure.timed(run) / tokens
  times.update(measure.take_turns(
      {f'step {form}': functools.partial(write_all, form) for form in write},
      spec['repeats'], spec['seconds'], tell))
  seconds = measure.medians(times)
  same = None  # nothing to compare with
  if len(written) > 1:
    first, *others = written.values()
    same = all(bool((other == first).all()) for other in others)
  return dict(
      times=times, seconds=seconds, cache_bytes=cache_bytes, tokens=tokens,
      same_tokens=same,
      first_token={form: seconds['encode'] + seconds[f'cache {form}']
                   + seconds[f'step {form}'] for form in write},
      temp_bytes={form: measure.temp_bytes(write[form]) for form in write})


def train(spec, tell):
  """A forward pass, whole train steps, and one encoder layer that learns.

  A step for each policy of memory (`models.build`'s remat). What does not fit
  is compiled and not timed.
  """
  from locost_jax import train as training  # seconds to import
  model, state, batch, compile_step = subjects.make_learner(spec)
  forward = _compile(functools.partial(training.eval_step, model=model),
                     state.params, batch)
  calls = {'forward': lambda: jax.block_until_ready(
      forward(states[0].params, batch))}
  temp_bytes = {}
  for remat in POLICIES:
    tell(f'compiling, remat {remat}')
    step = compile_step(remat)
    temp_bytes[remat] = measure.temp_bytes(step)
    def run_step(step=step):
      states[0] = jax.block_until_ready(step(states[0], batch))[0]
    if temp_bytes[remat] < SHARE_OF_ROOM * _room(spec):
      calls[f'step {remat}'] = run_step
  states = [state]
  del state
  result = _turns({name: functools.partial(measure.timed, call)
                   for name, call in calls.items()}, spec, tell)
  states.clear()
  B, L = spec['batch_size'], spec['length']
  unit = B * L * model.config.d_model * 4
  steps = [result['seconds'][name] for name in calls if name != 'forward']
  learning = learning_layer(spec, model, tell)
  for key in ('times', 'seconds'):
    result[key].update(learning.pop(key))
  return dict(
      result, temp_bytes=temp_bytes, target_tokens=spec['tokens'],
      temp_LD4={name: size / unit for name, size in temp_bytes.items()},
      tokens_per_second=steps and B * (L + spec['tokens']) / min(steps) or None,
      **learning)


def learning_layer(spec, model, tell):
  """One encoder layer, forward and backward.

  As its equations read, as the model has it, and as that in pieces.
  """
  B, L, D = spec['batch_size'], spec['length'], model.config.d_model
  layer = in_pieces.make_layer(model)
  h = jax.random.normal(jax.random.key(1), (B, L, D), model.dtype)
  mask = jnp.ones((B, L), bool)
  params = jax.jit(lambda key: layer.init(key, h[:, :8], mask[:, :8], True))(
      jax.random.key(spec['seed']))
  calls, used = {}, {}
  forms = {
      'plain layer': lambda params, h, mask: subjects.plain_layer(
          model.config, params['params'], h, mask),
      'layer': lambda params, h, mask: layer.apply(params, h, mask, True)[0],
      'layer in pieces': lambda params, h, mask: layer.apply(
          params, h, mask, True, True)[0]}
  for name, form in forms.items():
    def run(params, h, mask, form=form):
      out, pull = jax.vjp(lambda params, h: form(params, h, mask), params, h)
      return out, pull(h)
    tell(f'compiling, {name}')
    compiled = _compile(run, params, h, mask)
    used[name] = measure.temp_bytes(compiled) / (B * L * D * 4)
    if measure.temp_bytes(compiled) < SHARE_OF_ROOM * _room(spec):
      calls[name] = _call(compiled, params, h, mask)
  result = _turns(calls, spec, tell)
  seconds = result['seconds']
  return dict(result, layer_LD4=used, layer_ratio=len(seconds) == 3 and (
      seconds['layer in pieces'] / seconds['plain layer']) or None)


def cost(spec, tell):
  """A book of `length` tokens to a summary: seconds, joules, money."""
  model, params = subjects.make(spec)
  B, tokens = spec['batch_size'], spec['tokens']
  inputs, mask = subjects.make_inputs(spec)
  encode = _compile(functools.partial(in_pieces.encode, model),
                    params, inputs, mask)
  encoded = jax.eval_shape(
      functools.partial(in_pieces.encode, model), params, inputs, mask)
  def finish(params, encoded):
    caches = subjects.init_cache(model, params, encoded, tokens, None)
    return subjects.write(
        model, params, *caches, B, tokens, spec['num_beams'])
  finish = _compile(finish, params, encoded)
  joules = []
  def whole():
    with energy.Meter() as meter:
      took = measure.timed(lambda: np.asarray(
          finish(params, encode(params, inputs, mask))))
    joules.append((meter.joules, meter.source))
    return took
  result = _turns({'whole': whole}, spec, tell)
  # Those of the rounds that count, a book each.
  count = len(result['times']['whole'])
  values = [value for value, _ in joules[-count:]]
  seconds = result['seconds']['whole'] / B
  used = None if None in values else float(np.median(values)) / B
  prices = spec['prices']
  kwh = None if used is None else used / energy.JOULES_PER_KWH
  return dict(
      result, tokens=tokens, seconds_per_book=seconds, joules=used,
      energy_source=joules[-1][1], money=_money(prices, seconds, kwh),
      grams_co2=None if None in (used, prices['carbon_intensity']) else
      energy.grams_co2(used, prices['carbon_intensity']))


def _money(prices, seconds, kwh):
  """Machine time and energy, each where its price is given; or None."""
  if prices['per_hour'] is None and None in (prices['per_kwh'], kwh):
    return None
  return ((prices['per_hour'] or 0) * seconds / 3600
          + (prices['per_kwh'] or 0) * (kwh or 0))


ROWS = dict(kernel=kernel, layer=layer, decode=decode, train=train, cost=cost)
