"""Loading released weights: errors, and the loaded model."""

import json
import re
import sys

import numpy as np
import pytest

import locost_jax
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.summarizing.reading import bucket_length
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.vocabularies import byte_vocabulary
from tests.hugging_face.converting import change_json
from tests.hugging_face.converting import rewrite
from tests.hugging_face.converting import WEIGHTS
from tests.models import small


@pytest.mark.parametrize(
    'name, shape, fill, message',
    [
        ('encoder.final_layer_norm.weight', None, 1, 'lacks the tensor encod'),
        ('shared.weight', (9, 32), 1, r'(9, 32), the config says (128, 32)'),
        ('shared.weight', (128, 32), np.nan, 'shared.weight is not a finite n'),
        (
            'lm_head.weight',
            (128, 32),
            1,
            'lm_head.weight differs from shared.w',
        ),
    ],
)
def test_wrong_tensors_are_named(release, refuse, name, shape, fill, message):
  def change(tensors):
    tensors.pop(name, None)
    if shape:
      tensors[name] = np.full(shape, fill, np.float32)

  rewrite(release, change)
  with pytest.raises(InputError, match=re.escape(message)):
    locost_jax.load(release)
  refuse(release, message=message)


def test_directories_without_a_model(release, tmp_path):
  with pytest.raises(InputError, match='no config.json.*did you mean .*/rel'):
    locost_jax.load(tmp_path)
  (tmp_path / 'adapter_config.json').touch()
  with pytest.raises(InputError, match='saved after merge_and_unload'):
    locost_jax.load(tmp_path)
  (tmp_path / 'new').mkdir()
  with pytest.raises(InputError, match='no config.json.*bart-large-cnn'):
    locost_jax.load(tmp_path / 'new')
  (release / WEIGHTS).unlink()
  with pytest.raises(InputError, match='holds no weights'):
    locost_jax.load(release)
  (release / 'config.json').write_text('{"model_type": "bert"}')
  with pytest.raises(InputError, match="model_type='bert'.*LOCOST"):
    locost_jax.load(release)


def test_a_pickle_without_torch_says_what_to_install(release, monkeypatch):
  (release / WEIGHTS).rename(release / 'pytorch_model.bin')
  monkeypatch.setitem(sys.modules, 'torch', None)
  with pytest.raises(InputError, match='needs PyTorch.*model.safetensors'):
    locost_jax.load(release)


def test_without_a_vocabulary_only_tokens_work(release):
  summarizer = locost_jax.load(release)
  assert summarizer.vocabulary is None
  assert summarizer.encode([[3, 4]]).shape == (1, 2, 32)
  with pytest.raises(InputError, match='spiece.model'):
    summarizer.summarize('A text.')


def test_numpy_in_numpy_out_and_bad_tokens_named(release):
  summarizer = locost_jax.load(release)
  inputs = np.array([[3, 4, 5], [6, 0, 0]])
  assert summarizer.logits(inputs, [[0, 7], [0, 8]]).shape == (2, 2, 128)
  assert summarizer.logits(inputs, [[0, 7], [0, 8]]).dtype == np.float32
  tokens = summarizer.generate(inputs, max_length=5)
  assert tokens.dtype == np.int32 and tokens.shape[1] <= 5
  for bad, message in (
      ([[3, 128]], 'ids from 3 to 128: expected 0 to 127'),
      ([3, 4], r'inputs is int64\[2\]: expected integers'),
      ([[0.5]], 'expected integers'),
      ([[]], 'inputs is'),
  ):
    with pytest.raises(InputError, match=message):
      summarizer.encode(bad)
  with pytest.raises(InputError, match=r'input_mask has shape \[1, 3\]'):
    summarizer.encode(inputs, np.ones((1, 3)))
  with pytest.raises(InputError, match='min_length=9 must lie between 0 and'):
    summarizer.generate(inputs, max_length=4, min_length=9)
  with pytest.raises(InputError, match='num_beams=0: expected an integer, 1'):
    summarizer.generate(inputs, num_beams=0)
  with pytest.raises(InputError, match='forced_first_token=128 must be below'):
    summarizer.generate(inputs, forced_first_token=128)


def test_a_release_s_generation_settings(release):
  """`generate` uses only ids; transformers' defaults are not settings."""
  inputs = np.array([[3, 4, 5, 6, 7]])
  plain = locost_jax.load(release)
  want = plain.generate(inputs, max_length=9)
  # Not max_length=20, top_k=50.
  assert plain.settings == decode_settings.Settings()
  same = dict(num_beams=4, length_penalty=2.0, early_stopping=True)
  same |= dict(min_length=5, repetition_penalty=3.5)
  same |= dict(no_repeat_ngram_size=3, encoder_no_repeat_ngram_size=4)
  ids = dict(eos_token_id=2, pad_token_id=1, decoder_start_token_id=2)
  ids |= dict(forced_bos_token_id=0, forced_eos_token_id=2)
  change_json(release / 'config.json', max_length=142, **same, **ids)
  ours = dict(eos_id=2, pad_id=1, start_id=2, max_length=141)
  ours |= dict(forced_first_token=0, forced_last_token=2)
  settings = decode_settings.Settings(**same, **ours)
  assert locost_jax.load(release).settings == settings
  ids = dict(eos_token_id=1, pad_token_id=0, decoder_start_token_id=0)
  change_json(release / 'config.json', **ids)
  np.testing.assert_array_equal(
      locost_jax.load(release).generate(inputs, max_length=9), want
  )
  sampling = dict(do_sample=True, temperature=0.7, num_beams=None)
  (release / 'generation_config.json').write_text(
      json.dumps(dict(sampling, max_new_tokens=30))
  )
  assert locost_jax.load(release).settings == decode_settings.Settings(
      method='sample', temperature=0.7, top_k=50, max_length=30
  )


@pytest.fixture
def parts(small_model_config):
  """Returns (model, params, vocabulary): random, of bytes."""
  vocabulary = byte_vocabulary.ByteVocabulary()
  small_model_config.vocab_size = vocabulary.size
  model = models.build(small_model_config)
  return model, small.drawn_params(model, 0.3), vocabulary


def test_summaries_use_the_settings_of_the_run(parts):
  settings = decode_settings.Settings(max_length=7, num_beams=3, min_length=7)
  trained, plain = Summarizer(*parts, settings), Summarizer(*parts)
  text = 'A text.'
  assert trained.summarize(text) == plain.summarize(
      text, max_length=7, num_beams=3, min_length=7
  )
  assert trained.summarize(text, num_beams=1) == plain.summarize(
      text, max_length=7, min_length=7
  )
  sampled = [
      trained.summarize(text, temperature=1.5, seed=seed)[0]
      for seed in (0, 0, 1)
  ]
  assert sampled[0] == sampled[1] != sampled[2]


def test_a_cut_text_ends_as_a_whole_one(parts):
  tokenize = Summarizer(*parts).tokenize
  whole, cut = tokenize('abc', 6), tokenize('A longer text. ' * 9, 6)
  assert len(cut) == 6 and cut[-1] == whole[-1] != cut[-2]


def test_bucket_length():
  lengths = 1, 16, 17, 24, 25, 33, 4096, 4097
  buckets = [16, 16, 24, 24, 32, 48, 4096, 6144]
  assert list(map(bucket_length, lengths)) == buckets
  # Long inputs: longer by an eighth at most.
  lengths = 1 << 17, (1 << 17) + 1, 785_163, 1 << 20, 1_055_000
  buckets = [1 << 17, 9 << 14, 12 << 16, 1 << 20, 9 << 17]
  assert list(map(bucket_length, lengths)) == buckets
