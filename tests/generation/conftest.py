"""A small model and ragged inputs."""

import jax
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.summarizing.summarizer import Summarizer


@pytest.fixture(scope='module')
def summarizer():
  config = default.get_config().model
  config.update(vocab_size=20, d_model=32, d_state=8, d_ff=64, d_kv=8)
  config.update(num_heads=4, num_layers=2, num_decoder_layers=2)
  model = models.build(config)
  one = np.ones((1, 4), np.int32)
  params = jax.jit(model.init)(jax.random.key(3), one, one)['params']
  # Scale up the embedding of eos, so that some rows end, at different steps.
  embedding = params['token_embedding']['embedding']
  params['token_embedding']['embedding'] = embedding.at[1].multiply(2.5)
  return Summarizer(model, params)


@pytest.fixture(scope='module')
def documents():
  """Ragged inputs [12, 11] and their mask."""
  rng = np.random.default_rng(0)
  inputs = rng.integers(2, 20, (12, 11))
  mask = np.arange(11) < rng.integers(3, 12, 12)[:, None]
  return inputs * mask, mask
