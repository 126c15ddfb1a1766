"""PageSum's weights as published by the authors and as exported."""

import json
import shutil

from ml_collections import ConfigDict
import numpy as np
import pytest
from safetensors.numpy import load_file

import locost_jax
from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.models import parameters
from locost_jax.training import warm_start
from locost_jax.workdir import checkpoint
from tests.hugging_face.converting import GOLDEN

SOURCE = GOLDEN / 'pagesum'


def test_a_pagesum_is_recognised_by_its_confidence_layer():
  assert configs.model_config(SOURCE)['name'] == 'pagesum'
  assert configs.model_config(GOLDEN / 'bart')['name'] == 'bart'


@pytest.mark.parametrize(
    'change',
    ({'decoding': 'global'}, {'padding': 'release'}),
    ids=lambda change: '-'.join(*change.items()),
)
def test_a_round_trip_keeps_decoding_and_padding(change, tmp_path, call):
  """A model without a confidence layer is also read as a PageSum again."""
  config = configs.model_config(SOURCE) | change
  params = parameters.abstract_params(models.build(config))
  params = parameters.flatten(params)
  values = np.random.default_rng(0)
  params = {
      path: values.normal(size=leaf.shape).astype(np.float32)
      for path, leaf in params.items()
  }
  assert ('confidence/kernel' in params) == (change != {'decoding': 'global'})
  call(SOURCE, tmp_path / 'run')
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / '0')
  checkpoint.save_params(
      tmp_path / 'run' / 'checkpoints' / '0', parameters.unflatten(params)
  )
  stored = json.loads((tmp_path / 'run' / 'config.json').read_text())
  stored['model'] = config
  (tmp_path / 'run' / 'config.json').write_text(json.dumps(stored))
  call(tmp_path / 'run', tmp_path / 'back')
  assert configs.model_config(tmp_path / 'back') == config
  call(tmp_path / 'back', tmp_path / 'again')
  again = json.loads((tmp_path / 'again' / 'config.json').read_text())
  assert again['model'] == config


def test_a_state_dict_without_a_config_is_refused(tmp_path):
  shutil.copy(SOURCE / 'state_dict.safetensors', tmp_path)
  with pytest.raises(InputError, match='no config.json.*bart-large-cnn'):
    locost_jax.load(tmp_path)


def test_the_published_state_dict_of_torch_is_read(tmp_path):
  """Under any file name, with the copies of the embedding that torch saves."""
  torch = pytest.importorskip('torch')
  tensors = {
      name: torch.from_numpy(array)
      for name, array in load_file(SOURCE / 'state_dict.safetensors').items()
  }
  for copy in ('encoder.embed_tokens', 'decoder.embed_tokens'):
    tensors[f'model.{copy}.weight'] = tensors['model.shared.weight']
  tensors['lm_head.weight'] = tensors['model.shared.weight']
  torch.save(tensors, tmp_path / 'model_best.pt')
  shutil.copy(SOURCE / 'config.json', tmp_path)
  found = parameters.flatten(locost_jax.load(tmp_path).params)
  want = parameters.flatten(locost_jax.load(SOURCE).params)
  assert found.keys() == want.keys()
  for path, array in found.items():
    np.testing.assert_array_equal(array, want[path], err_msg=path)


def test_a_pagesum_starts_from_a_bart():
  """All parameters are copied except the confidence layer, which is new."""
  config = configs.model_config(GOLDEN / 'bart') | {'name': 'pagesum'}
  abstract = parameters.abstract_params(models.build(config))
  settings = ConfigDict(
      {
          'model': config,
          'train': {'init_from': str(GOLDEN / 'bart'), 'init_map': ()},
      }
  )
  params, report = warm_start.load(settings, abstract)
  fresh = set(parameters.flatten(abstract)) - set(params)
  assert fresh == {'confidence/kernel', 'confidence/bias'}
  assert report
