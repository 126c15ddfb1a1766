"""Config, flags and table of `learned_confidence` and `learned_selection`."""

import json
from pathlib import Path

from absl import flags
import jax
import numpy as np

from configs import default
from locost_jax import files
from locost_jax.models import parameters
from locost_jax.training import objectives
from tests import batches


def make_config(model, **keys):
  """Returns a config with a small model like BART; keys: of config.model."""
  config = default.get_config()
  config.model = model
  config.model.update(
      d_model=64,
      num_heads=4,
      num_layers=2,
      num_decoder_layers=2,
      dropout_rate=0.0,
      scale_embedding=True,
      **keys,
  )
  config.optim.update(name='adamw', clip=0.0, label_smoothing=0.1)
  return config


def make_phase(config, model):
  """Returns the training.objectives.Objective of a config, its step jitted."""
  objective = objectives.make(config, model, parameters.abstract_params(model))
  # It is taken hundreds of times, so tests optimise it, like users.
  options = {'xla_backend_optimization_level': 1}
  step = jax.jit(objective.step, donate_argnums=0, compiler_options=options)
  return objective._replace(step=step)


def make_batch(inputs, targets, start):
  """Returns a batch as in `step.train_step`; every target counts."""
  return batches.as_batch(inputs, targets, np.ones(targets.shape), start)


def define_flags(values, output, **numbers):
  """Defines the flags in `values`; numbers: {flag: (default, help)}."""
  for name, (usual, words) in numbers.items():
    flags.DEFINE_integer(name, usual, words, lower_bound=1, flag_values=values)
  flags.DEFINE_string(
      'output', output, 'DIR for curves.json', flag_values=values
  )


def report(output, curves, is_learned, kind, **formats):
  """Prints a line per run and writes curves.json.

  Args:
    output: DIR.
    curves: {(name, seed): rows}; `kind` says what the name is.
    is_learned: function row -> bool.
    **formats: {key of the last row: its format}.
  """
  header = [kind, 'seed', 'learned at', *formats]
  lines = [''.join(f'{word:>11}' for word in header)]
  for (name, seed), rows in curves.items():
    learned = [row['step'] for row in rows if is_learned(row)]
    cells = [name, seed, *(learned[:1] or '-')]
    for key, form in formats.items():
      cells.append(format(rows[-1][key], form) if key in rows[-1] else '-')
    lines.append(''.join(f'{cell:>11}' for cell in cells))
  print('\n'.join(lines))
  runs = [
      {kind: name, 'seed': seed, 'rows': rows}
      for (name, seed), rows in curves.items()
  ]
  path = Path(output) / 'curves.json'
  files.write(path, json.dumps(runs, indent=1) + '\n')
