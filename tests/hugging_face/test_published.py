"""Files of PageSum and SimCAS as their authors and as exports write them."""

import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

import locost_jax
from locost_jax import models
from locost_jax.config import model_keys
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.models import parameters
from tests.hugging_face.converting import GOLDEN
from tests.hugging_face.converting import save_run
from tests.models import small

PAGESUM, SIMCAS = GOLDEN / 'pagesum', GOLDEN / 'simcas'
STORED = 'state_dict.safetensors'


@pytest.mark.parametrize(
    'change',
    ({'decoding': 'global'}, {'padding': 'release'}),
    ids=lambda change: '-'.join(*change.items()),
)
def test_a_round_trip_keeps_decoding_and_padding(change, tmp_path, call):
  """A model without a confidence layer is also read as a PageSum again."""
  config = configs.model_config(PAGESUM) | change
  params = small.drawn_params(models.build(config), 1.0)
  assert ('confidence' in params) == (change != {'decoding': 'global'})
  save_run(tmp_path / 'run', config, params)
  call(tmp_path / 'run', tmp_path / 'back')
  assert configs.model_config(tmp_path / 'back') == config
  call(tmp_path / 'back', tmp_path / 'again')
  again = json.loads((tmp_path / 'again' / 'config.json').read_text())
  assert again['model'] == config


def test_the_published_state_dict_of_torch_is_read(tmp_path):
  """Under any file name, with the copies of the embedding that torch saves."""
  torch = pytest.importorskip('torch')
  tensors = {
      name: torch.from_numpy(array)
      for name, array in load_file(PAGESUM / STORED).items()
  }
  for copy in ('encoder.embed_tokens', 'decoder.embed_tokens'):
    tensors[f'model.{copy}.weight'] = tensors['model.shared.weight']
  tensors['lm_head.weight'] = tensors['model.shared.weight']
  torch.save(tensors, tmp_path / 'model_best.pt')
  shutil.copy(PAGESUM / 'config.json', tmp_path)
  found = parameters.flatten(locost_jax.load(tmp_path).params)
  want = parameters.flatten(locost_jax.load(PAGESUM).params)
  assert found.keys() == want.keys()
  for path, array in found.items():
    np.testing.assert_array_equal(array, want[path], err_msg=path)


@pytest.mark.parametrize(
    'rename',
    [
        lambda name: 'model.' + name,
        lambda name: name.removeprefix('model.'),
    ],
)
def test_names_with_and_without_a_prefix(rename, tmp_path):
  want = locost_jax.load(SIMCAS)
  tensors = load_file(SIMCAS / STORED)
  tensors['lm_head.weight'] = tensors['model.shared.weight']
  shutil.copy(SIMCAS / 'config.json', tmp_path)
  save_file({rename(name): x for name, x in tensors.items()}, tmp_path / STORED)
  found = locost_jax.load(tmp_path)
  assert found.config == want.config
  jax.tree.map(np.testing.assert_array_equal, found.params, want.params)


def test_a_bart_without_the_bias_of_its_logits(tmp_path):
  """As facebook/bart-base is, the tensors of a BartModel; with fairseq's."""
  want = locost_jax.load(GOLDEN / 'bart')
  tensors = load_file(GOLDEN / 'bart' / STORED)
  del tensors['final_logits_bias']
  tensors = {name.removeprefix('model.'): x for name, x in tensors.items()}
  tensors['encoder.version'] = tensors['decoder.version'] = np.ones(1, 'f')
  save_file(tensors, tmp_path / STORED)
  shutil.copy(GOLDEN / 'bart' / 'config.json', tmp_path)
  found = locost_jax.load(tmp_path)
  bias = want.params['logits_bias']
  tokens = np.arange(3, 9)[None]
  np.testing.assert_allclose(
      found.logits(tokens, tokens) + bias,
      want.logits(tokens, tokens),
      atol=1e-6,
  )


def test_keys_of_simcas_in_config_json():
  """A plain release has no keys: its tensors identify the model."""
  config = configs.model_config(SIMCAS)
  assert config['name'] == 'simcas'
  keys = model_keys.MODELS['simcas'].items()
  later = {key: row.default for key, row in keys if not row.is_needed}
  assert config | later | {'pad_id': 1} == (
      config
      | {'num_decoder_heads': 0, 'copy': False, 'copy_dim': 64, 'copy_ngram': 0}
      | {'norms_first': False, 'sinusoidal': False}
  )
  written = configs.to_released(config)
  assert not any('simcas' in key for key in written)
  assert configs.from_released(written)['name'] == 'bart'
  changed = config | dict(align='mean', limit=64, padding='tokens')
  written = configs.to_released(changed)
  assert written['simcas_limit'] == 64
  assert configs.from_released(written) == changed


def test_a_simcas_reads_a_text_as_chunks():
  assert locost_jax.load(SIMCAS).pages.pages == 'chunks'
  with pytest.raises(InputError, match="pages='spatial' must be one of"):
    locost_jax.load(SIMCAS, pages='spatial')
