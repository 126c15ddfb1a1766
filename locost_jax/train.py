"""Training: one story from a config and batches to the last checkpoint.

A step is a pure function of the state and a batch. The batch of step s and
the randomness of step s are functions of (seed, s) alone, and the state is
saved whole, so a run that was killed and started again gives the same losses
and the same parameters, bit for bit, as one that was not.
"""

import collections
import contextlib
import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from locost_jax import checkpoint
from locost_jax import losses
from locost_jax import optim
from locost_jax import sharding
from locost_jax import telemetry as telemetry_lib
from locost_jax.errors import InputError


class TrainState(NamedTuple):
  """All that a run needs to continue. `params` is the tree of parameters."""

  step: Any  # int32, steps done; also the position in the data
  params: Any
  opt_state: Any
  rng: Any  # uint32 key data; step s draws from fold_in(rng, s)
  nonfinite: Any  # int32, steps skipped so far


def init_params(rng, model, rows=1):
  """Returns new parameters.

  Args:
    rng: a typed key.
    model: of `models.build`.
    rows: batch size of the trace; no parameter depends on it.
  """
  tokens = jnp.ones((rows, 8), jnp.int32)
  return model.init(rng, tokens, tokens)['params']


def init_state(rng, model, optimizer, rows=1):
  """Returns the state before the first step.

  Args:
    rng: a typed key.
    model: of `models.build`.
    optimizer: of `optim.make_optimizer`.
    rows: as in `init_params`.
  """
  params = init_params(rng, model, rows)
  return TrainState(
      step=jnp.int32(0),
      params=params,
      opt_state=optimizer.init(params),
      rng=jax.random.key_data(jax.random.fold_in(rng, 1)),
      nonfinite=jnp.int32(0),
  )


