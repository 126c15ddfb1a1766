"""Trains a model: from a config and batches to the last checkpoint.

`step.py` defines one step; `loop.py` runs the steps, evaluates and saves.
"""

import contextlib
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax

from locost_jax.config import schema
from locost_jax.devices import compiling
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.hosts import preemption
from locost_jax.hosts import watchdog
from locost_jax.models import lora
from locost_jax.telemetry import profiling
from locost_jax.telemetry import telemetry as telemetry_lib
from locost_jax.training import init_from
from locost_jax.training import loop
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import step as step_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import checkpointer as checkpointer_lib


def train(
    config,
    workdir,
    model,
    mesh,
    train_batches,
    evaluate,
    options=telemetry_lib.Options(),
    lower_is_better=('loss',),
):
  """Runs or continues a training run to config.train.steps.

  Args:
    workdir: where checkpoints, metrics.jsonl and TensorBoard events go.
    train_batches: start_step -> endless iterator of numpy batches, this
      host's rows of the steps start_step, start_step + 1, ... (from 0).
    evaluate: (params, step) -> dict of name -> number. Called on every host,
      in the run's mesh, every train.eval_every steps and after the last; it
      must not keep `params`, because the next step reuses their memory.

  Returns:
    dict(step, final, best_step, best): the last step and its metrics, the best
    checkpoint's step and its metrics (None and {} without one).

  Raises:
    InputError: an invalid value, a checkpoint that does not fit, more than
      train.max_nonfinite_steps non-finite steps, or no room for the last state.
    errors.Stopped: after SIGTERM or SIGINT; the state is saved.
  """
  check(config)
  objectives.check(config)
  check_batch(config.train, mesh)
  workdir = Path(workdir)
  with (
      preemption.Signals() as signals,
      watchdog.Watchdog(config.train.timeout) as watch,
      jax.set_mesh(mesh),
  ):
    # Shapes first, so that errors come before any memory is allocated.
    programs = make_programs(config, model, mesh)
    given, report = read_warm_start(config, programs, workdir)
    with contextlib.closing(
        checkpointer_lib.Checkpointer(
            workdir / 'checkpoints', config.checkpoint, lower_is_better
        )
    ) as checkpointer:
      position = first_position(config, programs, checkpointer, given, watch)
      with (
          open_telemetry(
              config, workdir, mesh, position, options, report
          ) as telemetry,
          profiling.trace_steps(
              programs.step, workdir / 'profile', options.profile, telemetry
          ) as step,
      ):
        place = functools.partial(
            sharding.global_batch, mesh=mesh, pad_id=model.config.pad_id
        )
        merged = lambda params, step: evaluate(programs.merge(params), step)
        loop.Loop(
            config.train,
            mesh,
            loop.Functions(train_batches, place, step, merged),
            loop.Services(checkpointer, telemetry, signals, watch),
            position,
        ).run()
      return _summary(checkpointer)


@contextlib.contextmanager
def open_telemetry(config, workdir, mesh, position, options, report):
  """Opens the run's metrics and events at its current position.

  Args:
    position: loop.Position.
    report: a line to log first, or None.
  """
  with contextlib.closing(
      telemetry_lib.Telemetry(
          workdir,
          config.train.steps,
          position.done,
          is_evaluated=not position.is_due,
          options=options,
          devices=mesh.size,
          logged=position.done - len(position.window),
      )
  ) as telemetry:
    if report:
      telemetry.note(report)
    yield telemetry


def read_warm_start(config, programs, workdir):
  """Reads the initial parameters of a new run from train.init_from.

  Returns:
    ({path: numpy array}, a line that reports what was loaded); ({}, None) if
    the run has a checkpoint or train.init_from is empty.
  """
  if not config.train.init_from or (
      checkpoint.latest_step(workdir / 'checkpoints') is not None
  ):
    return {}, None
  key = jax.random.key(config.train.seed)
  shapes = lora.without(jax.eval_shape(programs.init, key).params)
  return init_from.load(config, shapes)


def first_position(config, programs, checkpointer, given, watch):
  """Restores the run's latest state, or initialises a new one.

  Args:
    given: {path: array} from `read_warm_start`; emptied.
    watch: watchdog.Watchdog.

  Returns:
    A loop.Position.
  """
  rng = jax.random.key(config.train.seed)
  start = checkpointer.set_damaged_aside()
  if start is None:
    with compiling.describe(compiling.INITIAL):
      state = jax.jit(programs.init, out_shardings=programs.shardings)(rng)
    params = init_from.put(state.params, given)
    return loop.Position.after(state._replace(params=params), 0, {})
  abstract = sharding.abstract_arrays(
      jax.eval_shape(programs.init, rng), programs.shardings
  )
  with watch.waiting_for(f'the checkpoint of step {start}'):
    state = checkpointer.restore(start, abstract)
  return loop.Position.after(state, start, checkpointer.loop(start))


def _summary(checkpointer):
  """Returns the result of `train`."""
  last, best = checkpointer.latest_step(), checkpointer.best_step()
  return {
      'step': last,
      'final': checkpointer.metrics(last),
      'best_step': best,
      'best': {} if best is None else checkpointer.metrics(best),
  }


class Programs(NamedTuple):
  """The compiled functions of a run, except evaluation."""

  init: Any  # key -> TrainState; not compiled
  merge: Any  # TrainState.params -> the model's parameters; not compiled
  shardings: Any  # a TrainState of shardings
  step: Any  # (state, batch) -> (state, metrics); donates the state


def make_programs(config, model, mesh):
  """Returns the Programs of a run; nothing is computed or compiled yet.

  Args:
    mesh: from `sharding.make_mesh`; must be the context's mesh.
  """
  key = jax.eval_shape(lambda: jax.random.key(config.train.seed))
  shapes = jax.eval_shape(
      functools.partial(step_lib.init_params, model=model), key
  )
  objective = objectives.make(config, model, shapes)
  shardings = sharding.state_shardings(
      mesh, jax.eval_shape(objective.init, key)
  )
  return Programs(
      objective.init,
      functools.partial(lora.merge, alpha=config.train.lora.alpha),
      shardings,
      jax.jit(
          objective.step,
          donate_argnums=0,
          out_shardings=(shardings, sharding.replicated(mesh)),
      ),
  )


def check(config):
  """Raises an InputError for invalid values; needs no device."""
  schema.check_config(config)
  optim.check_name(config.optim)
  for key, value in (
      ('train.eval_every', config.train.eval_every),
      ('checkpoint.keep_best', config.checkpoint.keep_best),
  ):
    if config.train.patience and not value:
      raise InputError(
          f'train.patience={config.train.patience} counts evaluations since '
          f'the best one: expected {key} above 0'
      )


def check_batch(settings, mesh):
  """Raises an InputError unless mesh and train.accumulate divide a step's batch.

  Args:
    settings: config.train.
  """
  sharding.check_batch_size(settings.batch_size, mesh, 'train.batch_size')
  rows = settings.batch_size // sharding.batch_parts(mesh)
  if rows % settings.accumulate:
    raise InputError(
        f'train.accumulate={settings.accumulate}: expected a divisor of {rows},'
        ' the documents of a step on each device (train.batch_size='
        f'{settings.batch_size})'
    )
