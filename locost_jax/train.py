"""Training: one story from a config and batches to the last checkpoint.

A step is a pure function of the state and a batch. The batch of step s and
the randomness of step s are functions of (seed, s) alone, and the state is
saved whole, so a run that was killed and started again gives the same losses
and the same parameters, bit for bit, as one that was not. `loop.py` takes the
steps.
"""

import contextlib
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import checkpoint
from locost_jax import loop
from locost_jax import lora
from locost_jax import losses
from locost_jax import models
from locost_jax import optim
from locost_jax import origin
from locost_jax import preemption
from locost_jax import profiling
from locost_jax import sharding
from locost_jax import telemetry as telemetry_lib
from locost_jax import warm_start
from locost_jax import watchdog
from locost_jax.errors import InputError
from locost_jax.models import flops


class TrainState(NamedTuple):
  """All that a run needs to continue."""

  step: Any  # int32, steps done; also the position in the data
  params: Any  # the tree of parameters, with adapters where there are any
  opt_state: Any
  rng: Any  # uint32 key data; step s draws from fold_in(rng, s)
  nonfinite: Any  # int32, steps skipped so far


def init_params(rng, model):
  """Returns new parameters.

  Args:
    rng: a typed key.
    model: of `models.build`.
  """
  # No parameter depends on the shape, but the mesh in context must divide it.
  tokens = jnp.ones(sharding.smallest_batch(), jnp.int32)
  return model.init(rng, tokens, tokens)['params']


def init_state(rng, model, optimizer, groups=(), adapters=None):
  """Returns the state before the first step.

  Args:
    rng: a typed key.
    model: of `models.build`.
    optimizer: of `optim.make_optimizer`.
    groups: as of `optim.split`.
    adapters: config.train.lora; None: there are none.
  """
  params = init_params(rng, model)
  if adapters is not None:
    params = lora.add(params, adapters, jax.random.fold_in(rng, 2))
  trained, _ = optim.split(params, groups)
  return TrainState(
      step=jnp.int32(0),
      params=params,
      opt_state=optimizer.init(trained),
      rng=jax.random.key_data(jax.random.fold_in(rng, 1)),
      nonfinite=jnp.int32(0),
  )


def train_step(
    state, batch, *, model, optimizer, schedule, config, accumulate=1,
    merge=lambda params: params,
):
  """One update of the parameters. Pure; `train` compiles it.

  Gradients are of what `optim.split` says is trained, and so are their norms;
  for frozen parameters nothing is computed or kept.

  Loss and gradient are means over the target tokens of the whole batch, also
  where it is taken in pieces: only what is computed on the way exists for one
  piece at a time. With dropout, piece i draws from fold_in(step's key, i).

  A loss or gradient norm that is not finite changes neither the parameters
  nor the optimiser: the step is counted in `nonfinite` and passes.

  Args:
    state: TrainState.
    batch: encoder_input_tokens int [B, L], decoder_input_tokens and
      decoder_target_tokens int [B, T], decoder_loss_weights float [B, T].
    model: of `models.build`.
    optimizer: of `optim.make_optimizer`.
    schedule: of `optim.make_schedule`, to tell the rate.
    config: config.optim, for groups, label_smoothing and z_loss.
    accumulate: pieces of the batch, which divide B; row b is in piece
      b % accumulate, so that each device keeps its rows.
    merge: state.params -> what the model takes: `lora.merge`.

  Returns:
    The next TrainState, and a dict of scalars. Each of them is logged as
    train/NAME, but for `culprit`: the first parameter, counted in the order
    of jax.tree.leaves, whose gradient is not finite (-1: none).
  """
  rng = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
  inputs = batch['encoder_input_tokens']
  weights = batch['decoder_loss_weights']
  weight = jnp.sum(weights)
  weight_or_1 = jnp.maximum(weight, 1.0)

  trained, frozen = optim.split(state.params, config.groups)

  def part_of_mean(trained, batch, rng):
    params = merge(optim.combine(trained, frozen))
    loss, hits, _ = _sums(
        params, batch, model, rng, config.label_smoothing, config.z_loss
    )
    return loss / weight_or_1, hits / weight_or_1

  gradient_of = jax.value_and_grad(part_of_mean, has_aux=True)
  if accumulate == 1:
    (loss, accuracy), gradients = gradient_of(trained, batch, rng)
  else:
    pieces = jax.tree.map(
        lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch
    )

    def add(total, piece):
      index, piece = piece
      part = gradient_of(trained, piece, jax.random.fold_in(rng, index))
      return jax.tree.map(jnp.add, total, part), None

    zero = jnp.zeros_like(weight)
    ((loss, accuracy), gradients), _ = jax.lax.scan(
        add,
        ((zero, zero), jax.tree.map(jnp.zeros_like, trained)),
        (jnp.arange(accumulate), pieces),
    )
  squares = jnp.stack([jnp.sum(g**2) for g in jax.tree.leaves(gradients)])
  grad_norm = jnp.sqrt(jnp.sum(squares))
  is_finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)

  updates, opt_state = optimizer.update(
      gradients, state.opt_state, trained, step=state.step
  )
  changed = jax.tree.map(jnp.add, trained, updates)
  changed, opt_state = jax.tree.map(
      functools.partial(jnp.where, is_finite),
      (changed, opt_state),
      (trained, state.opt_state),
  )
  nonfinite = 1 - is_finite.astype(jnp.int32)
  state = TrainState(
      step=state.step + 1,
      params=optim.combine(changed, frozen),
      opt_state=opt_state,
      rng=state.rng,
      nonfinite=state.nonfinite + nonfinite,
  )
  is_bad = ~jnp.isfinite(squares)
  factors = optim.group_factors(config.groups, state.params)
  places = np.flatnonzero(jax.tree.leaves(factors))  # of what is trained
  norms = optim.norms_by_group(gradients, squares)
  operations = flops.of_step(model, inputs.shape, weights.shape)
  return state, {
      'loss': loss,
      'accuracy': accuracy,
      'grad_norm': grad_norm,
      **{f'grad_norm/{name}': norms[name] for name in norms},
      'learning_rate': schedule(state.step - 1),
      'weight': weight,
      'tokens': jnp.sum(weights > 0) + jnp.sum(
          inputs != models.pad_id(model.config)),
      'samples': jnp.sum(jnp.any(weights > 0, axis=1)),
      **({} if operations is None else {'flops': jnp.float32(operations)}),
      'nonfinite': nonfinite,
      'culprit': jnp.where(
          jnp.any(is_bad), jnp.asarray(places)[jnp.argmax(is_bad)], -1),
  }


