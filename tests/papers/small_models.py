"""Directories of small BART-like byte models with random weights."""

import json

from locost_jax import models
from locost_jax.config import schema
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import export
from locost_jax.models import parameters
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests.models import small
from tests.models.test_bart import SMALL


def write(directory, name):
  """Writes a 'simcas' or 'pagesum' as a Hugging Face directory."""
  directory.mkdir(parents=True)
  vocabulary = vocabulary_lib.load_vocabulary(bart_files.write(directory))
  config = dict(SMALL, name=name, vocab_size=vocabulary.size)
  model = models.build(config)
  params = parameters.flatten(small.drawn_params(model, 0.3))
  config = dict(schema.make_model(name), **config)
  export.Exported(config, params, 'float32').write(directory, params)
  written = configs.to_released(config)
  (directory / 'config.json').write_text(json.dumps(written))
