"""Optimisers, learning-rate schedules, and groups of parameters by path.

Rate at step s (the number of steps before this one), learning rate lr, warm-up
of U steps, cooldown of C steps before the last step, S:

  lr shape(s) min(1, (s + 1) / U) min(1, (S - s) / C)

  constant      shape = 1
  inverse_sqrt  shape = sqrt((F + 1) / max(s + 1, F + 1)), F = flat_steps

T5 (Raffel et al. 2020, section 3.1.2) has no warm-up, but F flat steps. LOCOST
is pretrained with lr 0.02 and F 10000, and fine-tuned with a constant 5e-4.

Adafactor (Shazeer and Stern 2018) with T5's settings: factored second moments
with decay 1 - t^-0.8, no momentum, updates clipped to a root mean square of 1
and multiplied by the parameter's root mean square (at least 1e-3). Without this
last factor (scale_by_parameter=False) the rate is absolute, as in Adam; PageSum
trains on GovReport in this way.
"""

import re

import jax
import jax.numpy as jnp
import optax

from locost_jax.config import kinds
from locost_jax.errors import check_choice
from locost_jax.errors import InputError
from locost_jax.models import parameters

# Weight decay suits matrices that multiply; it would pull biases, norms,
# position biases and the state spaces (log_dt, A, B, C) to arbitrary values.
_DECAYED = re.compile(r'(.*/)?(kernel|lora_[ab]|token_embedding/embedding)')
_CLIP = 1.0  # Adafactor: the largest root mean square of an update
# nn.scan stacks the layers on the first axis of everything below `layers`.
_STACKED = re.compile(r'(.*/)?layers/.*')


def inverse_sqrt(step, settings, steps):
  """Flat for F steps, then proportional to 1 / sqrt(s + 1), as in T5."""
  del steps
  flat = settings['flat_steps'] + 1.0
  return jnp.sqrt(flat / jnp.maximum(step + 1, flat))


# The shape of the learning rate between warm-up and cooldown. Functions (step,
# settings, steps) -> factor on learning_rate (float32 scalar); settings is
# config.optim as a dict, its shares turned into steps; steps is train.steps.
SCHEDULES = {
    'constant': lambda step, settings, steps: jnp.ones_like(step),
    'inverse_sqrt': inverse_sqrt,
}
# Numbers of steps; a value strictly between 0 and 1 is a share of train.steps.
STEP_KEYS = ('warmup_steps', 'flat_steps', 'cooldown_steps')


def is_share(value):
  """Whether a value of STEP_KEYS is a share of train.steps."""
  return 0 < value < 1


def to_steps(value, steps):
  """Converts a value of STEP_KEYS to steps; a share gives at least one step."""
  return max(1, round(value * steps)) if is_share(value) else int(value)


def make_schedule(config, steps):
  """Returns the learning rate as a function of the step.

  config is config.optim, which `check` accepts; steps is config.train.steps,
  where the cooldown ends. The function takes a number or an int array.
  """
  check(config, steps)
  name = config.schedule
  shape = name.call if _is_own(name) else SCHEDULES[name]
  peak = float(config.learning_rate)
  settings = dict(config)
  settings.update({key: to_steps(config[key], steps) for key in STEP_KEYS})
  warmup, cooldown = settings['warmup_steps'], settings['cooldown_steps']

  def schedule(step):
    step = jnp.asarray(step, jnp.float32)
    rate = peak * shape(step, settings, steps)
    if warmup:
      rate *= jnp.minimum(1.0, (step + 1) / warmup)
    if cooldown:
      rate *= jnp.clip((steps - step) / cooldown, 0.0, 1.0)
    return rate

  return schedule


def check(config, steps):
  """Raises an InputError for values that do not go together.

  config is config.optim; steps is config.train.steps.
  """
  check_choice('optim.name', config.name, ('adamw', 'adafactor'))
  if config.name == 'adamw' and not config.scale_by_parameter:
    raise InputError(
        "optim.scale_by_parameter=False: has no effect with optim.name='adamw';"
        " expected True, or optim.name='adafactor'"
    )
  name, flat = config.schedule, config.flat_steps
  if not _is_own(name) and name not in SCHEDULES:
    raise InputError(
        f'optim.schedule={name!r} must be one of '
        f'{", ".join(map(repr, SCHEDULES))}, or a function of your own config '
        '(--config=FILE)'
    )
  if flat and name == 'constant':
    raise InputError(
        f"optim.flat_steps={flat}: has no effect with optim.schedule='constant'"
        "; expected 0, or optim.schedule='inverse_sqrt'"
    )
  if to_steps(config.cooldown_steps, steps) > steps:
    raise InputError(
        f'optim.cooldown_steps={config.cooldown_steps}: expected at most '
        f'train.steps={steps}, or a share of it between 0 and 1'
    )


def _is_own(schedule):
  return isinstance(schedule, kinds.Function)


