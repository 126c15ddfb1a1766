"""PEGASUS-X: its own forms; test_transformers.py compares its results."""

import functools

import numpy as np
import pytest

from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.models import parameters
from tests.models import small

SMALL = small.BART | dict(
    name='pegasus_x', pad_id=0, block_size=6, global_tokens=3
)
documents = functools.partial(small.documents, length=29, pad=0)


def test_less_memory_gives_the_same_results(monkeypatch):
  """Blocks of queries and feed-forwards in pieces, layers recomputed."""
  small.check_less_memory_of(SMALL, documents(), monkeypatch)


def test_steps_match_the_plain_form_and_padding_changes_nothing():
  inputs = documents()
  run, want = small.check_steps(SMALL, inputs)
  padded = np.pad(inputs, ((0, 0), (0, 9)))
  np.testing.assert_allclose(run(padded), want, 0, 1e-5)


def test_dropout_of_attention():
  small.check_attention_dropout(SMALL, documents())


def test_the_published_size():
  """That of transformers' model with the sizes of google/pegasus-x-base."""
  config = SMALL | small.BART_BASE | dict(vocab_size=96103, num_layers=12)
  config |= dict(num_decoder_layers=12, block_size=512, global_tokens=128)
  params = parameters.abstract_params(models.build(config))
  assert parameters.count(parameters.flatten(params)) == 272_292_096


@pytest.mark.parametrize(
    'changes, message',
    (
        (dict(block_size=5), 'model.block_size=5: .*an even number of tokens'),
        (dict(sinusoidal=False), 'sinusoidal=False: expected True'),
    ),
)
def test_keys_that_fit_no_model(changes, message):
  with pytest.raises(InputError, match=message):
    models.make_config(SMALL | changes)