def eval_step(params, batch, *, model):
  """Sums over the target tokens of a batch. Pure; the caller compiles it.

  Args:
    params: the tree of parameters.
    batch: as in `train_step`; rows of padding have zero weights.
    model: of `models.build`.

  Returns:
    dict of float32 sums: loss (nats; plain cross entropy, whatever the
    training loss adds), accuracy (hits), weight (tokens).
  """
  loss, hits, weight = _sums(params, batch, model)
  return {'loss': loss, 'accuracy': hits, 'weight': weight}


def _sums(params, batch, model, rng=None, label_smoothing=0.0, z_loss=0.0):
  """Returns loss, hits and weight summed over the target tokens of a batch.

  Args:
    params, batch, model: as in `eval_step`.
    rng: of dropout; None: there is none.
    label_smoothing, z_loss: as of `losses.cross_entropy`.
  """
  inputs = batch['encoder_input_tokens']
  states = model.apply(
      {'params': params},
      inputs,
      batch['decoder_input_tokens'],
      input_mask=inputs != models.pad_id(model.config),
      deterministic=rng is None,
      rngs=None if rng is None else {'dropout': rng},
      method='states',
  )
  return losses.of_states(
      lambda states: model.apply({'params': params}, states, method='head'),
      states,
      batch['decoder_target_tokens'],
      batch['decoder_loss_weights'],
      label_smoothing,
      z_loss,
  )


