"""Training objectives: a name -> its first state and its step.

likelihood  the cross entropy of the targets (`training.step`)
simcas      the same with SimCAS's selector frozen; after every
            selector.every-th step, a turn of the selector with everything else
            frozen (`training.selector_turn`). The turn is a branch of the same
            program, so the step stays a pure function of (state, batch).

The optimiser state of 'simcas' is a dict: `generator` and `selector` (one state
for each set of parameters), `turns` (the number of turns so far), and `last`
(the metrics of the latest turn, which every step reports).
"""

import copy
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax.devices import sharding
from locost_jax.errors import check_choice
from locost_jax.errors import InputError
from locost_jax.models import lora
from locost_jax.models import selector as selector_lib
from locost_jax.training import optim
from locost_jax.training import ppo
from locost_jax.training import selector_turn
from locost_jax.training import step as step_lib

# Folded into a step's key; pieces of a batch use 0, 1, ...
# (`step.loss_and_gradients`).
SAMPLING, TURN = 1 << 30, (1 << 30) + 1


class Objective(NamedTuple):
  """A pair of pure functions."""

  init: Any  # typed key -> step.TrainState before the first step
  step: Any  # (state, batch) -> (state, metrics); see `step.train_step`


class Programs(NamedTuple):
  """The compiled functions of a run, except evaluation."""

  init: Any  # key -> TrainState; not compiled
  shapes: Any  # the model's parameters as shapes
  shardings: Any  # a TrainState of shardings
  step: Any  # (state, batch) -> (state, metrics); donates the state


def make_programs(config, model, mesh):
  """Returns the Programs of a run; nothing is computed or compiled yet."""
  key = jax.eval_shape(lambda: jax.random.key(config.train.seed))
  shapes = jax.eval_shape(
      functools.partial(step_lib.init_params, model=model), key
  )
  objective = OBJECTIVES[config.train.objective](config, model, shapes)
  shardings = sharding.state_shardings(
      mesh, jax.eval_shape(objective.init, key)
  )
  return Programs(
      objective.init,
      shapes,
      shardings,
      jax.jit(
          objective.step,
          donate_argnums=0,
          out_shardings=(shardings, sharding.replicated(mesh)),
      ),
  )


def likelihood(config, model, shapes):
  """Returns the Objective of `step.train_step`."""
  rules = lora.optim_config(config)
  optimizer = make_optimizer(config, shapes)
  init = functools.partial(
      step_lib.init_state,
      model=model,
      optimizer=optimizer,
      groups=rules.groups,
      adapters=config.train.lora,
  )
  step = functools.partial(
      step_lib.train_step,
      model=model,
      optimizer=optimizer,
      schedule=optim.make_schedule(rules, config.train.steps),
      config=config,
  )
  return Objective(init, step)


def simcas(config, model, shapes):
  """Returns the Objective of SimCAS (section 3.4 of its paper)."""
  frozen = copy.deepcopy(config)
  frozen.optim.groups = (selector_turn.FROZEN, *config.optim.groups)
  generator = likelihood(frozen, model, shapes)
  turn = selector_turn.SelectorTurn(
      config, model, with_adapters(config, shapes)
  )

  def init(rng):
    state = generator.init(rng)
    return state._replace(
        opt_state={
            'generator': state.opt_state,
            'selector': turn.init(state.params),
            'turns': jnp.int32(0),
            'last': {name: jnp.float32(0) for name in selector_turn.METRICS},
        }
    )

  def step(state, batch):
    key = jax.random.wrap_key_data(state.rng)
    key = jax.random.fold_in(key, state.step)
    seeds = sampling_seeds(batch, jax.random.fold_in(key, SAMPLING), model)
    batch = batch | {step_lib.SEEDS: seeds}
    before = state.opt_state
    state, metrics = generator.step(
        state._replace(opt_state=before['generator']), batch
    )
    # state.step is now the number of steps done, as in the release.
    is_due = state.step % config.selector.every == 0
    turned = jax.lax.cond(
        is_due,
        functools.partial(turn.take, rng=jax.random.fold_in(key, TURN)),
        lambda turned, _: turned,
        selector_turn.Turned(state.params, before['selector'], before['last']),
        batch,
    )
    metrics['culprit'] = jnp.where(
        turned.is_finite, metrics['culprit'], turn.first
    )
    return _after_turn(state, metrics, turned, before['turns'], is_due)

  return Objective(init, step)


def _after_turn(state, metrics, turned, turns, is_due):
  """Merges the results of a turn into a step's state and metrics."""
  turns += (is_due & turned.is_finite).astype(jnp.int32)
  # Count a non-finite step once, whether its update or its turn failed.
  nonfinite = jnp.where(turned.is_finite, metrics['nonfinite'], 1)
  state = state._replace(
      params=turned.params,
      opt_state={
          'generator': state.opt_state,
          'selector': turned.opt_state,
          'turns': turns,
          'last': turned.metrics,
      },
      nonfinite=state.nonfinite + nonfinite - metrics['nonfinite'],
  )
  own = dict(turned.metrics, turns=turns, nonfinite=nonfinite)
  return state, metrics | own


OBJECTIVES = {'likelihood': likelihood, 'simcas': simcas}


def sampling_seeds(batch, key, model):
  """Returns the selector's sampling seeds of a step.

  A seed (uint32 [B]) depends on the document's tokens and the step, not on the
  document's position in the batch.
  """
  inputs = batch['encoder_input_tokens']
  inputs = inputs.reshape(inputs.shape[0], -1, inputs.shape[-1])
  of_document = selector_lib.document_seeds(
      inputs, inputs != model.config.pad_id
  )
  return of_document ^ jax.random.bits(key, (), jnp.uint32)


def make_optimizer(config, shapes):
  """Makes the optimiser of a run, including adapters and frozen parameters."""
  return optim.make_optimizer(
      lora.optim_config(config),
      config.train.steps,
      with_adapters(config, shapes),
  )


def with_adapters(config, shapes):
  """Returns the shapes of the parameters, including the adapters'."""
  return jax.eval_shape(
      lambda params: lora.add(params, config.train.lora, jax.random.key(0)),
      shapes,
  )


def check(config):
  """Raises an InputError unless the objective can train the model."""
  objective, select = config.train.objective, config.model.get('select')
  check_choice('train.objective', objective, OBJECTIVES)
  if objective == 'likelihood' and select == 'ppo':
    raise InputError(
        "config.model.select='ppo': the likelihood trains no selector, whose "
        "choices have no gradient: expected config.train.objective='simcas', or"
        " config.model.select='none' or 'first_k'"
    )
  if objective == 'simcas' and select != 'ppo':
    got = f'config.model.name={config.model.name!r} has no selector'
    if select is not None:
      got = f'config.model.select={select!r} does not use the selector'
    raise InputError(
        f"config.train.objective='simcas': {got}: expected "
        "config.model.name='simcas' with config.model.select='ppo', or "
        "config.train.objective='likelihood'"
    )
  check_choice('selector.skip', config.selector.skip, ppo.SKIP)
