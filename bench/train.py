"""Train steps for each train.remat, and the forward pass."""

import functools

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from bench import programs
from locost_jax.training import objectives
from locost_jax.training import step as step_lib


def prepare(spec):
  """Returns the calls, see `programs`.

  Part 'steps': the forward pass and a step for each train.remat; a step that
  does not fit into memory is compiled but not timed. Any other part: the step
  of `main` (train.remat='auto').
  """
  model, states, batch, compile_step = make_step(spec)
  B, T = spec['batch_size'], spec['tokens']
  facts = dict(documents=B, tokens=B * (spec['length'] + T), target_tokens=T)
  policies, calls = {spec['part']: 'auto'}, {}
  if spec['part'] == 'steps':
    forward = programs.compile_program(
        functools.partial(step_lib.token_sums, model=model),
        states[0].params,
        batch,
    )
    calls = {
        'forward': (
            lambda: jax.block_until_ready(forward(states[0].params, batch)),
            dict(facts, temp_bytes=programs.temp_bytes(forward)),
        )
    }
    policies = {f'step, {p}': p for p in ('none', 'pieces', 'full')}
  for name, policy in policies.items():
    step = compile_step(policy)
    size = programs.temp_bytes(step)
    run = functools.partial(_run, step, states, batch)
    call = run if programs.fits(size, spec) else None
    calls[name] = call, dict(facts, temp_bytes=size)
  return calls


def make_step(spec):
  """Makes a train step of a config, with random weights and tokens.

  Returns:
    (model, [state], batch, compile_step): compile_step(remat) returns the
    compiled step, which donates (reuses) the memory of the state.
  """
  config = ConfigDict(spec['config'])
  config.train.update(accumulate=1, lora={'rank': 0}, steps=1000)
  model, params = programs.make(spec)
  inputs, _ = programs.make_inputs(spec)
  targets, _ = programs.make_inputs(spec, spec['tokens'])
  batch = dict(
      encoder_input_tokens=inputs,
      decoder_input_tokens=targets,
      decoder_target_tokens=targets,
      decoder_loss_weights=jnp.ones(targets.shape, jnp.float32),
  )
  shapes = jax.eval_shape(lambda: params)
  params = None  # the state has others
  objective = lambda model: objectives.likelihood(config, model, shapes)
  state = jax.jit(objective(model).init)(jax.random.key(0))
  like_it = jax.eval_shape(lambda: state)

  def compile_step(remat):
    step = objective(model.clone(remat=remat)).step
    return programs.compile_program(step, like_it, batch, donate_argnums=0)

  return model, [state], batch, compile_step


def _run(step, states, batch):
  """Runs a step and replaces the state in the list `states`."""
  states[0] = jax.block_until_ready(step(states[0], batch))[0]
