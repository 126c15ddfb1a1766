"""Measures train steps, and the forward pass."""

import functools

import jax

from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import one_layer
from locost_jax.benchmarks import test_cases
from locost_jax.benchmarks import timing

# Compared values of train.remat.
POLICIES = ('none', 'pieces', 'full')


def prepare(spec, report):
  """Compiles the default train step of `main` (train.remat='auto').

  Returns:
    (known, run), see `processes.serve`.
  """
  report('compiling')
  _, state, batch, compile_step = test_cases.make_train_step(spec)
  step, states = compile_step('auto'), [state]
  del state
  run = functools.partial(_run_step, step, states, batch)
  known = dict(
      jax_programs.describe_device(), temp_bytes=jax_programs.temp_bytes(step)
  )
  return known, lambda: dict(
      seconds=timing.timed(run), **jax_programs.describe_device()
  )


def measure_training(spec, report):
  """Measures the forward pass, train steps, and one layer's backward pass.

  There is a step for each of POLICIES. A step that does not fit into memory is
  compiled but not timed.
  """
  from locost_jax.training import step as step_lib  # seconds to import

  model, state, batch, compile_step = test_cases.make_train_step(spec)
  forward = jax_programs.compile_program(
      functools.partial(step_lib.eval_step, model=model), state.params, batch
  )
  states, temp_bytes = [state], {}
  del state
  calls = {
      'forward': lambda: jax.block_until_ready(forward(states[0].params, batch))
  }
  for remat in POLICIES:
    report(f'compiling, remat {remat}')
    step = compile_step(remat)
    temp_bytes[remat] = jax_programs.temp_bytes(step)
    if jax_programs.fits(temp_bytes[remat], spec):
      calls[f'step {remat}'] = functools.partial(_run_step, step, states, batch)
  result = jax_programs.time_programs(
      {
          name: functools.partial(timing.timed, call)
          for name, call in calls.items()
      },
      spec,
      report,
  )
  states.clear()
  B, L = spec['batch_size'], spec['length']
  unit = B * L * model.config.d_model * 4
  steps = [result['seconds'][name] for name in calls if name != 'forward']
  of_layer = one_layer.measure_backward(spec, model, report)
  for key in ('times', 'seconds'):
    result[key].update(of_layer.pop(key))
  return dict(
      result,
      temp_bytes=temp_bytes,
      target_tokens=spec['tokens'],
      temp_LD4={name: size / unit for name, size in temp_bytes.items()},
      tokens_per_second=steps and B * (L + spec['tokens']) / min(steps) or None,
      **of_layer,
  )


def _run_step(step, states, batch):
  """Runs a step and replaces the state in the list `states`."""
  states[0] = jax.block_until_ready(step(states[0], batch))[0]
