"""--config.train.init_from of released weights: one flag."""

import json
import shutil

import numpy as np
import pytest

from configs import finetune
import locost_jax
from locost_jax import convert
from locost_jax import main
from locost_jax import models
from locost_jax.config import schema
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import export
from locost_jax.models import parameters
from locost_jax.runs import source_model
from locost_jax.training import warm_start
from tests import bart_files
from tests import tiny_run
from tests.python import ROOT
from tests.runs import test_main

SIZES = dict(vocab_size=400, d_model=24, d_ff=40, num_heads=3, num_layers=1) | {
    'num_decoder_layers': 2
}
T5 = SIZES | dict(d_kv=6, relative_attention_num_buckets=16)
BART = SIZES | dict(decoder_d_ff=48, max_positions=40, pad_id=1)
# Released model -> (our name, keys that differ from every config of ours).
RELEASED = {
    'locost': ('locost', T5 | dict(d_state=8, gating=False)),
    't5': ('t5', T5 | dict(feed_forward='relu', tie_embeddings=True)),
    'umt5': ('t5', T5 | dict(biases_per_layer=True)),
    'longt5': ('longt5', T5 | dict(attention='local', local_radius=4)),
    'bart': ('bart', BART | dict(scale_embedding=True, num_decoder_heads=2)),
    'mbart': ('bart', BART | dict(norms_first=True, feed_forward='relu')),
    'pegasus': (
        'bart',
        BART | dict(norms_first=True, sinusoidal=True, pad_id=0),
    ),
    'bigbird_pegasus': (
        'bigbird_pegasus',
        BART | dict(norms_first=True, block_size=8, use_bias=True),
    ),
    'led': (
        'led',
        BART | dict(attention_window=[8], max_target_positions=30),
    ),
}


def release(name, directory, **more):
  """Writes random weights as a Hugging Face directory."""
  model, keys = RELEASED[name]
  config = dict(schema.make_model(model)) | keys | more
  shapes = parameters.abstract_params(models.build(config))
  random = np.random.default_rng(0)
  params = {
      path: random.normal(size=leaf.shape).astype(np.float32)
      for path, leaf in parameters.flatten(shapes).items()
  }
  directory.mkdir(parents=True)
  export.Exported(config, parameters.flatten(shapes), 'float32').write(
      directory, params
  )
  (directory / 'config.json').write_text(
      json.dumps(configs.to_released(config))
  )
  return params


def follow(config, directory, workdir='no/workdir', is_named=False, **given):
  config.train.init_from = str(directory)
  overrides = {key.replace('__', '.'): value for key, value in given.items()}
  for key, value in overrides.items():
    section, name = key.split('.')
    config[section][name] = value
  overrides['train.init_from'] = str(directory)
  source_model.follow(config, overrides, workdir, is_named)
  return config


def copied(config):
  """The parameters that a run would copy, and those it begins with."""
  shapes = parameters.abstract_params(models.build(config.model))
  found, _ = warm_start.load(config, shapes)
  return found, parameters.flatten(shapes)


@pytest.mark.parametrize('is_named', (False, True))
@pytest.mark.parametrize('name', RELEASED)
def test_all_parameters_are_copied(name, is_named, tmp_path, capfd):
  want = release(name, tmp_path / name)
  ours, keys = RELEASED[name]
  config = finetune.get_config(ours if is_named else 'locost')
  follow(config, tmp_path / name, is_named=is_named)
  model = dict(config.model)
  assert (model['name'], model['dropout_rate']) == (ours, 0.1)
  for key, value in keys.items():
    assert model[key] == (tuple(value) if isinstance(value, list) else value)
  found, shapes = copied(config)
  assert found.keys() == shapes.keys()
  for path, array in found.items():
    np.testing.assert_array_equal(array, want[path], err_msg=path)
  if 'decoder_d_ff' in keys:
    limit = keys.get('max_target_positions', 40)
    lengths = config.data.max_input_length, config.data.max_target_length
    assert (*lengths, config.decode.max_length) == (40, limit, limit)
  assert 'model.d_model=24' in capfd.readouterr().err


@pytest.mark.parametrize(
    'name, new', [('pagesum', 'confidence'), ('simcas', 'selector')]
)
def test_all_but_what_a_model_adds_is_copied(name, new, tmp_path):
  want = release('bart', tmp_path / 'bart')
  config = follow(finetune.get_config(name), tmp_path / 'bart')
  assert (config.model.name, config.data.page_length) == (name, 40)
  found, shapes = copied(config)
  assert found.keys() == want.keys()
  assert {path.split('/')[0] for path in shapes.keys() - found} == {new}


def test_a_named_model_takes_what_it_has_in_common(tmp_path):
  release('t5', tmp_path / 't5')
  config = follow(finetune.get_config(), tmp_path / 't5', is_named=True)
  assert config.model.name == 'locost'
  found, _ = copied(config)
  assert any(path.startswith('decoder/') for path in found)
  assert not any(path.startswith('encoder/') for path in found)


