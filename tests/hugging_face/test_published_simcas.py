"""SimCAS's files as its trainer writes them: tensor names, config.json."""

import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

import locost_jax
from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from tests.hugging_face.converting import GOLDEN

SOURCE = GOLDEN / 'simcas'
STORED = 'state_dict.safetensors'


def copy_as(tmp_path, rename):
  """Copies the directory with renamed tensors and a copy of the embedding."""
  target = tmp_path / 'renamed'
  shutil.copytree(SOURCE, target)
  tensors = load_file(SOURCE / STORED)
  tensors['lm_head.weight'] = tensors['model.shared.weight']
  save_file({rename(name): x for name, x in tensors.items()}, target / STORED)
  return target


@pytest.mark.parametrize(
    'rename',
    [
        lambda name: 'model.' + name,
        lambda name: name.removeprefix('model.'),
    ],
)
def test_names_with_and_without_a_prefix(rename, tmp_path):
  want = locost_jax.load(SOURCE)
  found = locost_jax.load(copy_as(tmp_path, rename))
  assert found.config == want.config
  jax.tree.map(np.testing.assert_array_equal, found.params, want.params)


def test_keys_in_config_json():
  """A plain release has no keys: its tensors identify the model."""
  config = configs.model_config(SOURCE)
  assert config['name'] == 'simcas'
  assert config | models.default_keys('simcas') | {'pad_id': 1} == (
      config
      | {'num_decoder_heads': 0, 'copy': False, 'copy_dim': 64, 'copy_ngram': 0}
  )
  written = configs.to_released(config)
  assert not any('simcas' in key for key in written)
  assert configs.from_released(written)['name'] == 'bart'
  changed = config | dict(align='mean', limit=64, padding='tokens')
  written = configs.to_released(changed)
  assert written['simcas_limit'] == 64
  assert configs.from_released(written) == changed


def test_a_text_is_read_as_chunks():
  assert locost_jax.load(SOURCE).pages.pages == 'chunks'
  with pytest.raises(InputError, match="pages='spatial' must be one of"):
    locost_jax.load(SOURCE, pages='spatial')
