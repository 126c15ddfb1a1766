"""Loads the parameters that a run starts from: train.init_from.

`warm_start` chooses the parameters; this module reads them and puts them on the
mesh.
"""

import os

import jax

from locost_jax import models
from locost_jax import untrusted
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import weights
from locost_jax.models import parameters
from locost_jax.training import warm_start
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib


def load(config, shapes):
  """Loads the parameters to copy from train.init_from.

  Returns:
    ({path: numpy array}, a line that reports what is copied).

  Raises:
    InputError: there is no model, or it does not fit (`warm_start.choose`).
  """
  source = read(config.train.init_from)
  target = parameters.flatten(shapes)
  chosen = warm_start.choose(
      source, target, config.model.name, config.train.init_map
  )
  return (
      warm_start.take(source, target, chosen),
      warm_start.describe(source, target, chosen),
  )


@checkpoint.choose_again
def read(directory):
  """Reads the parameters of a run, checkpoint or Hugging Face model.

  A checkpoint without its run's config is accepted.

  Args:
    directory: a WORKDIR, a checkpoint, a Hugging Face directory or a name on
      its Hub: hf://org/name[@revision], or builtin:NAME.

  Returns:
    A warm_start.Source.
  """
  where, directory = str(directory), hub.find_directory(directory)
  run = find.find_run(directory)
  if run is not None:
    _, step_directory, settings = run
    params = find.load_run_params(step_directory, settings)
    return warm_start.Source(
        parameters.flatten(params), settings['model']['name'], where
    )
  if not os.path.exists(os.path.join(directory, phases_lib.CONFIG_FILE)):
    params = checkpoint.load_params(directory)
    return warm_start.Source(parameters.flatten(params), '', where)
  config = configs.model_config(directory)
  with untrusted.named(os.path.join(directory, 'config.json')):
    model = models.build(config)
  shapes = parameters.abstract_params(model)
  params = weights.load_params(directory, config, parameters.flatten(shapes))
  return warm_start.Source(params, config['name'], where)


def put(params, given):
  """Replaces parameters by those of another model.

  Args:
    params: nested dict of arrays on the mesh.
    given: {path: array} from `load`; emptied, so that memory holds no third
      copy. A smaller array fills the first rows and columns.

  Returns:
    A nested dict like `params`.
  """

  def put_one(path, own):
    new = given.pop(path, own)
    if new.shape == own.shape:
      return jax.device_put(new, own.sharding)
    write = jax.jit(jax.lax.dynamic_update_slice, out_shardings=own.sharding)
    return write(own, new, (0,) * own.ndim)

  return parameters.map_with_path(put_one, params)