def train_step(state, batch, *, model, optimizer, schedule, config):
  """One update of the parameters. Pure; `train` compiles it.

  A loss or gradient norm that is not finite changes neither the parameters
  nor the optimiser: the step is counted in `nonfinite` and passes.

  Args:
    state: TrainState.
    batch: encoder_input_tokens int [B, L], decoder_input_tokens and
      decoder_target_tokens int [B, T], decoder_loss_weights float [B, T].
    model: of `models.build`.
    optimizer: of `optim.make_optimizer`.
    schedule: of `optim.make_schedule`, to tell the rate.
    config: config.optim, for label_smoothing and z_loss.

  Returns:
    The next TrainState, and a dict of scalars. Each of them is logged as
    train/NAME, but for `culprit`: which gradient, counted in the order of
    jax.tree.leaves, is the first that is not finite (-1: none).
  """
  rng = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
  inputs = batch['encoder_input_tokens']
  targets = batch['decoder_target_tokens']
  weights = batch['decoder_loss_weights']

  def mean_loss(params):
    logits = model.apply(
        {'params': params},
        inputs,
        batch['decoder_input_tokens'],
        input_mask=inputs != 0,
        deterministic=False,
        rngs={'dropout': rng},
    )
    loss, weight = losses.cross_entropy(
        logits, targets, weights, config.label_smoothing, config.z_loss
    )
    weight_or_1 = jnp.maximum(weight, 1.0)
    hits = losses.hits(logits, targets, weights)
    return loss / weight_or_1, (hits / weight_or_1, weight)

  (loss, (accuracy, weight)), gradients = jax.value_and_grad(
      mean_loss, has_aux=True
  )(state.params)
  squares = jnp.stack([jnp.sum(g**2) for g in jax.tree.leaves(gradients)])
  grad_norm = jnp.sqrt(jnp.sum(squares))
  is_finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)

  updates, opt_state = optimizer.update(
      gradients, state.opt_state, state.params, step=state.step
  )
  params = jax.tree.map(jnp.add, state.params, updates)
  params, opt_state = jax.tree.map(
      functools.partial(jnp.where, is_finite),
      (params, opt_state),
      (state.params, state.opt_state),
  )
  nonfinite = 1 - is_finite.astype(jnp.int32)
  state = TrainState(
      step=state.step + 1,
      params=params,
      opt_state=opt_state,
      rng=state.rng,
      nonfinite=state.nonfinite + nonfinite,
  )
  is_bad = ~jnp.isfinite(squares)
  return state, {
      'loss': loss,
      'accuracy': accuracy,
      'grad_norm': grad_norm,
      'learning_rate': schedule(state.step - 1),
      'weight': weight,
      'tokens': jnp.sum(weights > 0) + jnp.sum(inputs != 0),
      'nonfinite': nonfinite,
      'culprit': jnp.where(jnp.any(is_bad), jnp.argmax(is_bad), -1),
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
  inputs = batch['encoder_input_tokens']
  targets = batch['decoder_target_tokens']
  logits = model.apply(
      {'params': params},
      inputs,
      batch['decoder_input_tokens'],
      input_mask=inputs != 0,
  )
  weights = batch['decoder_loss_weights']
  loss, weight = losses.cross_entropy(logits, targets, weights)
  hits = losses.hits(logits, targets, weights)
  return {'loss': loss, 'accuracy': hits, 'weight': weight}


def train(config, workdir, model, train_batches, evaluate):
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

  Returns:
    dict(step, final, best_step, best): the last step, what was measured
    there, and the same for the best checkpoint (None and {} without one).

  Raises:
    InputError: a value that cannot be, a checkpoint that does not fit, or
      more than train.max_nonfinite_steps steps that were not finite.
  """
  check(config)
  settings, workdir = config.train, Path(workdir)
  mesh = sharding.make_mesh(config.mesh)
  sharding.check_batch_size(settings.batch_size, mesh, 'train.batch_size')
  with jax.set_mesh(mesh):
    # Shapes first: everything that can be wrong is, before memory is taken.
    rows = mesh.shape[sharding.DATA] * mesh.shape[sharding.FSDP]
    rng = jax.random.key(settings.seed)
    shapes = jax.eval_shape(lambda: init_params(rng, model, rows))
    schedule = optim.make_schedule(config.optim, settings.steps)
    optimizer = optim.make_optimizer(config.optim, settings.steps, shapes)
    init = functools.partial(
        init_state, model=model, optimizer=optimizer, rows=rows
    )
    shardings = sharding.state_shardings(mesh, jax.eval_shape(init, rng))

    given, directory = None, workdir / 'checkpoints'
    if settings.init_from and checkpoint.latest_step(directory) is None:
      given = load_init(settings.init_from, shapes)

    # The state: this run's latest, or another's parameters, or new ones.
    with contextlib.closing(
        checkpoint.Checkpointer(directory, config.checkpoint)
    ) as checkpointer:
      start = checkpointer.latest_step() or 0
      if checkpointer.latest_step() is not None:
        abstract = sharding.abstract(jax.eval_shape(init, rng), shardings)
        state = checkpointer.restore(start, abstract)
      else:
        state = jax.jit(init, out_shardings=shardings)(rng)
        if given is not None:
          params = jax.device_put(given, shardings.params)
          state = state._replace(params=params)

      step_function = jax.jit(
          functools.partial(
              train_step,
              model=model,
              optimizer=optimizer,
              schedule=schedule,
              config=config.optim,
          ),
          donate_argnums=0,
          out_shardings=(shardings, sharding.replicated(mesh)),
      )
      with contextlib.closing(
          telemetry_lib.Telemetry(workdir, settings.steps, start)
      ) as telemetry:
        _loop(
            settings, state, start, step_function, mesh, train_batches,
            evaluate, checkpointer, telemetry,
        )
      last, best = checkpointer.latest_step(), checkpointer.best_step()
      return {
          'step': last,
          'final': checkpointer.metrics(last),
          'best_step': best,
          'best': {} if best is None else checkpointer.metrics(best),
      }


def _loop(
    settings, state, start, step_function, mesh, train_batches, evaluate,
    checkpointer, telemetry,
):
  """The steps from `start` to settings.steps, and what happens between."""
  is_last = lambda step: step == settings.steps
  is_eval = lambda step: is_last(step) or _is_due(step, settings.eval_every)
  is_save = lambda step: (
      is_eval(step) or _is_due(step, settings.checkpoint_every)
  )
  # A line of metrics is the mean since the line before. There is one before
  # every checkpoint too, so that a run that continues means the same steps.
  is_line = lambda step: is_save(step) or _is_due(step, settings.log_every)

  batches = train_batches(start) if start < settings.steps else None
  skipped = int(state.nonfinite)
  running, window, seen = collections.deque(), [], set()
  for step in range(start + 1, settings.steps + 1):
    with telemetry.waiting(running[-1][1] if running else None):
      batch = next(batches)
    shapes = (
        batch['encoder_input_tokens'].shape,
        batch['decoder_target_tokens'].shape,
    )
    batch = sharding.global_batch(batch, mesh)
    if shapes in seen:
      state, metrics = step_function(state, batch)
    else:
      seen.add(shapes)
      (rows, *read), (_, written) = shapes
      with telemetry.aside(
          f'compiling for {rows} x {math.prod(read)} -> {written} tokens'
      ):
        state, metrics = step_function(state, batch)
    running.append((step, metrics))

    # The numbers of a step are fetched while the next one runs, so that the
    # devices never wait for the host; a checkpoint wants them all.
    while len(running) > (0 if is_save(step) else 1):
      done, metrics = running.popleft()
      metrics = jax.device_get(metrics)
      culprit = int(metrics.pop('culprit'))
      skipped += int(metrics['nonfinite'])
      if skipped > settings.max_nonfinite_steps:
        raise _not_finite(
            done, metrics, culprit, state.params, settings, checkpointer
        )
      window.append(metrics)
      telemetry.progress(done, metrics['loss'], metrics['tokens'])
      if is_line(done):
        row = telemetry_lib.mean_of_finite(window)
        row['tokens_per_second'] = telemetry.tokens_per_second()
        row['data_wait'] = telemetry.data_wait()
        telemetry.log(done, {f'train/{key}': row[key] for key in row})
        window.clear()

    measured = None
    if is_eval(step):
      with telemetry.aside('evaluating'):
        measured = dict(evaluate(state.params, step))
      telemetry.log(step, measured)
      telemetry.note(_summary(step, measured))
    if is_save(step):
      with telemetry.aside('saving'):
        telemetry.sync()
        checkpointer.save(step, state, measured)


def check(config):
  """Raises an InputError for values no run can have; needs no device."""
  settings = config.train
  for key in ('steps', 'batch_size', 'log_every'):
    if settings[key] < 1:
      raise InputError(f'train.{key}={settings[key]}: expected 1 or more')
  for key in ('eval_every', 'checkpoint_every', 'max_nonfinite_steps'):
    if settings[key] < 0:
      raise InputError(f'train.{key}={settings[key]}: expected 0 or more')


def load_init(directory, shapes):
  """Returns the parameters of another run's best checkpoint, as numpy.

  Args:
    directory: what `checkpoint.find` takes.
    shapes: the parameters this run needs, as shapes.

  Raises:
    InputError: no checkpoint there, or its parameters differ from `shapes`.
  """
  params = checkpoint.load_params(directory)
  checkpoint.compare(params, shapes, f'train.init_from={directory}')
  return params


def _not_finite(step, metrics, culprit, params, settings, checkpointer):
  """Returns the error that ends a run, naming the first path not finite."""
  paths = [
      jax.tree_util.keystr(path, simple=True, separator='/')
      for path, _ in jax.tree_util.tree_leaves_with_path(params)
  ]
  sound = jax.jit(
      lambda params: [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]
  )(params)
  broken = [path for path, is_sound in zip(paths, sound) if not is_sound]
  if broken:
    where = f'the parameter {broken[0]} is not finite'
  elif culprit >= 0:
    where = f'first in the gradient of {paths[culprit]}'
  else:
    where = 'the square of the gradient overflows float32'
  last = checkpointer.latest_step()
  kept = 'no checkpoint was written yet'
  if last is not None:
    kept = f'the checkpoint of step {last} is kept'
  return InputError(
      f"step {step}: loss {metrics['loss']:g}, gradient norm "
      f"{metrics['grad_norm']:g}: {where} "
      f'(train.max_nonfinite_steps={settings.max_nonfinite_steps}); {kept}'
  )


def _is_due(step, every):
  return every > 0 and step % every == 0


def _summary(step, measured):
  """Returns 'step 9: eval/x: loss 2.1  rouge1 30.5', each prefix once."""
  parts, before = [], ''
  for name, value in measured.items():
    prefix, _, last = name.rpartition('/')
    if prefix != before:
      parts.append(f'{prefix}:')
    parts.append(f'{last} {value:.4g}')
    before = prefix
  return f'step {step}: ' + ('  '.join(parts) or 'nothing was measured')
