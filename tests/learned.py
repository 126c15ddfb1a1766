"""Config, batches and steps of `learned_confidence` and `learned_selection`."""

import jax
import numpy as np

from configs import default
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