def make_optimizer(config, steps, params):
  """Returns the whole optimiser: clip, direction, decay, groups, rate.

  The rate depends on the step and not on the optimiser's own count, so that it
  stays right when steps are skipped: `update` needs `step=`, an int scalar.

  It is for the trained part of `split`: frozen parameters have no optimiser
  state and do not count in the clipped norm. Of `params` only paths are read.

  Raises:
    InputError: a group's regex matches no path, or every parameter is frozen.
  """
  factors = group_factors(config.groups, params)
  if not any(factors.values()):
    raise InputError(f'optim.groups={config.groups}: every parameter is frozen')
  parts = []
  if config.clip:
    parts.append(optax.clip_by_global_norm(config.clip))
  if config.name == 'adamw':
    parts.append(optax.scale_by_adam(config.b1, config.b2, config.eps))
  else:
    parts += [
        optax.scale_by_factored_rms(decay_rate=0.8),
        _by_path(
            lambda path, u, p: u / jnp.maximum(1.0, _layer_rms(path, u) / _CLIP)
        ),
    ]
    if config.scale_by_parameter:
      parts.append(
          _by_path(
              lambda path, u, p: u * jnp.maximum(_layer_rms(path, p), 1e-3)
          )
      )
  if config.weight_decay:
    is_decayed = lambda path, _: _DECAYED.fullmatch(path) is not None
    parts.append(
        optax.add_decayed_weights(
            config.weight_decay,
            lambda params: parameters.map_with_path(is_decayed, params),
        )
    )
  if any(factor != 1 for factor in factors.values()):
    parts.append(_by_path(lambda path, u, p: factors[path] * u))
  return optax.chain(*parts, _scale_by_rate(make_schedule(config, steps)))


def split(params, groups):
  """Splits the parameters into trained and frozen ones, two nested dicts.

  Differentiate with respect to the first alone, so that no gradient of a frozen
  parameter is computed.
  """
  factors = group_factors(groups, params)
  trained, frozen = {}, {}
  for path, leaf in parameters.flatten(params).items():
    (trained if factors[path] else frozen)[path] = leaf
  return parameters.unflatten(trained), parameters.unflatten(frozen)


def combine(one, other):
  """Merges two nested dicts without a common path: the inverse of `split`."""
  return parameters.unflatten(
      parameters.flatten(one) | parameters.flatten(other)
  )


def group_factors(groups, params):
  """Returns the factor on the rate of every parameter: {path: factor}.

  Args:
    groups: ((regex, factor), ...); the first regex that matches the whole path
      decides, 0 freezes. A path looks like 'encoder/layers/mixer/ssm/log_dt'.
    params: the parameters or their shapes; the result has their order.

  Raises:
    InputError: a regex that matches no path.
  """
  rows = [(re.compile(pattern), float(factor)) for pattern, factor in groups]
  paths = list(parameters.flatten(params))
  for regex, _ in rows:
    if not any(map(regex.fullmatch, paths)):
      raise InputError(
          f'optim.groups: {regex.pattern!r} matches no parameter; '
          f'paths read like {paths[0]!r}'
      )

  def factor_of(path):
    matching = (factor for regex, factor in rows if regex.fullmatch(path))
    return next(matching, 1.0)

  return {path: factor_of(path) for path in paths}


def norms_by_group(tree, squares):
  """Returns the norms of groups of parameters.

  Args:
    tree: like the parameters; only paths are read.
    squares: [leaves of the tree], the sum of squares of each.

  Returns:
    {'encoder/layers/mixer': scalar, ...}: in layers, one group for each part,
    with its norm, over all layers; elsewhere one for each second-level module.
    The squares add up to the square of the global norm.
  """
  groups = {}
  for i, path in enumerate(parameters.flatten(tree)):
    modules = path.split('/')[:-1] or [path]
    depth = 3 if 'layers' in modules[1:2] else 2
    name = '/'.join(modules[:depth]).removesuffix('_norm')
    groups.setdefault(name, []).append(i)
  return {
      name: jnp.sqrt(jnp.sum(squares[jnp.array(rows)]))
      for name, rows in groups.items()
  }


def _by_path(function):
  """Changes each update to function(path, update, parameter)."""
  return optax.stateless(
      lambda updates, params: parameters.map_with_path(
          function, updates, params
      )
  )


def _scale_by_rate(schedule):
  """Multiplies by -schedule(step); `step` is an argument of every update."""

  def update(updates, state, params=None, *, step, **_):
    del params
    rate = schedule(step)
    return jax.tree.map(lambda u: -rate * u, updates), state

  return optax.GradientTransformationExtraArgs(
      lambda params: optax.EmptyState(), update
  )


def _layer_rms(path, x):
  """Root mean square of each layer of a stacked array, else of the whole array.

  optax.adafactor would take one over all stacked layers; in T5, layers are
  separate arrays with a root mean square each.
  """
  axes = tuple(range(1, x.ndim)) if _STACKED.fullmatch(path) else None
  return jnp.sqrt(jnp.mean(jnp.square(x), axis=axes, keepdims=True))