def test_the_command_line_decides(tmp_path):
  """Keys that weights do not determine may differ; others are refused."""
  release('led', tmp_path / 'led')
  config = follow(
      finetune.get_config('led'),
      tmp_path / 'led',
      model__attention_window=16,
      data__max_input_length=30,
  )
  assert (config.model.attention_window, config.model.d_model) == (16, 24)
  assert config.data.max_input_length == 30
  with pytest.raises(InputError) as error:
    follow(
        finetune.get_config('led'),
        tmp_path / 'led',
        model__d_ff=41,
        model__pad_id=2,
        model__num_layers=1,
    )
  assert str(error.value) == (
      'config.model.d_ff=41: expected 40; config.model.pad_id=2: expected 1, '
      f'as config.train.init_from={tmp_path}/led has it: leave out '
      '--config.model keys that the source gives'
  )


def test_a_primera_has_its_separators(tmp_path, succeed):
  """Only its vocabulary says that it is one."""
  release('led', tmp_path / 'led')
  bart_files.write(tmp_path / 'led')
  (tmp_path / 'led' / 'added_tokens.json').write_text('{"<doc-sep>": 264}')
  succeed(convert, f'--source={tmp_path}/led', f'--target={tmp_path}/run')
  for name in ('led', 'run'):
    config = follow(finetune.get_config(), tmp_path / name)
    assert config.model.separator_id == 264
    s = locost_jax.load(tmp_path / name)
    assert s.tokenize('a<doc-sep>b').count(s.config.separator_id) == 1


def test_mapped_parameters_keep_the_model_and_its_tokens(tmp_path):
  release('t5', tmp_path / 't5')
  config = finetune.get_config()
  config.train.init_map = (('(token_embedding|logits)/.*', ''),)
  follow(config, tmp_path / 't5')
  assert (config.model.name, config.model.vocab_size) == ('locost', 0)


def test_a_run_is_a_source_as_before(tmp_path):
  tiny_run.make(tmp_path / 'run')
  config = finetune.get_config()
  before = config.to_json_best_effort()
  config = follow(config, tmp_path / 'run')
  config.train.init_from = ''
  assert config.to_json_best_effort() == before


def test_from_a_released_model_to_a_summary(succeed, tmp_path, monkeypatch):
  """One flag; evaluated, continued without the source, and as converted."""
  monkeypatch.chdir(tmp_path)
  release('bart', tmp_path / 'bart', max_positions=64)
  bart_files.write(tmp_path / 'bart')
  text = 'The story of the cat {}. It is short. ' * 3
  rows = [
      dict(document=text.format(*[i] * 3), summary='The cat.') for i in range(6)
  ]
  rows = test_main.write_rows(tmp_path / 'rows.jsonl', rows)
  data = f'--config.data.train_files={rows}'
  train = (
      f'--config={ROOT}/configs/finetune.py',
      data,
      '--config.train.init_from=bart',
      '--workdir=run',
      *tiny_run.flags(
          f'data.validation_files={rows} decode.max_length=4 '
          "train.eval_every=0 train.batch_size=2 eval.metrics=('loss',) "
          'checkpoint.metric=loss eval.baselines=False optim.learning_rate=0'
      ),
  )
  _, err = succeed(main, *train, '--config.train.steps=2')
  assert err.count('warm start from ') == 1 and '(100%)' in err
  shutil.rmtree(tmp_path / 'bart')
  _, err = succeed(main, *train, '--config.train.steps=3')
  assert 'warm start' not in err
  succeed(main, '--workdir=run', '--evaluate')
  assert locost_jax.load('run').config.d_model == 24


@pytest.mark.parametrize('with_config', (False, True))
def test_converted_weights_are_evaluated(
    with_config, succeed, run_command, tmp_path, monkeypatch
):
  """docs/weights.md; and they are a source like the directory they were."""
  monkeypatch.chdir(tmp_path)
  release('mbart', tmp_path / 'bart', max_positions=64)
  path = tmp_path / 'bart' / 'config.json'
  config = json.loads(path.read_text()) | {'decoder_start_token_id': 2}
  path.write_text(json.dumps(config))
  bart_files.write(tmp_path / 'bart')
  succeed(convert, '--source=bart', '--target=run')
  rows = [dict(document=f'The cat {i}.', summary='A cat.') for i in range(3)]
  test_main.write_rows(tmp_path / 'rows.jsonl', rows)
  file = [f'--config={ROOT}/configs/finetune.py:bart'] * with_config
  evaluate = (
      '--workdir=run',
      '--evaluate',
      *file,
      '--config.data.test_files=rows.jsonl',
      "--config.eval.metrics=('loss',)",
      '--config.eval.baselines=False',
  )
  out, _ = succeed(main, *evaluate)
  assert 'test, 3 documents' in out
  status, _, err = run_command(main, '--workdir=run')
  assert status == 2 and 'holds converted weights, no training' in err
  config = follow(finetune.get_config(), 'run')
  assert copied(config)[0].keys() == copied(config)[1].keys()
