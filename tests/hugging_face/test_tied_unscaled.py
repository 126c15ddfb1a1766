"""A T5 of transformers 5 whose output layer is its embedding, unscaled.

T5Config(tie_word_embeddings=False) writes tie_word_embeddings true and
scale_decoder_outputs false, and no lm_head.weight unless the head was trained
separately.
"""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

import locost_jax
from locost_jax.errors import InputError
from tests.hugging_face.converting import GOLDEN
from tests.hugging_face.converting import WEIGHTS


def write(directory, with_head, **changes):
  source = GOLDEN / 't5v11'
  config = json.loads((source / 'config.json').read_text()) | changes
  directory.mkdir()
  (directory / 'config.json').write_text(json.dumps(config))
  tensors = load_file(source / 'state_dict.safetensors')
  tensors['lm_head.weight'] = tensors['shared.weight'].copy()
  if not with_head:
    del tensors['lm_head.weight']
  save_file(tensors, directory / WEIGHTS)
  return directory


UNSCALED = dict(tie_word_embeddings=True, scale_decoder_outputs=False)


def test_the_head_is_the_embedding(tmp_path, call):
  one = write(tmp_path / 'one', False, **UNSCALED)
  both = write(tmp_path / 'both', True, tie_word_embeddings=False)
  inputs, targets = [[5, 6, 7, 1]], [[0, 9, 8]]
  want = locost_jax.load(both).logits(inputs, targets)
  np.testing.assert_array_equal(
      locost_jax.load(one).logits(inputs, targets), want
  )
  call(one, tmp_path / 'run')
  np.testing.assert_array_equal(
      locost_jax.load(tmp_path / 'run').logits(inputs, targets), want
  )


def test_without_these_keys_a_missing_head_is_an_error(tmp_path):
  directory = write(tmp_path / 'one', False, tie_word_embeddings=False)
  with pytest.raises(InputError, match='lacks the tensor lm_head.weight'):
    locost_jax.load(directory)
