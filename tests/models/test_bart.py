"""BART: all forms match the plain one; test_golden.py: golden arrays."""

import json

import jax
import numpy as np
import pytest

from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.summarizing import reading
from tests.models import golden
from tests.models import small
from tests.models.small import documents
from tests.models.small import moved_params
from tests.models.small import tokens

SMALL = small.BART


def make(dtype='float32'):
  """Returns (model, parameters, jitted apply), with one layer per stack."""
  config = SMALL | dict(num_layers=1, num_decoder_layers=1)
  model = models.build(config, dtype)
  apply = jax.jit(model.apply, static_argnames='method')
  return model, moved_params(config, 0.1), apply


def test_bfloat16_is_close():
  model, params, _ = make('bfloat16')
  given = params, documents(), tokens(6, 2, 6)
  small.check_bfloat16(model, make()[2], given, ['= exp '])


def test_more_tokens_than_positions_are_refused():
  model, params, apply = make()
  memory = apply(params, documents(), method='encode')
  ends = "this model's positions end at max_positions=40"
  with pytest.raises(InputError, match=f'inputs have 41 tokens, {ends}'):
    apply(params, tokens(5, 1, 41), tokens(6, 1, 4))
  with pytest.raises(InputError, match=f'targets have 50 tokens, {ends}'):
    apply(params, tokens(5, 1, 9), tokens(6, 1, 50))
  with pytest.raises(InputError, match=f'targets have 41 tokens, {ends}'):
    model.apply(params, memory, 41, method='init_cache')
  # 33 would be padded to 48.
  assert reading.padded_length(model.config, 33) == 40
  assert reading.padded_length(model.config, 13) == 16


def released_config():
  return json.loads((golden.DIRECTORY / 'bart' / 'config.json').read_text())


@pytest.mark.parametrize(
    'change,message',
    (
        ({'activation_function': 'tanh'}, 'activation_function="tanh"'),
        (
            {'normalize_before': True},
            "normalize_before=True: expected False for model_type='bart'",
        ),
        ({'tie_word_embeddings': 'no'}, 'tie_word_embeddings="no"'),
        ({'d_model': None}, "lacks the key 'd_model'"),
    ),
)
def test_other_kinds_of_bart_are_refused(change, message):
  config = released_config()
  with pytest.raises(InputError, match=message):
    configs.from_released(config | change)


def test_progress_of_a_model_that_encodes_in_one_program():
  seen = []
  io = golden.arrays('bart')
  got = golden.load('bart').generate(
      io['input_ids'], max_length=4, progress=lambda *call: seen.append(call)
  )
  np.testing.assert_array_equal(got, io['greedy_tokens'][:, :4])
  assert seen == [
      ('encoding', 0, 2),
      ('encoding', 2, 2),
      ('decoding', 0, 4),
      ('decoding', 4, 4),
  ]
