"""Makes a finished run, without a corpus, for tests."""

import atexit
import functools
from pathlib import Path
import shutil
import tempfile

import numpy as np

from configs import default
from locost_jax import models
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import phases as phases_lib
from tests import small_training


def make_config(steps=2, model=()):
  """Returns the config of a small model with bytes as tokens."""
  config = default.get_config()
  config.model.update(d_model=16, d_state=4, d_ff=16, d_kv=8, num_heads=2)
  config.model.update(num_layers=1, num_decoder_layers=1)
  config.model.vocab_size = byte_vocabulary.ByteVocabulary().size
  config.model.update(dict(model))
  config.data.vocabulary = 'byte'
  config.train.update(dict(steps=steps, batch_size=2))
  config.decode.max_length = 6
  return config


def make_batch(config, rows=2, length=16):
  """Returns a batch of random tokens."""
  generator = np.random.default_rng(0)
  tokens = lambda: generator.integers(3, 200, (rows, length), dtype=np.int32)
  targets = tokens()
  shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
  return dict(
      encoder_input_tokens=tokens(),
      decoder_input_tokens=shifted,
      decoder_target_tokens=targets,
      decoder_loss_weights=np.ones((rows, length), np.float32),
  )


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

  def batches(start):
    del start
    while True:
      yield make_batch(config)

  measured = lambda params, step: {'eval/tiny/rouge_mean': 1.0}
  model = models.build(config.model)
  result = small_training.train(config, directory, model, batches, measured)
  return directory, result


def make(directory, steps=2, model=()):
  """Trains for a few steps, or copies the run that this process has trained.

  Args:
    directory: WORKDIR.
    steps: config.train.steps.
    model: {key: value} to change in config.model.
  """
  source, result = _train(steps, tuple(dict(model).items()))
  shutil.copytree(source, directory, dirs_exist_ok=True)
  return result
