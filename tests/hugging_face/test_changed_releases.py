"""Invalid Hugging Face directories give a one-line error at once."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

import locost_jax
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests.deadline import within
from tests.hugging_face.converting import change_json
from tests.hugging_face.converting import WEIGHTS

BUCKETS = 'relative_attention_num_buckets'
DISTANCE = 'relative_attention_max_distance'


def refused(directory):
  """Returns the error message of `load`, which must be one line."""
  with pytest.raises(InputError) as error, within():
    locost_jax.load(directory)
  line = str(error.value)
  assert '\n' not in line and '\x1b' not in line and len(line) < 600
  return line


@pytest.mark.parametrize(
    'key, value, words',
    [
        ('num_layers', 10**6, 'num_layers=1000000: expected an integer, 1'),
        ('num_decoder_layers', True, 'num_decoder_layers=true: expected an'),
        ('d_model', '24', 'd_model="24": expected an integer, 1'),
        ('d_model', -3, 'd_model=-3: expected an integer, 1 <='),
        ('vocab_size', 10**15, 'vocab_size=1000000000000000: expected an'),
        ('d_state', 7, 'd_state=7: expected an even integer from 2'),
        ('d_state', None, 'd_state=null: expected an even integer'),
        ('dropout_rate', float('nan'), 'dropout_rate=NaN: expected 0 <= '),
        ('gating', 1, 'gating=1: expected True or False'),
        (BUCKETS, 1, f'model.{BUCKETS}=1: expected '),
        (DISTANCE, 2, f'model.{DISTANCE}=2: expected '),
        ('feed_forward_proj', {}, 'feed_forward_proj={}: expected one of'),
        ('model_type', ['t5'], 'model_type=["t5"]: expected a string'),
        ('tie_word_embeddings', 'no', 'tie_word_embeddings="no": expected T'),
    ],
)
def test_values_of_config_json(release, key, value, words):
  change_json(release / 'config.json', **{key: value})
  assert refused(release).startswith(f'{release}/config.json: {words}')


@pytest.mark.parametrize(
    'key, value, words',
    [
        ('num_beams', -1, 'num_beams=-1: expected an integer, 1 <='),
        ('num_beams', '4', 'num_beams="4": expected an integer'),
        ('max_length', 'x', 'max_length="x": expected an integer'),
        ('max_new_tokens', 0, 'max_new_tokens=0: expected an integer, 1'),
        ('eos_token_id', [[1], 2], 'eos_token_id=[1]: expected an integer'),
        ('length_penalty', 'x', 'length_penalty="x": expected a finite n'),
        ('top_p', 1.5, 'top_p=1.5: expected 0 <= top_p <= 1'),
        ('do_sample', 'yes', 'do_sample="yes": expected True or False'),
        ('early_stopping', 'never', 'early_stopping="never": expected True'),
    ],
)
def test_values_of_generation_config_json(release, key, value, words):
  path = release / 'generation_config.json'
  path.write_text(json.dumps({key: value}))
  assert refused(release).startswith(f'{path}: {words}')
  path.unlink()
  change_json(release / 'config.json', **{key: value})
  assert refused(release).startswith(f'{release}/config.json: {words}')


def test_ids_without_an_embedding(release):
  for name, key in ('decoder_start', 'start'), ('eos', 'eos'), ('pad', 'pad'):
    change_json(release / 'config.json', **{f'{name}_token_id': 128})
    with pytest.raises(InputError, match=f"{key}_id=128 .* vocabulary's size"):
      locost_jax.load(release).generate([[5, 1]])
    change_json(release / 'config.json', **{f'{name}_token_id': 1})


def test_config_json_is_not_checked_if_it_is_not_used(release):
  """generation_config.json replaces the generation keys of config.json."""
  change_json(release / 'config.json', num_beams='many')
  (release / 'generation_config.json').write_text('{"num_beams": 3}')
  assert configs.generation_settings(release).num_beams == 3


def test_settings_that_are_not_followed_are_named(release, capsys):
  neutral = dict(num_beams=2, num_beam_groups=1, min_p=None, bad_words_ids=[])
  neutral |= dict(encoder_repetition_penalty=1.0, diversity_penalty=0.0)
  neutral |= dict(eos_token_id=[2, 2], forced_eos_token_id=[3])
  path = release / 'generation_config.json'
  path.write_text(json.dumps(neutral))
  settings = locost_jax.load(release).settings
  assert (settings.eos_id, settings.forced_last_token) == (2, 3)
  assert capsys.readouterr().err == ''
  other = dict(typical_p=0.2, stop_strings=['x'], eos_token_id=[2, 5])
  path.write_text(json.dumps(neutral | other))
  assert locost_jax.load(release).settings.eos_id == 2
  said = 'stop_strings, further eos_token_id, typical_p'
  said = f'{release}: {said}: not followed in generating\n'
  assert capsys.readouterr().err == said


@pytest.mark.parametrize('prefix', [3, None, ['x']])
def test_settings_of_tasks(release, prefix):
  for tasks in [], dict(summarization=3), dict(summarization=dict(num_beams=2)):
    change_json(release / 'config.json', task_specific_params=tasks)
    expected = dict(num_beams=2) if str(tasks).endswith('2}}') else {}
    assert configs.task_settings(release) == ('', expected)
  tasks = dict(summarization=dict(prefix=prefix))
  change_json(release / 'config.json', task_specific_params=tasks)
  with pytest.raises(InputError, match='config.json: prefix=.*a string'):
    configs.task_settings(release)


@pytest.mark.parametrize('name', ['config.json', 'generation_config.json'])
@pytest.mark.parametrize(
    'data, words',
    [
        (b'{', 'not JSON'),
        (None, 'is a named pipe, expected a regular file'),
    ],
)
def test_files_other_than_objects(release, name, data, words):
  path = release / name
  if data is None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
  else:
    path.write_bytes(data)
  assert refused(release).startswith(f'{path}: ') and words in refused(release)


@pytest.mark.parametrize('name', [WEIGHTS, WEIGHTS + '.index.json'])
def test_pipes_as_weights(release, name):
  (release / WEIGHTS).unlink()
  os.mkfifo(release / name)
  assert refused(release) == (
      f'{release / name}: is a named pipe, expected a regular file'
  )


@pytest.mark.parametrize('name', [WEIGHTS, 'pytorch_model.bin'])
def test_a_clone_without_git_lfs(release, name):
  (release / WEIGHTS).unlink()
  (release / name).write_text('version https://git-lfs.github.com/spec/v1\n')
  assert '/' + name + ': a pointer of Git LFS; `git lfs' in refused(release)


@pytest.mark.parametrize(
    'index, words',
    [
        ({}, 'weight_map=null: expected {"TENSOR": "FILE"}'),
        ({'weight_map': [1]}, 'weight_map=[1]: expected {"TENSOR": "FILE"}'),
        ({'weight_map': {'a': 3}}, 'expected {"TENSOR": "FILE"}'),
        ({'weight_map': {'a': '\x1b[2J'}}, r'lists \x1b[2J, which is missing'),
        ({'weight_map': {'a': 'pipe'}}, 'lists pipe, which is missing'),
    ],
)
def test_indices_of_shards(release, index, words):
  (release / WEIGHTS).unlink()
  os.mkfifo(release / 'pipe')
  (release / (WEIGHTS + '.index.json')).write_text(json.dumps(index))
  assert words in refused(release)


@pytest.mark.parametrize(
    'header',
    [
        (1 << 62).to_bytes(8, 'little'),
        (200 << 20).to_bytes(8, 'little') + b'{"a": ' * 1000,
        (600_000).to_bytes(8, 'little') + b'{"a": ' * 100_000,
        b'\xff' * 100,
        b'',
        None,  # its own, and not all that it announces
    ],
)
def test_headers_of_safetensors(release, header):
  data = (release / WEIGHTS).read_bytes()
  (release / WEIGHTS).write_bytes(data[:-100] if header is None else header)
  assert 'is not a whole safetensors file' in refused(release)


def test_escape_codes_in_names_of_tensors_are_visible(release):
  save_file({'a\x1b[2J\nb': np.zeros(3, np.float32)}, release / WEIGHTS)
  assert r'does not use: a\x1b[2J\nb' in refused(release)
  save_file({'a\x1b[2J\nb': np.zeros(3, np.int8)}, release / WEIGHTS)
  assert r'a\x1b[2J\nb has the type I8' in refused(release)


@pytest.mark.parametrize(
    'info, words',
    [
        ({'extra_ids': 10**8}, 'extra_ids=100000000: expected an integer,'),
        ({'extra_ids': 'x'}, 'extra_ids="x": expected an integer, 0'),
        ({'kind': ['byte']}, 'kind=["byte"]: expected one of'),
        ({'ids': 3}, 'ids=3: expected an object'),
    ],
)
def test_values_of_vocabulary_json(tmp_path, info, words):
  vocabulary_lib.save_vocabulary(byte_vocabulary.ByteVocabulary(), tmp_path)
  path = tmp_path / 'vocabulary.json'
  change_json(path, **info)
  with pytest.raises(InputError) as error, within():
    vocabulary_lib.load_vocabulary(tmp_path)
  assert str(error.value).startswith(f'{path}: {words}')


@pytest.mark.parametrize(
    'name', ['spiece.model', 'tokenizer.json', 'vocabulary.json']
)
def test_pipes_as_vocabularies(tmp_path, name):
  os.mkfifo(tmp_path / name)
  for path in (tmp_path, tmp_path / name):
    if path.name == 'vocabulary.json':
      continue
    with pytest.raises(InputError, match='is a named pipe, expected'), within():
      vocabulary_lib.load_vocabulary(path)
