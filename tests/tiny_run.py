"""Makes a finished run, without a corpus, for tests."""

import atexit
import functools
import itertools
from pathlib import Path
import shutil
import tempfile

import numpy as np

from configs import default
from locost_jax import models
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import phases as phases_lib
from tests import batches
from tests import small_training
from tests.models import small


def flags(keys):
  """Returns flags of `main`: --config.KEY=VALUE for each KEY=VALUE."""
  return [f'--config.{key}' for key in keys.split()]


def make_config(steps=2, model=()):
  """Returns the config of a small model with bytes as tokens."""
  config = default.get_config()
  vocabulary = byte_vocabulary.ByteVocabulary()
  config.model.update(
      dict(
          vocab_size=vocabulary.size,
          d_model=16,
          d_state=4,
          d_ff=16,
          d_kv=8,
          num_heads=2,
          num_layers=1,
          num_decoder_layers=1,
      )
      | dict(model)
  )
  config.data.vocabulary = 'byte'
  config.train.update(dict(steps=steps, batch_size=2))
  config.decode.max_length = 6
  return config


def make_batch(config, rows=2, length=16):
  """Returns a batch of random tokens."""
  generator = np.random.default_rng(0)
  tokens = lambda: generator.integers(3, 200, (rows, length), dtype=np.int32)
  targets = tokens()
  return batches.as_batch(tokens(), targets, np.ones((rows, length)))


@functools.cache
def _train(steps, model):
  """Trains once in a process; returns (directory, result of `train`)."""
  directory = Path(tempfile.mkdtemp())
  atexit.register(shutil.rmtree, directory, ignore_errors=True)
  config = make_config(steps, model)
  vocabulary_lib.save_vocabulary(
      byte_vocabulary.ByteVocabulary(), directory / 'vocabulary'
  )
  phases_lib.write_config(directory, config)

  result = small_training.train(
      config,
      directory,
      models.build(config.model),
      lambda start: itertools.repeat(make_batch(config)),
      lambda params, step: {'eval/tiny/rouge_mean': 1.0},
  )
  return directory, result


def make_untrained(directory, config):
  """Makes the WORKDIR of a model of random weights that reads bytes."""
  vocabulary_lib.save_vocabulary(
      byte_vocabulary.ByteVocabulary(), directory / 'vocabulary'
  )
  params = small.drawn_params(models.build(config.model), 0.3)
  if config.model.name == 'locost':  # its kernels reach some tokens
    ssm = params['encoder']['layers']['mixer']['ssm']
    ssm['log_dt'] -= 2
  checkpoint.save_params(directory / 'checkpoints' / '1', params)
  phases_lib.write_config(directory, config)


def make(directory, steps=2, model=()):
  """Trains for a few steps, or copies the run that this process has trained.

  model: {key: value} to change in config.model.
  """
  source, result = _train(steps, tuple(dict(model).items()))
  shutil.copytree(source, directory, dirs_exist_ok=True)
  return result
