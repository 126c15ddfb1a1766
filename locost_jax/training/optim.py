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
from locost_jax.config import schema
from locost_jax.errors import InputError
from locost_jax.models import parameters

# Weight decay suits matrices that multiply; it would pull biases, norms,
# position biases and the state spaces (log_dt, A, B, C) to arbitrary values.
_DECAYED = re.compile(r'(.*/)?(kernel|lora_[ab]|token_embedding/embedding)')
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

  Args:
    steps: config.train.steps, where the cooldown ends.

  Returns:
    A function from a step (number or int array) to a float32 scalar.
  """
  shape = check_schedule(config, steps)
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


def check_schedule(config, steps):
  """Returns its function; raises an InputError for an invalid schedule."""
  schema.check_section('optim', config)
  name, flat = config.schedule, config.flat_steps
  is_own = isinstance(name, kinds.Function)
  if not is_own and name not in SCHEDULES:
    raise InputError(
        f'optim.schedule={name!r}: expected {" or ".join(map(repr, SCHEDULES))}'
        ', or a function of your own config (--config=FILE)'
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
  return name.call if is_own else SCHEDULES[name]


def check_name(config):
  """Raises an InputError for an unknown optimiser or a key that it ignores."""
  if config.name not in ('adamw', 'adafactor'):
    raise InputError(
        f"optim.name={config.name!r}: expected 'adamw' or 'adafactor'"
    )
  if config.name == 'adamw' and not config.scale_by_parameter:
    raise InputError(
        "optim.scale_by_parameter=False: has no effect with optim.name='adamw';"
        " expected True, or optim.name='adafactor'"
    )


def make_optimizer(config, steps, params):
  """Returns the whole optimiser: clip, direction, decay, groups, rate.

  The rate depends on the step and not on the optimiser's own count, so that it
  stays right when steps are skipped: `update` needs `step=`, an int scalar.

  Args:
    params: the parameters or their shapes; only paths are read.

  Returns:
    An optax.GradientTransformationExtraArgs for the trained part of `split`:
    frozen parameters have no optimiser state and do not count in the clipped
    norm.

  Raises:
    InputError: as in `check_name`, a group's regex matches no path, or every
      parameter is frozen.
  """
  check_name(config)
  schedule = make_schedule(config, steps)
  factors = group_factors(config.groups, params)
  if not any(jax.tree.leaves(factors)):
    raise InputError(f'optim.groups={config.groups}: every parameter is frozen')
  parts = []
  if config.clip:
    parts.append(optax.clip_by_global_norm(config.clip))
  if config.name == 'adamw':
    parts.append(optax.scale_by_adam(config.b1, config.b2, config.eps))
  else:
    parts += [
        optax.scale_by_factored_rms(decay_rate=0.8),
        _clip_by_layer_rms(1.0),
    ]
    if config.scale_by_parameter:
      parts.append(_scale_by_layer_rms(1e-3))
  if config.weight_decay:
    is_decayed = lambda path: _DECAYED.fullmatch(path) is not None
    parts.append(
        optax.add_decayed_weights(
            config.weight_decay,
            lambda params: parameters.map_paths(is_decayed, params),
        )
    )
  if any(factor != 1 for factor in jax.tree.leaves(factors)):
    parts.append(_scale_groups(factors))
  return optax.chain(*parts, _scale_by_rate(schedule))


def split(params, groups):
  """Splits the parameters into trained and frozen ones, two nested dicts.

  Differentiate with respect to the first alone, so that no gradient of a frozen
  parameter is computed.

  Args:
    params: nested dict of parameters or shapes.
  """
  factors = group_factors(groups, params)
  return (
      _pick(params, factors, lambda factor: factor != 0),
      _pick(params, factors, lambda factor: factor == 0),
  )


def combine(one, other):
  """Merges two nested dicts without a common path: the inverse of `split`."""
  both = dict(one)
  for key, node in other.items():
    both[key] = combine(one[key], node) if key in one else node
  return both


def _pick(params, factors, is_picked):
  """Returns the part of a nested dict whose factors are picked."""
  picked = {}
  for key, node in params.items():
    if isinstance(node, dict):
      node = _pick(node, factors[key], is_picked)
      if node:
        picked[key] = node
    elif is_picked(factors[key]):
      picked[key] = node
  return picked


def group_factors(groups, params):
  """Returns the factor on the rate of every parameter.

  Args:
    groups: ((regex, factor), ...); the first regex that matches the whole path
      decides, 0 freezes. A path looks like 'encoder/layers/mixer/ssm/log_dt'.

  Raises:
    InputError: a regex that matches no path.
  """
  rows = [(re.compile(pattern), float(factor)) for pattern, factor in groups]
  paths = jax.tree.leaves(parameters.map_paths(str, params))
  for regex, _ in rows:
    if not any(regex.fullmatch(path) for path in paths):
      raise InputError(
          f'optim.groups: {regex.pattern!r} matches no parameter; '
          f'paths read like {paths[0]!r}'
      )

  def factor_of(path):
    matching = (factor for regex, factor in rows if regex.fullmatch(path))
    return next(matching, 1.0)

  return parameters.map_paths(factor_of, params)


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
  for i, path in enumerate(jax.tree.leaves(parameters.map_paths(str, tree))):
    modules = path.split('/')[:-1] or [path]
    depth = 3 if 'layers' in modules[1:2] else 2
    name = '/'.join(modules[:depth]).removesuffix('_norm')
    groups.setdefault(name, []).append(i)
  return {
      name: jnp.sqrt(jnp.sum(squares[jnp.array(rows)]))
      for name, rows in groups.items()
  }


def _scale_groups(factors):
  """Multiplies by the factor at each path; frozen paths are missing."""
  by_path = {}
  parameters.map_with_path(by_path.setdefault, factors)

  def update(updates, params):
    del params
    return parameters.map_with_path(lambda path, u: by_path[path] * u, updates)

  return optax.stateless(update)


def _scale_by_rate(schedule):
  """Multiplies by -schedule(step); `step` is an argument of every update."""

  def update(updates, state, params=None, *, step, **_):
    del params
    rate = schedule(step)
    return jax.tree.map(lambda u: -rate * u, updates), state

  return optax.GradientTransformationExtraArgs(
      lambda params: optax.EmptyState(), update
  )


def _clip_by_layer_rms(threshold):
  """Divides each layer's update by max(1, rms / threshold)."""

  def update(updates, params):
    del params
    return parameters.map_with_path(
        lambda path, u: u / jnp.maximum(1.0, _layer_rms(path, u) / threshold),
        updates,
    )

  return optax.stateless(update)


def _scale_by_layer_rms(smallest):
  """Multiplies each layer's update by max(rms of its parameter, smallest)."""

  def update(updates, params):
    return parameters.map_with_path(
        lambda path, u, p: u * jnp.maximum(_layer_rms(path, p), smallest),
        updates,
        params,
    )

  return optax.stateless(update)


def _layer_rms(path, x):
  """Root mean square of each layer of a stacked array, else of the whole array.

  optax.adafactor would take one over all stacked layers; in T5, layers are
  separate arrays with a root mean square each.
  """
  axes = None
  if _STACKED.fullmatch(path):
    axes = tuple(range(1, x.ndim))
  return jnp.sqrt(jnp.mean(jnp.square(x), axis=axes, keepdims=True))