def train(
    config, workdir, model, train_batches, evaluate,
    options=telemetry_lib.Options(),
):
  """Runs or continues a training run to config.train.steps.

  Args:
    config: the whole config.
    workdir: where checkpoints, metrics.jsonl and TensorBoard events go.
    model: of `models.build`.
    train_batches: start_step -> endless iterator of numpy batches, this
      host's rows of the steps start_step, start_step + 1, ... (from 0).
    evaluate: (params, step) -> dict of name -> number. Called on every host,
      in the run's mesh, every train.eval_every steps and after the last; it
      must not keep `params`, whose memory the next step takes.
    options: telemetry.Options.

  Returns:
    dict(step, final, best_step, best): the last step, what was measured
    there, and the same for the best checkpoint (None and {} without one).

  Raises:
    InputError: a value that cannot be, a checkpoint that does not fit, more
      than train.max_nonfinite_steps steps that were not finite, or no room for
      the last state.
    errors.Stopped: SIGTERM or SIGINT came; the state is saved.
  """
  check(config)
  settings, workdir = config.train, Path(workdir)
  mesh = sharding.make_mesh(config.mesh)
  check_batch(settings, mesh)
  with (
      preemption.Signals() as signals,
      watchdog.Watchdog(settings.timeout) as watch,
      jax.set_mesh(mesh),
  ):
    # Shapes first: everything that can be wrong is, before memory is taken.
    rng = jax.random.key(settings.seed)
    init, merge, shardings, step_function = make_programs(config, model, mesh)

    given, begun_from, directory = {}, None, workdir / 'checkpoints'
    if settings.init_from and checkpoint.latest_step(directory) is None:
      shapes = lora.without(jax.eval_shape(init, rng).params)
      given, begun_from = origin.load(config, shapes)

    # The state: this run's latest, or another's parameters, or new ones.
    with contextlib.closing(
        checkpoint.Checkpointer(directory, config.checkpoint)
    ) as checkpointer:
      start, kept = checkpointer.set_damaged_aside(), {}
      if start is not None:
        abstract = sharding.abstract(jax.eval_shape(init, rng), shardings)
        with watch.waiting_for(f'the checkpoint of step {start}'):
          state = checkpointer.restore(start, abstract)
        kept = checkpointer.loop(start)
      else:
        start = 0
        state = jax.jit(init, out_shardings=shardings)(rng)
        state = state._replace(params=origin.put(state.params, given))

      with contextlib.closing(
          telemetry_lib.Telemetry(
              workdir, settings.steps, start,
              measured=kept.get('measured', True), options=options,
              devices=mesh.size,
          )
      ) as telemetry, profiling.traced(
          step_function, workdir / 'profile', options.profile, telemetry
      ) as step_function:
        if begun_from:
          telemetry.note(begun_from)
        loop.Loop(
            settings, mesh, models.pad_id(model.config), step_function,
            train_batches, lambda params, step: evaluate(merge(params), step),
            checkpointer, telemetry, signals, watch,
        ).run(state, start, kept)
      last, best = checkpointer.latest_step(), checkpointer.best_step()
      return {
          'step': last,
          'final': checkpointer.metrics(last),
          'best_step': best,
          'best': {} if best is None else checkpointer.metrics(best),
      }


class Programs(NamedTuple):
  """What a run computes, besides evaluating."""

  init: Any  # key -> TrainState; not compiled
  merge: Any  # TrainState.params -> the model's parameters; not compiled
  shardings: Any  # TrainState of where its arrays lie
  step: Any  # (state, batch) -> (state, metrics); takes the state's memory


def make_programs(config, model, mesh):
  """Returns the Programs of a run; nothing is computed or compiled yet.

  Args:
    config: the whole config.
    model: of `models.build`.
    mesh: of `sharding.make_mesh`, which must be the context's.
  """
  settings, rules = config.train, lora.optim_config(config)
  key = jax.eval_shape(lambda: jax.random.key(settings.seed))
  shapes = jax.eval_shape(functools.partial(init_params, model=model), key)
  optimizer = make_optimizer(config, shapes)
  init = functools.partial(
      init_state, model=model, optimizer=optimizer, groups=rules.groups,
      adapters=settings.lora)
  shardings = sharding.state_shardings(mesh, jax.eval_shape(init, key))
  merge = functools.partial(lora.merge, alpha=settings.lora.alpha)
  step = functools.partial(
      train_step,
      model=model,
      optimizer=optimizer,
      schedule=optim.make_schedule(rules, settings.steps),
      config=rules,
      accumulate=settings.accumulate,
      merge=merge,
  )
  return Programs(init, merge, shardings, jax.jit(
      step,
      donate_argnums=0,
      out_shardings=(shardings, sharding.replicated(mesh)),
  ))


def make_optimizer(config, shapes):
  """Returns the optimiser of a run, adapters and frozen parameters seen to.

  Args:
    config: the whole config.
    shapes: the model's parameters as shapes.

  Raises:
    InputError: optim or train.lora cannot be, or do not fit the parameters.
  """
  adapted = jax.eval_shape(
      lambda params: lora.add(params, config.train.lora, jax.random.key(0)),
      shapes)
  return optim.make_optimizer(
      lora.optim_config(config), config.train.steps, adapted)


def check(config):
  """Raises an InputError for values no run can have; needs no device."""
  settings = config.train
  lora.check(settings.lora)
  warm_start.check(settings.init_map)
  for key in ('steps', 'batch_size', 'log_every', 'accumulate'):
    if settings[key] < 1:
      raise InputError(f'train.{key}={settings[key]}: expected 1 or more')
  for key in (
      'eval_every', 'checkpoint_every', 'max_nonfinite_steps', 'timeout'
  ):
    if settings[key] < 0:
      raise InputError(f'train.{key}={settings[key]}: expected 0 or more')


def check_batch(settings, mesh):
  """Raises an InputError unless a step's documents can be split as is asked.

  Args:
    settings: config.train.
    mesh: of `sharding.make_mesh`.
  """
  sharding.check_batch_size(settings.batch_size, mesh, 'train.batch_size')
  rows = settings.batch_size // sharding.batch_parts(mesh)
  if rows % settings.accumulate:
    raise InputError(
        f'train.accumulate={settings.accumulate}: expected a divisor of {rows},'
        ' the documents of a step on each device (train.batch_size='
        f'{settings.batch_size})'
    )
