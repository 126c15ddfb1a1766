"""Makes a run's best checkpoint a model that comes with the package.

  python -m tests.make_builtin RUN NAME

MODEL_CARD.md is written by hand.
"""

import json
from pathlib import Path
import shutil
import sys

import ml_dtypes
from safetensors import numpy as safetensors

from locost_jax.hugging_face import find_builtin
from locost_jax.models import parameters
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib


def make(run, directory):
  """Writes config, vocabulary and parameters of a trained run to a directory."""
  home, step_directory, config = find.find_run(run)
  params = parameters.flatten(find.load_run_params(step_directory, config))
  directory = Path(directory)
  directory.mkdir(exist_ok=True)
  safetensors.save_file(
      {path: x.astype(ml_dtypes.bfloat16) for path, x in params.items()},
      directory / find_builtin.PARAMETERS,
  )
  config['train']['init_from'] = ''  # a path of the machine that trained it
  text = json.dumps(config, indent=2, sort_keys=True)
  (directory / 'config.json').write_text(text + '\n')
  phases_lib.save_queries(directory, phases_lib.load_queries(home))
  shutil.copytree(
      Path(home) / 'vocabulary', directory / 'vocabulary', dirs_exist_ok=True
  )


if __name__ == '__main__':
  make(sys.argv[1], Path(find_builtin.__file__).parent / sys.argv[2])
